"""What `parlai persona_score` does: read, score, compare, print."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence

import tqdm

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, compare, score
from persona_agents.metrics.options import settings_of
from persona_agents.metrics.scorer import CHUNK, OUTPUTS, choose, scorer_for
from persona_agents.scripts.persona_score_files import align, read_replies
from persona_agents.scripts.statistics import write_json
from persona_agents.text import has_cjk

COUNTS = ("replies", "empty_replies", "without_reference", "without_persona")


def main(opt) -> dict:
    """Score the files that the options name; returns plain data, as `--json-file` gets it."""
    if not opt.get("replies"):
        raise PersonaAgentsError("Name the file of replies: parlai persona_score --replies FILE.")
    names = choose(opt["metrics"])
    if not names:
        raise PersonaAgentsError(f"--metrics {opt['metrics']!r} names no metric.")
    if "char_ppl" in names:
        raise PersonaAgentsError(
            "--metrics char_ppl needs the losses of a model, which no file of replies has: use "
            "parlai eval_model."
        )
    _keep_inputs(opt)
    beside = [opt.get(option) for option in ("references", "personas", "queries")]
    files = {"first": opt["replies"]}
    systems = {"first": read_replies(opt["replies"], *beside)}
    if opt.get("compare"):
        files["second"] = opt["compare"]
        second = read_replies(opt["compare"], *beside)
        systems["second"] = align(systems["first"], second, opt["compare"])
    language = opt["language"]
    if language == "auto":
        language = language_of(systems["first"])
    settings = settings_of(opt, language)
    scorer_for(names, settings)  # a model that cannot be had is told before anything is scored
    scores = {
        system: score(replies, names, settings, progress_of(files[system]))
        for system, replies in systems.items()
    }
    result = {
        "files": files,
        "language": language,
        "signatures": scores["first"].signatures,
        "scores": {
            system: {"values": found.values, "counts": found.counts}
            for system, found in scores.items()
        },
    }
    if "second" in scores:
        differences = compare(scores["first"], scores["second"], opt["resamples"], opt["seed"])
        result["comparison"] = {
            output: dataclasses.asdict(difference) for output, difference in differences.items()
        }
        result["bootstrap"] = {"resamples": opt["resamples"], "seed": opt["seed"]}
    print(to_text(result))
    if opt.get("json_file"):
        write_json(result, opt["json_file"])
    return result


def _keep_inputs(opt) -> None:
    """Raise if the scores would be written over a file that is read."""
    for option in ("replies", "compare", "references", "personas", "queries"):
        given, target = opt.get(option), opt.get("json_file")
        if given and target and os.path.realpath(given) == os.path.realpath(target):
            raise PersonaAgentsError(
                f"--json-file {target} is the file of --{option}, which would be lost: name "
                "another file."
            )


def language_of(replies: Sequence[Reply]) -> str:
    """'zh' if more than half of the samples have Chinese gold replies, or replies if none is gold."""
    texts = [" ".join(reply.references) or reply.text for reply in replies]
    return "zh" if 2 * sum(map(has_cjk, texts)) > len(texts) else "en"


def progress_of(path: str):
    """A wrapper for chunks of replies that shows how far the scoring is."""
    return lambda chunks: tqdm.tqdm(
        chunks, desc=f"Scoring {path}", unit=f"×{CHUNK}", file=sys.stderr, leave=False
    )


def to_text(result: dict) -> str:
    """The result as a table for people."""
    lines = []
    for system, path in result["files"].items():
        counts = result["scores"][system]["counts"]
        told = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in COUNTS if counts[name]]
        lines.append(f"{system}: {path} ({', '.join(told)}; {result['language']})")
    comparison = result.get("comparison")
    if comparison:
        heads = (("first", 12), ("second", 12), ("difference", 12), ("95% interval", 24), ("p", 12))
        lines += ["", " " * 20 + "".join(f"{title:>{width}}" for title, width in heads)]
    else:
        lines.append("")
    for name, signature in result["signatures"].items():
        for output in OUTPUTS[name]:
            lines.append(f"{output:<20}" + _row(result, output))
        lines.append(f"    {signature}")
    if comparison:
        how = result["bootstrap"]
        lines += ["", f"paired bootstrap, {how['resamples']} resamples, seed {how['seed']}"]
    return "\n".join(lines)


def _row(result: dict, output: str) -> str:
    difference = result.get("comparison", {}).get(output)
    if difference is None:
        values = [scores["values"].get(output) for scores in result["scores"].values()]
        cells = "".join(f"{'-' if value is None else _number(value):>12}" for value in values)
        judged, of = (result["scores"]["first"]["counts"].get(key) for key in (output, "replies"))
        return cells + (f"   of {judged or 0:,} replies" if judged != of else "")
    interval = f"[{_number(difference['low'])}, {_number(difference['high'])}]"
    cells = [_number(difference[key]) for key in ("first", "second", "difference")]
    return "".join(f"{cell:>12}" for cell in cells) + (
        f"{interval:>24}{difference['p_value']:>12.4f}"
    )


def _number(value: float) -> str:
    return f"{value:.4f}"
