"""One explained reply as a picture, drawn with matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from persona_agents.scripts.picture import cjk_font
from persona_agents.text import has_cjk, is_cjk_punctuation

LABELS = {
    "en": {"query": "query", "persona": "persona", "gates": "gates", "end": "end"},
    "zh": {"query": "问句", "persona": "人设", "gates": "门控", "end": "完"},
}
GATES = (("p_gen", "p_gen"), ("beta", "β"), ("gamma", "γ"))


def is_chinese(reply: dict) -> bool:
    """Whether a font with Chinese characters is needed."""
    texts = (reply["reply"], *reply["provenance"]["persona"], *reply["provenance"]["query"])
    return any(has_cjk(text) or any(map(is_cjk_punctuation, text)) for text in texts)


def what_is_missing(replies: list[dict]) -> str:
    """What keeps pictures from being drawn, and the way out; empty if nothing does."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed (pip install matplotlib)."
    if any(map(is_chinese, replies)) and cjk_font() is None:
        return (
            "no font with Chinese characters is installed. Install one, such as Noto Sans CJK "
            "(Debian and Ubuntu: apt install fonts-noto-cjk)."
        )
    return ""


def draw(reply: dict, path: Path) -> None:
    """Write the gates at every step and the heat maps of both copy attentions, one over the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    provenance = reply["provenance"]
    labels = LABELS["zh" if has_cjk(reply["reply"]) else "en"]
    font = {"family": [cjk_font(), "sans-serif"]} if is_chinese(reply) else {}
    tokens = provenance["tokens"]
    steps = [token["text"] or labels["end"] for token in tokens]
    maps = {}
    for part in ("query", "persona"):
        columns = [i for i, word in enumerate(provenance["words"]) if word["from"] == part]
        if columns:
            maps[part] = columns
    heights = [4.0, *(max(2.0, 0.9 * len(columns)) for columns in maps.values())]
    figure = Figure(
        figsize=(max(5.0, 2.2 + 0.42 * len(steps)), 1.2 + 0.28 * sum(heights)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights}, squeeze=False)
    panels = [row[0] for row in panels]

    gates = panels[0]
    for name, label in GATES:
        gates.plot([token[name] for token in tokens], marker="o", markersize=3, label=label)
    gates.set_xlim(-0.5, len(steps) - 0.5)
    gates.set_ylim(-0.05, 1.05)
    gates.set_ylabel(labels["gates"], **font)
    gates.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes, (part, columns) in zip(panels[1:], maps.items()):
        words = [provenance["words"][i] for i in columns]
        weights = [[token["attention"][i] for token in tokens] for i in columns]
        axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="none")
        axes.set_yticks(range(len(words)), [word["text"] for word in words], **font)
        axes.set_ylabel(labels[part], **font)
        for row in range(1, len(words)):
            if words[row]["sentence"] != words[row - 1]["sentence"]:
                axes.axhline(row - 0.5, color="gray", linewidth=0.8)
    for axes in panels:
        rotation = 0 if max(map(len, steps)) <= 2 else 90
        axes.set_xticks(range(len(steps)), steps, rotation=rotation, **font)
    figure.savefig(path, dpi=110)
