"""The mends of ParlAI, shown on ParlAI's own transformer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainLoop, TrainModel

from persona_agents import compat

EXAMPLES = 8
BATCH = 4
SIZES = {
    "transformer/generator": {"embedding_size": 8, "ffn_size": 8, "n_layers": 1},
    "seq2seq": {"embeddingsize": 8, "hiddensize": 8},
}


@pytest.fixture
def train(tmp_path):
    """Train a tiny ParlAI agent on eight turns; returns (statistics, model file)."""
    data = tmp_path / "turns.txt"
    data.write_text(
        "".join(
            f"text:who are you {i}\tlabels:i am {i}\tepisode_done:True\n" for i in range(EXAMPLES)
        ),
        encoding="utf-8",
    )
    model_file = tmp_path / "model"

    def run(model="transformer/generator", **options):
        TrainModel.main(
            **{
                "model": model,
                "model_file": str(model_file),
                "task": "fromfile:parlaiformat",
                "fromfile_datapath": str(data),
                "fromfile_datatype_extension": False,
                "datatype": "train:ordered",
                "batchsize": BATCH,
                "validation_every_n_epochs": 1,
                "validation_metric": "ppl",
                "skip_generation": True,
                "learningrate": 0.01,
                "optimizer": "adam",
                "num_epochs": 3,
                "dict_tokenizer": "space",
                "loglevel": "error",
                **SIZES[model],
                **options,
            }
        )
        return json.loads(Path(f"{model_file}.trainstats").read_text()), model_file

    return run


def weights(model_file):
    return torch.load(model_file, weights_only=False)["model"]


def same_weights(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("model", ["transformer/generator", "seq2seq"])
def test_agents_of_parlai_train_and_load_again(train, model, tmp_path):
    """The default scheduler builds on today's torch, and checkpoints can be read."""
    stats, model_file = train(model, num_epochs=1)
    assert stats["train_steps"] == EXAMPLES / BATCH
    report = EvalModel.main(
        task="fromfile:parlaiformat",
        fromfile_datapath=str(tmp_path / "turns.txt"),
        fromfile_datatype_extension=False,
        model_file=str(model_file),
        batchsize=BATCH,
        skip_generation=True,
    )
    assert math.isclose(float(report["ppl"]), stats["final_valid_report"]["ppl"], rel_tol=1e-4)


def test_learning_rate_still_falls_on_a_plateau():
    from parlai.nn.lr_scheduler import ReduceOnPlateauLRScheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = ReduceOnPlateauLRScheduler(optimizer, 1, 0.5, -1, 1e-4)
    for _ in range(3):
        scheduler.valid_step({"loss": 1.0})
    assert optimizer.param_groups[0]["lr"] == 0.5


class TestLastValidation:
    def test_last_epoch_can_win(self, train):
        stats, _ = train(num_epochs=3)
        perplexities = [report["ppl"] for report in stats["valid_reports"]]
        assert len(perplexities) == 3
        assert perplexities[2] == min(perplexities) == stats["best_valid"]
        assert stats["final_valid_report"]["ppl"] == pytest.approx(perplexities[2], rel=1e-5)

    def test_unchanged_last_epoch_does_not_replace_the_best(self, train):
        stats, _ = train(num_epochs=2, learningrate=0.0)
        assert len(stats["valid_reports"]) == 2
        assert stats["impatience"] == 1

    @pytest.mark.parametrize(
        "limit, steps",
        [
            ({"max_train_steps": 3}, 3),
            # the schedule raises in the middle of step 4, which is then not counted
            ({"max_train_steps": 4, "lr_scheduler": "linear"}, 3),
        ],
    )
    def test_limit_in_steps(self, train, limit, steps):
        stats, _ = train(
            num_epochs=-1, validation_every_n_epochs=-1, validation_every_n_steps=2, **limit
        )
        assert [report["train_steps"] for report in stats["valid_reports"]] == [2, steps]

    def test_nothing_is_validated_twice(self, train):
        """After a validation on the very last step there is nothing left to validate."""
        stats, _ = train(num_epochs=2, validation_every_n_epochs=-1, validation_every_n_steps=2)
        assert [report["train_steps"] for report in stats["valid_reports"]] == [2, 4]

    def test_no_validation_where_none_was_asked_for(self, train):
        stats, model_file = train(num_epochs=1, validation_every_n_epochs=-1)
        assert stats["valid_reports"] == []
        assert model_file.exists()


class TestBestModelKept:
    def test_resumed_run_without_improvement(self, train):
        _, model_file = train(num_epochs=2, save_after_valid=True)
        best = weights(model_file)
        for path in (model_file, f"{model_file}.checkpoint"):
            states = torch.load(path)
            stats = json.loads(states["train_progress"]["stats"])
            stats["best_valid"] = 0.5  # cannot be reached
            states["train_progress"]["stats"] = json.dumps(stats)
            torch.save(states, path)
        stats, _ = train(num_epochs=3, save_after_valid=True)
        assert [report["total_epochs"] for report in stats["valid_reports"]] == [1, 2, 3]
        assert same_weights(best, weights(model_file))
        assert not same_weights(best, weights(f"{model_file}.checkpoint"))
        # In the end that model is evaluated, and not the checkpoint that was resumed.
        second = stats["valid_reports"][1]["ppl"]
        assert stats["final_valid_report"]["ppl"] == pytest.approx(second, rel=1e-5)
        assert stats["final_valid_report"]["ppl"] > 1.01 * stats["valid_reports"][2]["ppl"]

    def test_resumed_run_with_improvement(self, train):
        before, model_file = train(num_epochs=2, save_after_valid=True)
        best = weights(model_file)
        stats, _ = train(num_epochs=4, save_after_valid=True)
        assert stats["best_valid"] < before["best_valid"]
        assert not same_weights(best, weights(model_file))

    @pytest.mark.parametrize("save_after_valid", [True, False])
    def test_finished_command_started_again(self, train, save_after_valid):
        options = {"num_epochs": 2, "save_after_valid": save_after_valid}
        before, model_file = train(**options)
        best = weights(model_file)
        after, _ = train(**options)
        assert same_weights(best, weights(model_file))
        assert after["total_epochs"] == before["total_epochs"]
        assert after["train_steps"] == before["train_steps"]
        assert after["valid_reports"] == before["valid_reports"]
        assert after["final_valid_report"]["ppl"] == before["final_valid_report"]["ppl"]

    def test_finished_by_patience(self, train):
        options = {"num_epochs": 9, "validation_patience": 1, "learningrate": 0.0}
        before, model_file = train(**options)
        assert before["total_epochs"] < 9
        best = weights(model_file)
        after, _ = train(**options)
        assert after["train_steps"] == before["train_steps"]
        assert same_weights(best, weights(model_file))


class Interrupted(Exception):
    pass


class TestAtomicWrites:
    def test_opt(self, tmp_path):
        path = tmp_path / "model.opt"
        Opt({"task": "cpc"}).save(str(path))
        with pytest.raises(TypeError):  # found out by json in the middle of writing
            Opt({"task": "cpc", "odd": object()}).save(str(path))
        assert Opt.load(str(path)) == {"task": "cpc"}
        assert [file.name for file in tmp_path.iterdir()] == ["model.opt"]

    def test_dictionary(self, tmp_path):
        path = tmp_path / "model.dict"
        dictionary = DictionaryAgent(Opt({"dict_tokenizer": "space"}))
        dictionary.add_to_dict(["one", "two"])
        dictionary.save(str(path))
        before = path.read_text(encoding="utf-8")

        class Breaks(dict):
            def __getitem__(self, token):
                if token == "two":
                    raise Interrupted
                return super().__getitem__(token)

        dictionary.add_to_dict(["three"])
        dictionary.freq = Breaks(dictionary.freq)
        with pytest.raises(Interrupted):
            dictionary.save(str(path), sort=False)
        assert path.read_text(encoding="utf-8") == before

    def test_train_statistics(self, train):
        _, model_file = train(num_epochs=1)
        path = Path(f"{model_file}.trainstats")
        before = path.read_text()

        class Loop:  # what is written last cannot be written
            def __getattr__(self, name):
                return 1

        loop = Loop()
        loop.opt = {"model_file": str(model_file)}
        loop.train_time = type("Timer", (), {"time": lambda self: 1.0})()
        loop.train_reports = [object()]
        loop.final_valid_report = loop.final_test_report = loop.final_extra_valid_report = {}
        with pytest.raises(TypeError):
            TrainLoop._save_train_stats(loop)
        assert path.read_text() == before

    def test_appending_still_appends(self, tmp_path):
        from parlai.core.dict import PathManager

        path = tmp_path / "log.txt"
        for text in ("a", "b"):
            with PathManager.open(str(path), "a") as file:
                file.write(text)
        assert path.read_text() == "ab"


def test_installing_again_changes_nothing():
    train_steps = TrainLoop.train_steps
    compat.install()
    assert TrainLoop.train_steps is train_steps


def test_inverse_square_root_can_be_resumed(train):
    """ParlAI's rates were numpy's numbers, which torch reads from no checkpoint."""
    options = {"lr_scheduler": "invsqrt", "warmup_updates": 2, "invsqrt_lr_decay_gamma": 2}
    _, model_file = train(**options)
    states = torch.load(model_file, weights_only=True)
    (group,) = states["optimizer"]["param_groups"]
    assert type(group["lr"]) is float and 0 < group["lr"] < 0.01
    train(**options, num_epochs=4)
    assert torch.load(model_file, weights_only=True)["number_training_updates"] == 8
