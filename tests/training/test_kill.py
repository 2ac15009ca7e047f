"""SIGKILL at any moment: a training goes on from its last checkpoint and ends as if undisturbed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, subprocess_environment
from tests.tiny import SIZES, samples, write_corpus

SETTINGS = {
    "model": "persona_agents:hcm",
    **SIZES,
    "batchsize": 4,
    "num_epochs": 2,
    "dropout": 0.3,
    "seed": 3,
    "learningrate": 0.01,
    "validation_every_n_epochs": 0.25,  # of 8 steps, so 8 validations
    "save_after_valid": True,
    "label_truncate": 8,
    "loglevel": "error",
}
PARLAI = {
    "model": "transformer/generator",
    "embedding_size": 8,
    "ffn_size": 8,
    "n_layers": 1,
    "n_heads": 2,
    "n_decoder_layers": None,
    "n_encoder_layers": None,
    "bert_model": None,
    "optimizer": "adam",
    "datatype": "train",
    "skip_generation": True,
    "validation_metric": "ppl",
    "label_truncate": None,
}


def settings(folder: Path, **more) -> dict:
    task = write_corpus(folder / "data", samples("zh")[:32], samples("zh", "valid")[:8])
    chosen = {**SETTINGS, **task, **more, "model_file": str(folder / "model")}
    return {name: value for name, value in chosen.items() if value is not None}


def killed_in_write(number: int, moment: str, name: str | None = None) -> None:
    """
    Make this process kill itself at its write number `number`, of all files or those named `name`.

    `before` and `after` the file appears under its name, or in the `middle` of its bytes, when half
    of them are on disk.
    """
    count = 0
    replace = os.replace

    def counted_replace(source, target):
        nonlocal count
        count += name in (None, os.path.basename(target))
        if count == number:
            if moment == "middle":
                content = Path(source).read_bytes()
                Path(source).write_bytes(content[: len(content) // 2])
            if moment == "after":
                replace(source, target)
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = counted_replace


def _train(options, journal, aim) -> None:
    """In a process of its own: train, and write down the step at which it begins."""
    from parlai.scripts.train_model import TrainLoop, TrainModel

    if aim is not None:
        killed_in_write(*aim)
    train_steps = TrainLoop.train_steps

    def noted_train_steps(loop):
        with open(journal, "a", encoding="utf-8") as file:
            file.write(f"{loop._train_steps}\n")
        yield from train_steps(loop)

    TrainLoop.train_steps = noted_train_steps
    TrainModel.main(**options)


def run(options, aim=None, seconds=None) -> bool:
    """Train until the end or until killed; whether it came to its end."""
    import parlai.agents.transformer.generator
    import parlai.scripts.train_model  # noqa: F401

    import persona_agents.agents.hcm  # noqa: F401

    journal = f"{options['model_file']}.journal"
    process = multiprocessing.get_context("fork").Process(
        target=_train, args=(options, journal, aim)
    )
    process.start()
    process.join(seconds)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "it failed by itself"
    return process.exitcode == 0


def begun(options) -> int:
    """The step at which the last run began."""
    path = Path(f"{options['model_file']}.journal")
    return int(path.read_text(encoding="utf-8").split()[-1]) if path.exists() else 0


def saved(options) -> tuple[int, float]:
    """(step of the newest checkpoint, perplexity of the best model so far)."""
    step, best = 0, float("inf")
    for suffix in ("", ".checkpoint"):
        path = options["model_file"] + suffix
        if os.path.exists(path):
            states = torch.load(path, weights_only=True)
            stats = json.loads(states["train_progress"]["stats"])
            assert states["number_training_updates"] == stats["train_steps"]
            step = max(step, stats["train_steps"])
            best = min(best, stats["best_valid"])
    return step, best


def disturbed(options, kills) -> int:
    """Train under kills until the end; the number of kills that hit."""
    hits, last = 0, (0, float("inf"))
    for kill in [*kills, {}]:
        ended = run(options, **kill)
        if hits or last[0]:
            assert begun(options) >= last[0], "it goes on from its last checkpoint"
        now = saved(options)
        assert now[0] >= last[0] and now[1] <= last[1], "nothing is lost"
        last = now
        hits += not ended
        if ended:
            break
    assert ended
    return hits


def same_end(one: dict, other: dict) -> None:
    def best_and_last(options):
        files = [
            torch.load(options["model_file"] + s, weights_only=True) for s in ("", ".checkpoint")
        ]
        # Killed right after its last best model was saved, a run is complete without a checkpoint
        # of that step.
        return files[0]["model"], max(files, key=lambda f: f["number_training_updates"])["model"]

    for a, b in zip(best_and_last(one), best_and_last(other)):
        assert all(torch.equal(a[name], b[name]) for name in a)
    a, b = (
        json.loads(Path(f"{options['model_file']}.trainstats").read_text(encoding="utf-8"))
        for options in (one, other)
    )
    for name in ("best_valid", "total_epochs", "train_steps", "impatience"):
        assert a[name] == b[name]
    assert [r["ppl"] for r in a["valid_reports"]] == [r["ppl"] for r in b["valid_reports"]]
    assert a["final_test_report"]["ppl"] == b["final_test_report"]["ppl"]


@pytest.fixture(
    scope="module",
    params=["hcm", pytest.param("ParlAI's transformer", marks=pytest.mark.slow)],
)
def undisturbed(request, tmp_path_factory):
    more = {} if request.param == "hcm" else PARLAI
    options = settings(tmp_path_factory.mktemp("whole"), **more)
    start = time.monotonic()
    assert run(options)
    return options, more, time.monotonic() - start


def test_ten_kills(undisturbed, tmp_path):
    """Aimed into the writes, and at random moments."""
    whole, more, seconds = undisturbed
    options = settings(tmp_path, **more)
    writes = [
        (1, "middle", "model.dict"),
        (1, "before", "model"),  # options and dictionary are there, weights are not
        (1, "after", "model"),  # weights are there, statistics are not
        (1, "before", "model.checkpoint"),  # the best model is newer than the checkpoint
        (1, "middle", "model.checkpoint"),
        (1, "after", "model.checkpoint"),
        (1, "middle", "model.trainstats"),
        (1, "before", "model.checkpoint.trainstats"),
    ]
    kills = [{"aim": write} for write in writes]
    chosen = random.Random(5)
    kills += [{"seconds": chosen.uniform(0.2, 0.5) * seconds} for _ in range(2)]
    assert disturbed(options, kills) >= len(writes)
    same_end(whole, options)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "middle", "after"])
def test_kill_in_each_write(undisturbed, tmp_path, moment):
    """In a training of two validations."""
    short = {**undisturbed[1], "num_epochs": 0.5}
    whole = settings(_made(tmp_path / "whole"), **short)
    assert run(whole)
    number, hits = 0, 1
    while hits:
        number += 1
        options = settings(_made(tmp_path / str(number)), **short)
        hits = disturbed(options, [{"aim": (number, moment)}])
        same_end(whole, options)
    assert number > 16, "each validation writes at least 4 files twice"


@pytest.mark.slow
def test_ten_kills_of_the_command(tmp_path):
    """`parlai train_model`, killed at random moments from outside."""
    whole, options = settings(_made(tmp_path / "a")), settings(_made(tmp_path / "b"))
    start = time.monotonic()
    assert _command(whole, None) == 0
    seconds = time.monotonic() - start
    chosen, last, hits = random.Random(8), (0, float("inf")), 0
    while hits < 10:
        # the first seconds are imports; a run that has ended is started again all the same
        code = _command(options, chosen.uniform(0.4, 0.98) * seconds)
        now = saved(options)
        assert now[0] >= last[0] and now[1] <= last[1]
        last = now
        assert code in (0, -signal.SIGKILL)
        hits += 1
    assert _command(options, None) == 0
    same_end(whole, options)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _command(options: dict, seconds: float | None) -> int:
    arguments = [
        part
        for name, value in options.items()
        for part in ("--" + name.replace("_", "-"), str(value))
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "from parlai.__main__ import main; main()", "train_model"]
        + arguments,
        cwd=ROOT,
        env=subprocess_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
