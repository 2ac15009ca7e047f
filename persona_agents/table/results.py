"""What the jobs came to: each system's values by seed, and whether two systems differ."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from persona_agents.metrics import Difference, Reply, Scores, compare
from persona_agents.scripts.persona_score_files import align
from persona_agents.table import plan
from persona_agents.table.config import Config, System, Task, slug
from persona_agents.table.files import read_json
from persona_agents.table.scoring import Scoring

# of ParlAI's report; what needs the model
FROM_REPORT = ("ppl", "char_ppl", "token_acc")


@dataclass
class SetResult:
    """
    What one system scored on one test set.

    Attributes:
        system: the system.
        seeds: of the trainings that came to their end.
        values: for each seed the values by their names.
        scores: for each seed the scores with each reply's statistics, in one order of samples.
    """

    system: System
    seeds: list[int] = field(default_factory=list)
    values: list[dict[str, float]] = field(default_factory=list)
    scores: list[Scores] = field(default_factory=list)

    def mean(self, key: str) -> float | None:
        """Mean over the seeds; None if a seed has no such value."""
        found = self._values(key)
        return statistics.fmean(found) if found else None

    def deviation(self, key: str) -> float | None:
        """Standard deviation over the seeds (n − 1); None for fewer than two."""
        found = self._values(key)
        if not found or len(found) < 2 or not all(map(math.isfinite, found)):
            return None
        return statistics.stdev(found)

    def _values(self, key: str) -> list[float]:
        found = [values.get(key) for values in self.values]
        return [] if None in found else found


class Results:
    """
    Reads the folder of a table.

    :param folder: the table's folder
    :param jobs: its jobs
    :param failed: the folders of jobs that came to no end
    """

    def __init__(self, config: Config, folder: Path, jobs, failed, scoring: Scoring):
        self.config, self.folder, self.scoring = config, folder, scoring
        self.jobs = [job for job in jobs if job.folder not in failed]
        self._orders: dict[tuple[str, str], list] = {}  # the samples of a test set
        self._found: dict[tuple[str, str], dict[str, SetResult]] = {}

    def jobs_of(self, task: Task) -> list[plan.Job]:
        """The finished jobs of a task."""
        return [job for job in self.jobs if job.task.name == task.name]

    def of(self, task: Task, test_set: str) -> dict[str, SetResult]:
        """By system's name, what it scored on a test set; systems without a finished job lack."""
        key = task.name, test_set
        if key not in self._found:
            self._found[key] = self._read(task, test_set)
        return self._found[key]

    def _read(self, task: Task, test_set: str) -> dict[str, SetResult]:
        found: dict[str, SetResult] = {}
        for job in self.jobs_of(task):
            path = self.folder / job.folder / slug(test_set)
            scores = self.scoring.of(task.name, path, self._order(task, test_set))
            result = found.setdefault(job.system.name, SetResult(job.system))
            result.seeds.append(job.seed)
            result.scores.append(scores)
            result.values.append({**reported(path / plan.REPORT), **known(scores.values)})
        return found

    def _order(self, task: Task, test_set: str) -> list[Reply]:
        """The samples of a test set in the order that all jobs' replies are put in."""
        key = task.name, test_set
        if key not in self._orders:
            first = self.jobs_of(task)[0]
            self._orders[key] = self.scoring.replies(self.folder / first.folder / slug(test_set))
        return self._orders[key]

    def replies(self, task: Task, test_set: str, job: plan.Job) -> list[Reply]:
        """A job's replies in the order of samples that all share."""
        path = self.folder / job.folder / slug(test_set)
        order, file = self._order(task, test_set), str(path / plan.REPLIES)
        return align(order, self.scoring.replies(path), file)

    def swapped(self, task: Task) -> dict[str, SetResult]:
        """By system's name, what other samples' personas change on the main test set."""
        found: dict[str, SetResult] = {}
        for job in self.jobs_of(task):
            if plan.SWAPPED not in job.sets:
                continue
            folder = self.folder / job.folder
            own, other = folder / job.sets[0], folder / plan.SWAPPED
            before, after = self.scoring.replies(own), self.scoring.replies(other)
            given = self.scoring.swapped(task.name, other)
            away = self.scoring.against(task.name, other, before)
            values = {f"swapped_{k}": v for k, v in reported(other / plan.REPORT).items()}
            values.update({f"swapped_{k}": v for k, v in known(given.values).items()})
            values.update({f"own_{k}": v for k, v in known(away.values).items()})
            changed = sum(a.text != b.text for a, b in zip(before, after))
            values["changed"] = changed / len(before)
            values.update(reported(own / plan.REPORT))
            if "ppl" in values and "swapped_ppl" in values:
                values["ppl_ratio"] = values["swapped_ppl"] / values["ppl"]
            result = found.setdefault(job.system.name, SetResult(job.system))
            result.seeds.append(job.seed)
            result.values.append(values)
        return found


def known(values: dict) -> dict[str, float]:
    """Values that there are."""
    return {name: value for name, value in values.items() if value is not None}


def reported(path: Path) -> dict[str, float]:
    """What ParlAI's report says of the model."""
    report = read_json(path)["report"]
    return {name: float(report[name]) for name in FROM_REPORT if report.get(name) is not None}


def mean_over_seeds(metric):
    """
    A metric of several replies to each sample, one a seed: the mean of the seeds' values.

    A sample's statistics are a tuple with those of each seed. A resample draws seeds with
    replacement too, so that it tells how far values differ between trainings as well.
    """

    class SeedMean:
        key, outputs = metric.key, metric.outputs
        random = np.random.default_rng(0)

        @staticmethod
        def total(columns):
            return [metric.total(column) for column in zip(*columns)]

        @staticmethod
        def values(totals):
            return tuple(np.mean([metric.values(total) for total in totals], axis=0))

        @classmethod
        def resample(cls, columns, weights):
            values = np.stack([metric.resample(column, weights) for column in zip(*columns)])
            seeds, draws, _ = values.shape  # (S, B, outputs)
            drawn = cls.random.integers(seeds, size=(seeds, draws))
            return values[drawn, np.arange(draws)].mean(axis=0)

    return SeedMean


def differences(first: SetResult, second: SetResult, outputs) -> dict[str, Difference]:
    """
    How the second system differs from the first in some outputs, by paired bootstrap.

    Test samples are drawn, the same ones for both, and for each system seeds, whose mean is its
    value. A system with a single seed shows nothing of how much its trainings differ.
    """
    metrics = [m for m in first.scores[0].statistics if set(m.outputs) & set(outputs)]
    kinds = {metric: mean_over_seeds(metric) for metric in metrics}
    found = compare(*(_joined(result.scores, kinds) for result in (first, second)))
    return {output: found[output] for output in outputs if output in found}


def _joined(scores: list[Scores], kinds: dict) -> Scores:
    """The seeds' scores as one."""
    columns = {}
    for metric, kind in kinds.items():
        together = zip(*(one.statistics[metric] for one in scores))
        columns[kind] = [None if None in entries else entries for entries in together]
    return Scores({}, scores[0].signatures, scores[0].counts, columns)


def curve(folder: Path) -> list[dict[str, float]]:
    """The validations of a training: epochs, steps, perplexity."""
    stats = read_json(folder / "model.trainstats") or {}
    return [
        {"epochs": report["total_epochs"], "steps": report["train_steps"], "ppl": report["ppl"]}
        for report in stats.get("valid_reports", [])
        if report.get("ppl") is not None
    ]
