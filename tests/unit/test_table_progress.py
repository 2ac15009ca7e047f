"""Time left: learned from what is done, and from the logs of what runs."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from persona_agents.table.progress import Progress, duration, share_of_training

LOG = "10:00 | time:4s total_exs:320 total_steps:{} epochs:{} time_left:8s\n"


def job(system: str, seed: int, target=("steps", 100.0)):
    """What Progress looks at of a job."""
    return SimpleNamespace(
        folder=f"{system}/{seed}",
        name=f"{system} {seed}",
        task=SimpleNamespace(name="cpc"),
        system=SimpleNamespace(name=system, train=system != "anchor"),
        steps=(SimpleNamespace(name="train"),),
        target=target,
    )


def progress(done: dict, waiting=(), slots=1) -> Progress:
    """`done` has the seconds of finished jobs."""
    seconds = {one.folder: took for one, took in done.items()}
    return Progress([*done, *waiting], waiting, lambda j, step: seconds.get(j.folder), slots)


class Job(SimpleNamespace):
    __hash__ = object.__hash__


def hashable(one):
    return Job(**vars(one))


class TestTimeLeft:
    def test_nothing_is_known(self):
        assert progress({}, [job("a", 1)]).left([]) is None

    def test_by_the_same_system_else_by_all(self):
        done = {hashable(job("a", 1)): 100.0, hashable(job("b", 1)): 300.0}
        assert progress(done, [job("a", 2)]).left([]) == 100
        assert progress(done, [job("c", 1)]).left([]) == 200
        assert progress(done, [job("a", 2), job("b", 2)], slots=2).left([]) == 200

    def test_an_anchor_says_nothing_of_a_training(self):
        done = {hashable(job("anchor", 0)): 5.0}
        assert progress(done, [job("a", 1)]).left([]) is None

    def test_a_running_training_by_its_log(self, tmp_path):
        log = tmp_path / "log"
        log.write_text(LOG.format(25, 0.1), encoding="utf-8")
        one = job("a", 1)
        running = SimpleNamespace(job=one, steps=one.steps, log=log, begun=time.time() - 50)
        left = progress({}, [job("a", 2)]).left([running])
        assert left == pytest.approx(150 + 200, abs=3)

    def test_a_running_job_is_never_over_time(self, tmp_path):
        done = {hashable(job("a", 1)): 100.0}
        one = job("a", 2)
        running = SimpleNamespace(
            job=one, steps=one.steps, log=tmp_path / "no", begun=time.time() - 500
        )
        assert progress(done).left([running]) == 0


class TestShare:
    def test_steps_and_epochs(self, tmp_path):
        log = tmp_path / "log"
        log.write_text(
            "num_epochs: 20.0\n" + LOG.format(5, 0.5) + LOG.format(10, 1.5), encoding="utf-8"
        )
        assert share_of_training(log, ("steps", 40.0)) == 0.25
        assert share_of_training(log, ("epochs", 3.0)) == 0.5
        assert share_of_training(log, ("steps", 1.0)) == 1.0

    def test_unknown(self, tmp_path):
        assert share_of_training(tmp_path / "no", ("steps", 1.0)) is None
        (tmp_path / "log").write_text("num_epochs: 20.0\n", encoding="utf-8")
        assert share_of_training(tmp_path / "log", ("epochs", 1.0)) is None


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "under a minute"), (89 * 60, "89 min"), (90 * 60, "1 h 30 min"), (7199, "2 h 0 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
