"""Runs jobs as sub-processes, side by side, and goes on where an earlier run was stopped.

What is done is told by files alone: each finished step leaves a marker in its job's folder, written
under another name first. A run that is killed at any moment therefore goes on with the steps that
lack their marker, and a training among them with its last checkpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import portalocker

from persona_agents.errors import PersonaAgentsError
from persona_agents.table import plan, record
from persona_agents.table.files import read_json, write_json, write_text
from persona_agents.table.progress import Progress

LAST_LINES = 12  # of a failed command's log are shown
LOG_TAIL = 20_000  # bytes that are read for them
POLL = 0.2  # seconds


@contextlib.contextmanager
def locked(folder: Path):
    """
    Hold the folder's lock; raises PersonaAgentsError if another run has it.

    Its file is yielded: the commands that are started inherit it, so one that outlives its killed
    starter still keeps others off.
    """
    path = folder / "lock"
    lock = portalocker.Lock(path, "a+", fail_when_locked=True)
    try:
        file = lock.acquire()
    except portalocker.exceptions.LockException:
        owner = path.read_text(encoding="utf-8").strip()
        raise PersonaAgentsError(
            f"{folder} is in use by another parlai persona_table ({owner}), or by a command that it "
            "started. Wait for its end, or name another folder."
        ) from None
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        yield file
    finally:
        lock.release()


def environment(threads: int) -> dict[str, str]:
    """What the commands' environment has beside the user's: a number may depend on it."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # looked up here, since a fork should do little


def _die_with_parent() -> None:
    """In the child: be killed when the starter is (Linux; elsewhere the lock keeps others off)."""
    if _PRCTL is not None:
        _PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass
class Failure:
    """A job that came to no end."""

    job: plan.Job
    step: str
    status: int
    log: Path
    last_lines: str

    def __str__(self) -> str:
        how = f"exit status {self.status}" if self.status >= 0 else f"signal {-self.status}"
        return f"{self.job.name}: {self.step} failed ({how}), see {self.log}"

    def at_length(self) -> str:
        """The same with the end of the log."""
        return "\n    ".join([f"{self}. Its end:", *self.last_lines.splitlines()])


@dataclass
class Running:
    """A job that is at one of its steps."""

    job: plan.Job
    steps: list[plan.Step]  # still to do, the present one first
    process: subprocess.Popen = field(repr=False)
    log: Path
    begun: float


class Runner:
    """
    Does the jobs of a table.

    :param folder: the table's folder, whose lock is held
    :param lock: that lock's file
    :param threads: CPU threads of each command
    :param keep_models: whether a model stays once it is evaluated
    """

    parlai = (sys.executable, "-m", "parlai")  # how the command is started

    def __init__(self, folder: Path, lock, threads: int, keep_models: bool):
        self.folder, self.lock, self.keep_models = folder, lock, keep_models
        self.environment = environment(threads)
        self.versions = record.versions()
        self.failures: list[Failure] = []

    # -- what is done ----------------------------------------------------------------------------

    def path(self, job: plan.Job) -> Path:
        """The job's folder."""
        return self.folder / job.folder

    def _marker(self, job: plan.Job, step: plan.Step) -> Path:
        return self.path(job) / "done" / f"{plan.slug(step.name)}.json"

    def _has_marker(self, job: plan.Job, step: plan.Step) -> bool:
        marker = read_json(self._marker(job, step)) or {}
        now = {"command": step.shell(), "environment": self.environment}
        return all(marker.get(key) == value for key, value in now.items())

    def _is_done(self, job: plan.Job, step: plan.Step) -> bool:
        there = all((self.path(job) / name).exists() for name in step.outputs)
        return there and self._has_marker(job, step)

    def open_steps(self, job: plan.Job) -> list[plan.Step]:
        """The job's steps from the first one that is not done; none when it is finished."""
        for number, step in enumerate(job.steps):
            if self._is_done(job, step):
                continue
            if step.name == "train" and self._has_marker(job, step):
                # its model was deleted, which nobody misses unless there is more to evaluate
                later = job.steps[number + 1 :]
                if all(self._is_done(job, other) for other in later):
                    return []
            return list(job.steps[number:])
        return []

    def check(self, jobs) -> None:
        """Raise PersonaAgentsError for a model that was trained with other options."""
        for job in jobs:
            known = read_json(self.path(job) / "job.json")
            before = known and known["commands"].get("train")
            begun = any(self.path(job).glob("model*"))
            if not begun or not before or not job.system.train:
                continue
            then = (before, known["environment"])
            now = (job.steps[0].shell(), self.environment)
            for one, other in zip(then, now):
                if one != other:
                    raise PersonaAgentsError(
                        f"{self.path(job)} holds a training with other options. Then: {one}. Now: "
                        f"{other}. Remove that folder to train anew, or name another folder."
                    )

    # -- running ---------------------------------------------------------------------------------

    def run(self, jobs, side_by_side: int) -> None:
        """
        Do all that is not done; jobs that fail are found in `failures`.

        :param jobs: list of plan.Job
        :param int side_by_side: how many of them at a time
        """
        self.check(jobs)
        for job in jobs:
            self._describe(job)
        waiting = [(job, steps) for job in jobs if (steps := self.open_steps(job))]
        progress = Progress(jobs, [job for job, _ in waiting], self._seconds, side_by_side)
        running: list[Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < side_by_side:
                    running.append(self._start(*waiting.pop(0)))
                    progress.started(running[-1])
                time.sleep(POLL)
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    following = self._finish(one)
                    if following is not None:
                        running.append(following)
                        progress.started(following)
                    elif self.failures and self.failures[-1].job is one.job:
                        progress.failed(self.failures[-1].at_length())
                    else:
                        progress.finished(one.job)
                progress.show(running)
        finally:
            for one in running:
                one.process.kill()
            for one in running:
                one.process.wait()

    def _describe(self, job: plan.Job) -> None:
        """Write down how a job is done, whether or not something is left to do."""
        folder = self.path(job)
        for name in ("done", "logs", *job.sets):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_text(folder / "job.json", plan.describe(job, self.environment) + "\n")
        write_text(folder / "repeat.sh", plan.script(job, self.environment))

    def _start(self, job: plan.Job, steps: list[plan.Step]) -> Running:
        folder, step = self.path(job), steps[0]
        self._marker(job, step).unlink(missing_ok=True)
        if step.name == "train" and not any(map(Path.exists, checkpoints(folder))):
            for left in folder.glob("model*"):  # ParlAI would take them for a training's beginning
                left.unlink()
        log = folder / "logs" / f"{plan.slug(step.name)}.txt"
        command = [*self.parlai, *step.command(folder.resolve())]
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                pass_fds=(self.lock.fileno(),),
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it takes no lock
            )
        return Running(job, steps, process, log, time.time())

    def _finish(self, one: Running) -> Running | None:
        """Take note of a step that has ended; returns the job's next one, if there is one."""
        step, folder, status = one.steps[0], self.path(one.job), one.process.returncode
        missing = [name for name in step.outputs if not (folder / name).exists()]
        if status != 0 or missing:
            lines = last_lines(one.log)
            if status == 0:
                lines += f"\nIt ended well, but did not write {', '.join(missing)}."
            self.failures.append(Failure(one.job, step.name, status, one.log, lines))
            return None
        write_json(
            self._marker(one.job, step),
            {
                "command": step.shell(),
                "environment": self.environment,
                "versions": self.versions,
                "seconds": round(time.time() - one.begun, 1),
                "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            },
        )
        if step.name == "train":  # it will not be gone on with
            for left in folder.glob("model.checkpoint*"):
                left.unlink()
        if len(one.steps) > 1:
            return self._start(one.job, one.steps[1:])
        if not self.keep_models:
            (folder / "model").unlink(missing_ok=True)
        return None

    def _seconds(self, job: plan.Job, step: plan.Step) -> float | None:
        """How long a finished step took."""
        marker = read_json(self._marker(job, step))
        return None if marker is None else marker["seconds"]


def checkpoints(folder: Path) -> list[Path]:
    """The files that a training goes on from."""
    return [folder / "model", folder / "model.checkpoint"]


def last_lines(log: Path) -> str:
    """The end of a log: its last lines that say something."""
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LOG_TAIL))
        text = file.read().decode("utf-8", "replace")
    return "\n".join([line for line in text.splitlines() if line.strip()][-LAST_LINES:])
