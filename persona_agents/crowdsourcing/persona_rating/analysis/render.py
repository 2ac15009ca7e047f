"""Results as Markdown, LaTeX, CSV, JSON and a picture."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from persona_agents.crowdsourcing.study import ASPECTS

NAMES = {"fluency": "Fluency", "relevance": "Relevance", "consistency": "Persona consistency"}
SHOWN_DISAGREEMENTS = 10


def write(results: dict, folder: Path) -> list[Path]:
    """Write all files and return their paths; the picture is left out without matplotlib."""
    folder.mkdir(exist_ok=True)
    public = {**results, "reviewers": _without_names(results["reviewers"])}
    texts = {
        "results.md": markdown(results),
        "results.tex": latex(results),
        "results.json": json.dumps(public, ensure_ascii=False, indent=1) + "\n",
    }
    written = []
    for name, text in texts.items():
        written.append(folder / name)
        written[-1].write_text(text, encoding="utf-8")
    tables = {
        "results.csv": _table_rows(results),
        "ratings.csv": results["ratings"],
        # who is who: for paying and blocking people, not for publishing
        "reviewers.csv": [{"reviewer": r, **values} for r, values in results["reviewers"].items()],
    }
    for name, rows in tables.items():
        written.append(folder / name)
        with open(written[-1], "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    picture = folder / "results.png"
    if draw(results, picture):
        written.append(picture)
    return written


def _without_names(reviewers: dict) -> dict:
    return {
        reviewer: {key: value for key, value in values.items() if key != "name"}
        for reviewer, values in reviewers.items()
    }


def _table_rows(results: dict) -> list[dict]:
    if results["form"] == "pairs":
        return results["comparisons"]
    rows = []
    for system, aspects in results["means"].items():
        for aspect, values in aspects.items():
            counts = {f"rated {value}": count for value, count in values["counts"].items()}
            plain = {key: value for key, value in values.items() if key != "counts"}
            rows.append({"system": system, "aspect": aspect, **plain, **counts})
    return rows


def _number(value, digits=2) -> str:
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00


def _p(value) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _interval(values: dict) -> str:
    text = _number(values["mean"])
    return text if values["low"] is None else f"{text} [{values['low']:.2f}, {values['high']:.2f}]"


def _rows(header, rows) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def _cell(value) -> str:
    """Text inside a Markdown table: a reply must not break out of its cell or become markup."""
    text = " ".join(str(value).split())
    for char in "\\|<>*_`[]":
        text = text.replace(char, "\\" + char) if char != "<" else text.replace("<", "&lt;")
    return text


def state_line(results: dict) -> str:
    """What is there, and plainly what is missing."""
    state = results["state"]
    line = f"{state['there']} of {state['wanted']} ratings of {state['items']} items"
    if not state["short"]:
        return f"Complete: {line}."
    short = "; ".join(f"{count} items lack {lack}" for lack, count in state["short"].items())
    return f"INCOMPLETE: {line}. {short}. All figures below are of what is there."


def markdown(results: dict) -> str:
    """The whole report."""
    lines = ["# Human evaluation", "", state_line(results), ""]
    if results["left out"]:
        lines += [f"Left out, as they failed checks: {', '.join(results['left out'])}.", ""]
    if results["form"] == "scales":
        lines += ["Means (0 to 2) with 95 % intervals over items:", ""]
        rows = [
            [system, *(_interval(aspects[aspect]) for aspect in ASPECTS)]
            for system, aspects in results["means"].items()
        ]
        lines += _rows(["System", *NAMES.values()], rows)
    else:
        lines += ["Judgements side by side:", ""]
        first, second = results["systems"]
        rows = [
            [NAMES[c["aspect"]], c["first preferred"], c["equal"], c["second preferred"]]
            for c in results["comparisons"]
        ]
        lines += _rows(["", f"{first} better", "equal", f"{second} better"], rows)
    lines += ["", "Agreement between reviewers:", ""]
    rows = [
        [
            NAMES[a],
            _number(v["alpha"], 3),
            _number(v["kappa"], 3),
            v["kappa items"],
            _number(v["same"]),
        ]
        for a, v in results["agreement"].items()
    ]
    header = ["", "Krippendorff's α (ordinal)", "Fleiss' κ", "items in κ", "same value (pairs)"]
    lines += _rows(header, rows)
    lines += [
        "",
        "Differences (Wilcoxon's signed-rank test over samples, corrected by Holm's method):",
        "",
    ]
    rows = [
        [
            NAMES[c["aspect"]],
            f"{c['first']} − {c['second']}",
            _interval({**c, "mean": c["difference"]}),
            c["samples"],
            _p(c["p"]),
            _p(c["p holm"]),
        ]
        for c in results["comparisons"]
    ]
    lines += _rows(["", "Systems", "Difference", "Samples", "p", "p (Holm)"], rows)
    lines += ["", "Reviewers:", ""]
    rows = [
        [
            reviewer,
            v["ratings"],
            _number(v["median seconds"], 1),
            f"{v['checks failed']} of {v['checks']}",
            "FAILS" if v["fails"] else "",
        ]
        for reviewer, v in results["reviewers"].items()
    ]
    lines += _rows(["", "ratings", "median seconds", "checks failed", ""], rows)
    found = results["disagreements"]
    lines += [
        "",
        f"Strongest disagreements ({min(len(found), SHOWN_DISAGREEMENTS)} of {len(found)}):",
    ]
    if found:
        rows = [
            [
                NAMES[d["aspect"]],
                " | ".join(d["systems"]),
                ", ".join(f"{reviewer} {value}" for reviewer, value in d["ratings"].items()),
                " / ".join(d["persona"]),
                d["query"],
                " | ".join(d["replies"]),
            ]
            for d in found[:SHOWN_DISAGREEMENTS]
        ]
        lines += ["", *_rows(["", "System", "Ratings", "Persona", "Query", "Reply"], rows)]
    return "\n".join(lines) + "\n"


def _tex(text) -> str:
    table = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(table.get(c, "\\" + c if c in "&%$#_{}" else c) for c in str(text))


def latex(results: dict) -> str:
    """The table of a paper (needs booktabs); the best mean of each column is bold."""
    lines = [
        f"% {state_line(results)}",
        r"\begin{tabular}{l" + "c" * len(ASPECTS) + "}",
        r"\toprule",
    ]
    lines += [" & ".join(["", *NAMES.values()]) + r" \\", r"\midrule"]
    if results["form"] == "scales":
        means = results["means"]
        best = {
            a: max(
                (means[s][a]["mean"] for s in means if means[s][a]["mean"] is not None),
                default=None,
            )
            for a in ASPECTS
        }
        for system, aspects in means.items():
            cells = []
            for aspect in ASPECTS:
                values = aspects[aspect]
                text = _number(values["mean"]).replace("–", "--")
                if values["mean"] is not None and values["mean"] == best[aspect]:
                    text = rf"\textbf{{{text}}}"
                if values["low"] is not None:
                    text += rf" $\pm$ {(values['high'] - values['low']) / 2:.2f}"
                cells.append(text)
            lines.append(" & ".join([_tex(system), *cells]) + r" \\")
    else:
        first, second = results["systems"]
        for label, field in (
            (f"{first} better", "first preferred"),
            ("equal", "equal"),
            (f"{second} better", "second preferred"),
        ):
            cells = [str(c[field]) for c in results["comparisons"]]
            lines.append(" & ".join([_tex(label), *cells]) + r" \\")
    lines.append(r"\midrule")
    for label, field in ((r"Krippendorff's $\alpha$", "alpha"), (r"Fleiss' $\kappa$", "kappa")):
        cells = [_number(results["agreement"][a][field]).replace("–", "--") for a in ASPECTS]
        lines.append(" & ".join([label, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def draw(results: dict, path: Path) -> bool:
    """The means or preferences as a picture; False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    systems = results["systems"]
    rows = len(systems) if results["form"] == "scales" else 1
    figure = Figure(figsize=(9, 1.4 + 0.35 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, aspect in zip(figure.subplots(1, len(ASPECTS), sharey=True), ASPECTS):
        axes.set_title(NAMES[aspect])
        if results["form"] == "scales":
            _draw_means(axes, results, aspect)
        else:
            _draw_preferences(axes, results, aspect)
    state = results["state"]
    if state["short"]:
        figure.suptitle(f"incomplete: {state['there']} of {state['wanted']} ratings", color="C3")
    figure.savefig(path, dpi=150)
    return True


def _draw_means(axes, results, aspect) -> None:
    systems = list(results["means"])
    for row, system in enumerate(systems):
        values = results["means"][system][aspect]
        if values["mean"] is None:
            continue
        low, high = values["low"], values["high"]
        if low is not None:
            axes.plot([low, high], [row, row], color="C0", linewidth=2)
        axes.plot([values["mean"]], [row], "o", color="C0")
    axes.set_yticks(range(len(systems)), systems)
    axes.set_ylim(len(systems) - 0.5, -0.5)
    axes.set_xlim(-0.05, 2.05)
    axes.grid(axis="x", alpha=0.3)


def _draw_preferences(axes, results, aspect) -> None:
    (comparison,) = (c for c in results["comparisons"] if c["aspect"] == aspect)
    start = 0
    for field, color in (("first preferred", "C0"), ("equal", "0.8"), ("second preferred", "C1")):
        count = comparison[field]
        axes.barh([0], [count], left=start, color=color)
        if count:
            axes.text(start + count / 2, 0, str(count), ha="center", va="center")
        start += count
    first, second = results["systems"]
    axes.set_yticks([0], [f"{first} (left)\n{second} (right)"])
    axes.set_xticks([])
