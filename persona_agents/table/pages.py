"""Writes what readers look at: tables.md, each table's files, the pictures, results.json."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from persona_agents.table import pictures, plan, render, samples
from persona_agents.table.config import Config, Task
from persona_agents.table.files import read_json, write_json, write_text
from persona_agents.table.results import Results, curve
from persona_agents.table.tables import Tables

WRITERS = {"md": render.markdown, "tex": render.latex, "csv": render.csv_text}


def write(results: Results, jobs, runner) -> dict:
    """
    Write all pages of a table; returns what results.json holds.

    :param results: results.Results
    :param jobs: all jobs of the table
    :param runner: runner.Runner, for its failures
    """
    folder, config = results.folder, results.config
    (folder / "tables").mkdir(exist_ok=True)
    entries = [_job(folder, job) for job in results.jobs]
    parts = [_head(config, results)]
    if len(_versions(entries)) > 1:
        parts.append(
            "**Not all rows were made with the same versions**: see the steps in results.json.\n"
        )
    if runner.failures:
        lines = [f"- {failure}" for failure in runner.failures]
        parts.append("**Failed, and left out of all means:**\n\n" + "\n".join(lines) + "\n")
    tables = []
    for task in config.tasks:
        if not results.jobs_of(task):
            continue
        parts.append(f"## {task.name}\n")
        for table in Tables(results, task).all():
            tables.append(table)
            parts.append(_table(folder, table))
        parts.append(_curves(results, task))
        parts.append(_samples(results, task))
    parts.append(_signatures(results))
    write_text(folder / "tables.md", "\n".join(filter(None, parts)))
    found = {
        "tables": [dataclasses.asdict(table) for table in tables],
        "jobs": entries,
        "failed": [failure.job.folder for failure in runner.failures],
    }
    write_json(folder / "results.json", found)
    return found


def _versions(entries) -> set[str]:
    """The different sets of versions that the jobs' steps were done with."""
    steps = [step for entry in entries for step in entry["steps"].values() if step]
    return {json.dumps(step.get("versions"), sort_keys=True) for step in steps}


def _table(folder: Path, table: render.Table) -> str:
    for ending, writer in WRITERS.items():
        write_text(folder / "tables" / f"{table.name}.{ending}", writer(table))
    text = render.markdown(table)
    picture = f"tables/{table.name}.png"
    drawn = table.name.endswith("-systems") and pictures.available()
    if drawn and pictures.bars(table, folder / picture):
        text += f"\n![{table.caption}]({picture})\n"
    return text


def _curves(results: Results, task: Task) -> str:
    trainings: dict[str, list] = {}
    for job in results.jobs_of(task):
        if job.system.train:
            points = curve(results.folder / job.folder)
            trainings.setdefault(job.system.label, []).append(points)
    name = f"{plan.slug(task.name)}-curves.png"
    title = f"Trainings. {task.name}"
    if not pictures.available() or not pictures.curves(
        trainings, title, results.folder / "tables" / name
    ):
        return ""
    return f"![{title}](tables/{name})\n"


def _samples(results: Results, task: Task) -> str:
    found = samples.collect(results, task)
    if not found:
        return ""
    how = (
        "drawn at random with a fixed seed" if isinstance(results.config.samples, int) else "chosen"
    )
    caption = f"Replies side by side (as in the paper's Table 7). {task.name}, samples {how}"
    name = results.folder / "tables" / f"{plan.slug(task.name)}-samples"
    text = f"**{caption}**\n\n{samples.markdown(found)}"
    write_text(name.with_name(f"{name.name}.md"), text)
    write_text(name.with_name(f"{name.name}.tex"), samples.latex(found, caption))
    write_text(name.with_name(f"{name.name}.csv"), samples.csv_text(found))
    return text


def _head(config: Config, results: Results) -> str:
    lines = ["# Tables", ""]
    for system in config.systems:
        agent = f"`-o {system.preset}`" if system.preset else f"`-m {system.model}`"
        what = [agent, *_options(system.options)]
        if system.train:
            ((kind, amount),) = system.budget.items()
            what.append(f"{amount:,} {kind}, seeds {', '.join(map(str, system.seeds))}")
        lines.append(f"- {system.label}: {', '.join(what)}")
    if config.options:
        lines.append(f"- all trainings: {', '.join(_options(config.options))}")
    lines += [
        "",
        "Each row's folder holds its commands (job.json), logs, replies and reports;",
        "`sh repeat.sh NEW_FOLDER` in it repeats the row from nothing.",
    ]
    return "\n".join(lines) + "\n"


def _options(options) -> list[str]:
    return [
        f"without `{name}`" if value is None else f"`{name} {value}`"
        for name, value in options.items()
    ]


def _signatures(results: Results) -> str:
    lines = ["## How the metrics were computed", ""]
    for task in results.config.tasks:
        for test_set in task.test_sets[:1]:
            for result in list(results.of(task, test_set.name).values())[:1]:
                lines += [
                    f"- {task.name}, {name}: `{signature}`"
                    for name, signature in result.scores[0].signatures.items()
                ]
    return "\n".join(lines) + "\n"


def _job(folder: Path, job: plan.Job) -> dict:
    """A finished job for results.json: its numbers, times and learning curve."""
    path = folder / job.folder
    steps = {}
    for step in job.steps:
        marker = read_json(path / "done" / f"{plan.slug(step.name)}.json")
        steps[step.name] = marker
    stats = read_json(path / "model.trainstats") or {}
    return {
        "folder": job.folder,
        "system": job.system.name,
        "seed": job.seed if job.system.train else None,
        "steps": steps,
        "training_seconds": stats.get("train_time"),
        "training_steps": stats.get("train_steps"),
        "training_epochs": stats.get("total_epochs"),
        "curve": curve(path),
    }
