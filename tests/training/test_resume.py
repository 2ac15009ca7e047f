"""A training that is interrupted and resumed is the training that was not interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from parlai.core.worlds import DynamicBatchWorld
from parlai.scripts.train_model import TrainModel

from persona_agents.agents.hcm import HCMAgent
from tests.systems import SYSTEMS
from tests.tiny import SIZES, samples, write_corpus

PARLAI_SIZES = {"embedding_size": 8, "ffn_size": 8, "n_layers": 1, "n_heads": 2}
INVERSE_SQUARE_ROOT = {"lr_scheduler": "invsqrt", "warmup_updates": 5, "invsqrt_lr_decay_gamma": 5}
STEPS = 20
EXAMPLES = 32


class Stopped(Exception):
    """Stands for whatever ends a training from outside."""


@pytest.fixture
def task(tmp_path):
    return write_corpus(tmp_path / "data", samples("zh")[:EXAMPLES], samples("zh", "valid")[:8])


@pytest.fixture
def train(tmp_path, task, monkeypatch):
    """Train a tiny agent for 20 steps, 5 of them between validations; `stop_after` interrupts it."""

    def run(name, model="persona_agents:hcm", stop_after=None, **options):
        from parlai.scripts import train_model

        model_file = tmp_path / name
        sizes = SIZES
        if model == "transformer/generator":
            sizes = {**PARLAI_SIZES, "optimizer": "adam", "skip_generation": True}
        elif model != "persona_agents:hcm":
            settings = SYSTEMS[model.split(":")[1]].options()
            sizes = {name: value for name, value in settings.items() if value is not None}
        steps = train_model.TrainLoop._get_time

        def stop(loop, world):
            if loop._train_steps > stop_after:
                raise Stopped
            return steps(loop, world)

        with monkeypatch.context() as patch:
            if stop_after is not None:
                patch.setattr(train_model.TrainLoop, "_get_time", stop)
            try:
                TrainModel.main(
                    **{
                        "model": model,
                        "model_file": str(model_file),
                        "batchsize": 4,
                        "dropout": 0.3,
                        "seed": 7,
                        "learningrate": 0.01,
                        "validation_metric": "ppl",
                        "validation_every_n_steps": 5,
                        "validation_every_n_epochs": -1,
                        "save_after_valid": True,
                        "num_epochs": STEPS * 4 / EXAMPLES,
                        "loglevel": "error",
                        "verbose": False,
                        **({} if "task" in options else task),
                        **sizes,
                        **options,
                    }
                )
                assert stop_after is None
            except Stopped:
                assert stop_after is not None
        return model_file

    return run


def states(path) -> dict:
    return torch.load(path, weights_only=True)


def stats(model_file) -> dict:
    return json.loads(Path(f"{model_file}.trainstats").read_text(encoding="utf-8"))


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


LAST = {"validation_every_n_steps": 10}  # of 20 steps: .checkpoint holds step 10, then step 20


@pytest.mark.parametrize(
    "model, more",
    [
        ("persona_agents:hcm", {}),
        ("persona_agents:hcm", {"lr_scheduler": "cosine", "max_train_steps": STEPS}),
        ("transformer/generator", {}),  # draws its data at random
        ("transformer/generator", {"lr_scheduler": "cosine", "max_train_steps": STEPS}),
        ("transformer/generator", {"lr_scheduler": "none"}),
        ("persona_agents:s2sa", {}),
        ("persona_agents:pgn", {"coverage": True}),
        ("persona_agents:transformer", INVERSE_SQUARE_ROOT),
    ],
)
def test_twenty_steps_are_ten_and_ten(train, model, more):
    """Weight by weight, with dropout, also through ParlAI's own agent."""
    if model == "transformer/generator":
        more = {"datatype": "train", **more}
    whole = train("whole", model, **LAST, **more)
    parts = train("parts", model, stop_after=13, **LAST, **more)
    halfway = states(f"{parts}.checkpoint")
    assert halfway["number_training_updates"] == 10
    train("parts", model, **LAST, **more)

    expected, resumed = states(f"{whole}.checkpoint"), states(f"{parts}.checkpoint")
    assert not same(halfway["model"], resumed["model"])
    assert same(expected["model"], resumed["model"])
    assert resumed["number_training_updates"] == STEPS
    for one, other in zip(
        expected["optimizer"]["param_groups"], resumed["optimizer"]["param_groups"]
    ):
        assert one == other
    for one, other in zip(
        expected["optimizer"]["state"].values(), resumed["optimizer"]["state"].values()
    ):
        assert same(one, other)
    assert same(states(whole)["model"], states(parts)["model"]), "the best model"
    a, b = stats(whole), stats(parts)
    assert a["best_valid"] == b["best_valid"] and a["impatience"] == b["impatience"]
    assert [report["ppl"] for report in a["valid_reports"]] == [
        report["ppl"] for report in b["valid_reports"]
    ]
    assert a["final_test_report"]["ppl"] == b["final_test_report"]["ppl"]


def test_validations_fall_where_they_would_have(train):
    """ParlAI counts steps since the last validation from zero after a resume."""
    parts = train("parts", stop_after=13)
    train("parts")
    assert [report["train_steps"] for report in stats(parts)["valid_reports"]] == [5, 10, 15, 20]


def test_without_checkpoints_the_best_model_is_resumed(train):
    """Weights, optimiser and counters are those of one moment, whatever else was trained since."""
    settings = {"save_after_valid": False}
    whole = train("whole", **settings)
    parts = train("parts", stop_after=13, **settings)
    assert not Path(f"{parts}.checkpoint").exists()
    train("parts", **settings)
    assert same(states(whole)["model"], states(parts)["model"])
    assert stats(parts)["total_epochs"] == stats(whole)["total_epochs"]


def test_limit_is_raised_after_the_end(train):
    """The best model of a finished run is trained on from where it was, not from the end."""
    model_file = train("one", save_after_valid=False, num_epochs=1)
    assert states(model_file)["number_training_updates"] == 8
    train("one", save_after_valid=False, num_epochs=2)
    assert stats(model_file)["train_steps"] == 16


def test_rates_of_both_groups_go_on(train, monkeypatch):
    monkeypatch.setattr(
        HCMAgent, "pretrained_parameters", lambda agent: list(agent.module.bert.parameters())
    )
    settings = {"num_epochs": -1, "max_train_steps": 4, "validation_every_n_steps": 2}

    def rates(model_file):
        groups = states(f"{model_file}.checkpoint")["optimizer"]["param_groups"]
        return [group["lr"] for group in groups]

    parts = train("parts", stop_after=3, **settings)
    new, old = rates(parts)
    assert 0 < old < new and states(f"{parts}.checkpoint")["number_training_updates"] == 2
    assert old / new == pytest.approx(7e-6 / 0.01)
    train("parts", **settings)
    assert rates(parts) == [0.0, 0.0], "the schedule ends after four steps"


@pytest.mark.parametrize("kind", ["several turns", "dynamic batching"])
def test_data_restarts_but_counters_go_on(train, kind, tmp_path, monkeypatch):
    if kind == "several turns":
        data = tmp_path / "dialogues.txt"
        turns = "text:who is {0}\tlabels:i am {0}\ntext:and {0}\tlabels:me\tepisode_done:True\n"
        data.write_text("".join(turns.format(i) for i in range(16)), encoding="utf-8")
        more = {
            "task": "fromfile:parlaiformat",
            "fromfile_datapath": str(data),
            "fromfile_datatype_extension": False,
        }
    else:
        more = {"dynamic_batching": "full", "eval_dynamic_batching": "off", "text_truncate": 40}
        # ParlAI vectorises 1021 samples before its first step
        small = property(lambda world: 13, lambda world, size: None)
        monkeypatch.setattr(DynamicBatchWorld, "_BUFFER_SIZE", small, raising=False)
    more.update(num_epochs=-1, max_train_steps=20, validation_every_n_steps=10)
    whole, parts = train("whole", **more), train("parts", stop_after=13, **more)
    train("parts", **more)
    expected, resumed = states(f"{whole}.checkpoint"), states(f"{parts}.checkpoint")
    assert resumed["number_training_updates"] == expected["number_training_updates"] == 20
    assert resumed["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    for one, other in zip(
        expected["optimizer"]["state"].values(), resumed["optimizer"]["state"].values()
    ):
        assert one["step"] == other["step"]
    assert len(stats(parts)["valid_reports"]) == 2
    assert stats(parts)["best_valid"] == min(r["ppl"] for r in stats(parts)["valid_reports"])


class TestSeed:
    @pytest.mark.parametrize("model", ["persona_agents:hcm", "transformer/generator"])
    def test_same_seed_same_weights(self, train, model):
        short = {"num_epochs": 0.5, "validation_every_n_steps": 2}
        one, two, other = (
            train(name, model, seed=seed, **short)
            for name, seed in (("one", 1), ("two", 1), ("other", 2))
        )
        assert same(states(one)["model"], states(two)["model"])
        assert not same(states(one)["model"], states(other)["model"])

    @pytest.mark.parametrize("model", ["persona_agents:hcm", "transformer/generator"])
    def test_same_seed_same_weights_before_training(self, train, model):
        short = {"num_epochs": 0.1, "learningrate": 0.0, "weight_decay": 0.0}
        one, two, other = (
            train(name, model, seed=seed, **short)
            for name, seed in (("one", 1), ("two", 1), ("other", 2))
        )
        assert same(states(one)["model"], states(two)["model"])
        assert not same(states(one)["model"], states(other)["model"])

    def test_numpy_is_seeded_too(self, train, monkeypatch):
        import numpy
        from parlai.scripts import train_model

        drawn = []
        time = train_model.TrainLoop._get_time

        def draw(loop, world):
            drawn.append(numpy.random.rand())
            return time(loop, world)

        monkeypatch.setattr(train_model.TrainLoop, "_get_time", draw)
        for name, seed in (("one", 1), ("two", 1), ("other", 2)):
            train(name, "transformer/generator", seed=seed, num_epochs=0.1)
        assert drawn[0] == drawn[1] != drawn[2]
