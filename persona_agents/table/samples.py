"""Replies of all systems side by side, for a few samples (the paper's Table 7)."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass

from persona_agents.errors import PersonaAgentsError
from persona_agents.table.config import Config, Task
from persona_agents.table.render import tex
from persona_agents.table.results import Results


@dataclass(frozen=True)
class Sample:
    """A sample of the main test set, and what each system replies to it."""

    number: int
    persona: tuple[str, ...]
    query: str
    gold: str
    replies: dict[str, str]  # by the system's label


def collect(results: Results, task: Task) -> list[Sample]:
    """
    The samples that the YAML file chooses; of a system with several seeds the first one replies.

    A number of samples is drawn at random with a fixed seed, so that nobody picks them.

    :raises PersonaAgentsError: for a sample that the test set does not have
    """
    test_set = task.test_sets[0].name
    columns, seen = {}, set()
    for job in results.jobs_of(task):
        if job.system.name not in seen and job.system.kind != "anchor":
            seen.add(job.system.name)
            columns[job.system.label] = results.replies(task, test_set, job)
    if not columns:
        return []
    asked = next(iter(columns.values()))
    return [
        Sample(
            number,
            asked[number].persona,
            asked[number].query,
            (asked[number].references or ("",))[0],
            {label: replies[number].text for label, replies in columns.items()},
        )
        for number in _numbers(results.config, task, len(asked))
    ]


def _numbers(config: Config, task: Task, count: int) -> list[int]:
    chosen = config.samples
    if isinstance(chosen, int):
        return sorted(random.Random(0).sample(range(count), min(chosen, count)))
    for number in chosen:
        if number >= count:
            raise PersonaAgentsError(
                f"{config.path}: samples: there is no sample {number}; test set "
                f"{task.test_sets[0].name} of {task.name} has 0 to {count - 1}."
            )
    return list(chosen)


def markdown(samples: list[Sample]) -> str:
    """The samples one below the other, each as a small table."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")

    parts = []
    for sample in samples:
        rows = {"persona": "<br>".join(map(cell, sample.persona)), "query": cell(sample.query)}
        rows["gold"] = cell(sample.gold)
        rows.update({f"**{cell(name)}**": cell(text) for name, text in sample.replies.items()})
        lines = [f"| sample {sample.number} | |", "|---|---|"]
        parts.append("\n".join([*lines, *(f"| {name} | {text} |" for name, text in rows.items())]))
    return "\n\n".join(parts) + "\n"


def latex(samples: list[Sample], caption: str) -> str:
    """One table; needs booktabs."""
    lines = [
        r"\begin{table}",
        rf"\caption{{{tex(caption)}}}",
        r"\begin{tabular}{lp{0.7\linewidth}}",
    ]
    for sample in samples:
        rows = {"persona": " ".join(sample.persona), "query": sample.query, "gold": sample.gold}
        lines.append(r"\toprule" if sample is samples[0] else r"\midrule")
        lines += [rf"{name} & {tex(text)} \\" for name, text in rows.items()]
        lines += [
            rf"\textbf{{{tex(name)}}} & {tex(text)} \\" for name, text in sample.replies.items()
        ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def csv_text(samples: list[Sample]) -> str:
    """A line a sample, a column a system."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    names = list(samples[0].replies)
    writer.writerow(["sample", "persona", "query", "gold", *names])
    for s in samples:
        replies = (s.replies[name] for name in names)
        writer.writerow([s.number, " | ".join(s.persona), s.query, s.gold, *replies])
    return output.getvalue()
