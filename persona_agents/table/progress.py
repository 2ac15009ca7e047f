"""What is done, what runs, and how long the rest will take."""

from __future__ import annotations

import re
import time
from pathlib import Path
from statistics import mean

EVERY = 30  # seconds between two lines of a run in which nothing else happens
ENOUGH = 0.05  # share of a training that lets its length be told
READ = 8192  # bytes at the end of a training's log
COUNTS = {"steps": r"total_steps:(\d+)", "epochs": r"\bepochs:([\d.]+)"}


def share_of_training(log: Path, target: tuple[str, float]) -> float | None:
    """How far a training is by its log, 0 to 1; None if it does not say."""
    kind, amount = target
    try:
        with open(log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - READ))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    counts = re.findall(COUNTS[kind], text)
    return min(1.0, float(counts[-1]) / amount) if counts else None


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(40), duration(600), duration(7500)
    ('under a minute', '10 min', '2 h 5 min')
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return "under a minute"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """
    Prints lines about a run.

    :param jobs: all jobs of the table
    :param waiting: those that are not finished
    :param seconds: how long a finished step of a job took, None if it is not finished
    :param slots: how many jobs run side by side
    """

    def __init__(self, jobs, waiting, seconds, slots: int):
        self.count, self.slots, self.seconds = len(jobs), slots, seconds
        self.waiting = list(waiting)
        self.done = [job for job in jobs if job not in self.waiting]
        self.failures = 0
        self.took = {job.folder: self._took(job) for job in self.done}
        self.shown = time.time()
        if self.done:
            self.say(f"{len(self.done)} jobs were done before and are left as they are")

    def _took(self, job) -> float:
        return sum(self.seconds(job, step) or 0 for step in job.steps)

    def say(self, text: str) -> None:
        """Print a line with the time."""
        print(f"{time.strftime('%H:%M:%S')} | {text}", flush=True)
        self.shown = time.time()

    def started(self, one) -> None:
        """A job has begun its next step."""
        if one.job in self.waiting:
            self.waiting.remove(one.job)
        self.say(f"{one.job.name}: {one.steps[0].name}")

    def finished(self, job) -> None:
        """A job is at its end."""
        self.done.append(job)
        self.took[job.folder] = self._took(job)
        self.say(f"{job.name}: done. {self._counts()}")

    def failed(self, why: str) -> None:
        """A job came to no end."""
        self.failures += 1
        self.say(f"{why}\nThe other jobs go on. {self._counts()}")

    def _counts(self) -> str:
        failed = f", {self.failures} failed" if self.failures else ""
        return f"{len(self.done)} of {self.count} jobs done{failed}"

    def show(self, running) -> None:
        """Now and then a line about what runs and what is left."""
        if time.time() - self.shown < EVERY or not running:
            return
        now = []
        for one in running:
            share = self._share(one)
            now.append(
                f"{one.job.name}: {one.steps[0].name}" + ("" if share is None else f" {share:.0%}")
            )
        left = self.left(running)
        rest = "" if left is None else f"; about {duration(left)} left"
        self.say("; ".join([self._counts(), *now]) + rest)

    def _share(self, one) -> float | None:
        if one.steps[0].name != "train":
            return None
        return share_of_training(one.log, one.job.target)

    def left(self, running) -> float | None:
        """
        Seconds until the end as far as can be told: None before anything is known.

        A job is expected to take as long as those of the same system and task did, or else as all
        others of its kind; a training that runs is measured by its own log.
        """
        known: dict[tuple, list[float]] = {}

        def learn(job, seconds):
            for key in ((job.task.name, job.system.name), (job.system.train,)):
                known.setdefault(key, []).append(seconds)

        for job in self.done:
            learn(job, self.took[job.folder])
        whole = {}
        for one in running:
            share = self._share(one)
            if share is not None and share >= ENOUGH:
                whole[one.job.folder] = (time.time() - one.begun) / share
                learn(one.job, whole[one.job.folder])

        def expected(job):
            for key in ((job.task.name, job.system.name), (job.system.train,)):
                if key in known:
                    return mean(known[key])
            return None

        rest = [expected(job) for job in self.waiting]
        for one in running:
            total = whole.get(one.job.folder) or expected(one.job)
            before = self._took(one.job)  # its earlier steps
            rest.append(
                None if total is None else max(0.0, total - before - (time.time() - one.begun))
            )
        return None if None in rest else sum(rest) / self.slots
