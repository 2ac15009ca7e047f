"""Which epoch is the best, when a training stops, and what one epoch shows."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from parlai.scripts import train_model
from parlai.scripts.train_model import TrainModel

from persona_agents.agents.hcm import HCMAgent
from persona_agents.errors import PersonaAgentsError
from tests.tiny import SIZES, samples, write_corpus

EPOCHS = 4


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Train for four epochs whose validations report the given values; returns the loop."""
    task = write_corpus(tmp_path / "data", samples("zh")[:4])

    def train(metric, values=(), model="transformer/generator", **options):
        if model == "transformer/generator":
            sizes = {"embedding_size": 8, "ffn_size": 8, "n_layers": 1, "n_heads": 2}
            sizes = {**sizes, "optimizer": "adam", "skip_generation": True}
        else:
            sizes = {**SIZES, "validation_generate": True}
        reports = iter(values)
        if values:
            monkeypatch.setattr(
                train_model.TrainLoop,
                "_run_eval",
                lambda self, worlds, opt, fold, *_, **__: {"exs": 4, metric: next(reports, 0.0)},
            )
        loops = []
        train = train_model.TrainLoop.train
        monkeypatch.setattr(
            train_model.TrainLoop, "train", lambda self: loops.append(self) or train(self)
        )
        settings = {
            "model": model,
            "model_file": str(tmp_path / "model"),
            "batchsize": 4,
            "num_epochs": EPOCHS,
            "validation_every_n_epochs": 1,
            "loglevel": "error",
            "validation_metric": metric,
            "validation_patience": 0,
            **task,
            **sizes,
            **options,
        }
        TrainModel.main(**settings)
        return loops[0]

    return train


def validations(loop) -> int:
    return len(loop.valid_reports)


class TestCutoff:
    @pytest.mark.parametrize("metric", ["exs", "corpus_bleu_4", "task/ltps"])
    def test_metric_above_one(self, run, metric):
        assert validations(run(metric, [5.0, 6.0, 7.0, 8.0])) == EPOCHS

    @pytest.mark.parametrize("metric", ["loss", "ppl", "mean_rank", "task/loss"])
    def test_loss_below_one(self, run, metric):
        assert validations(run(metric, [0.9, 0.8, 0.7, 0.6])) == EPOCHS

    @pytest.mark.parametrize("metric", ["accuracy", "token_acc", "task/f1", "hits@1"])
    def test_all_right(self, run, metric):
        """Nothing is better than 1.0, so training ends there."""
        assert validations(run(metric, [0.5, 1.0, 1.0, 1.0])) == 2

    @pytest.mark.parametrize("metric, cutoff", [("exs", 6.0), ("ppl", 3.0), ("loss", 1.0)])
    def test_given_by_the_user(self, run, metric, cutoff):
        values = [5.0, 6.0, 7.0] if metric == "exs" else [4.0, 1.0, 0.5]
        assert validations(run(metric, values, validation_cutoff=cutoff)) == 2

    def test_our_agent(self, run):
        assert validations(run("bleu", [5.0, 6.0, 7.0, 8.0], "persona_agents:hcm")) == EPOCHS


class TestMode:
    @pytest.mark.parametrize("metric", ["ppl", "task/ppl", "loss", "char_ppl"])
    def test_less_is_better(self, run, metric):
        assert run(metric, [4.0, 2.0, 3.0, 5.0]).best_valid == 2.0

    @pytest.mark.parametrize("metric", ["token_acc", "task/accuracy", "rouge_L"])
    def test_more_is_better(self, run, metric):
        assert run(metric, [0.2, 0.4, 0.3, 0.1]).best_valid == 0.4

    def test_our_agent(self, run):
        assert run("token_acc", [0.2, 0.4, 0.3, 0.1], "persona_agents:hcm").best_valid == 0.4

    def test_given_by_the_user(self, run):
        loop = run("exs", [4.0, 2.0, 3.0, 5.0], validation_metric_mode="min")
        assert loop.best_valid == 2.0

    def test_nan_loses(self, run):
        assert run("ppl", [math.nan, 3.0, math.nan, 4.0]).best_valid == 3.0


class TestPatience:
    @pytest.mark.parametrize("metric, values", [("ppl", [2.0, 3, 3, 3]), ("f1", [0.5, 0.4, 0.4])])
    def test_stops_after_that_many_without_improvement(self, run, metric, values):
        assert validations(run(metric, values, validation_patience=2)) == 3

    def test_off(self, run):
        assert validations(run("ppl", [2.0, 3.0, 3.0, 3.0])) == EPOCHS

    def test_our_default_is_off(self, run):
        loop = run("ppl", [2.0, 3.0, 3.0, 3.0], "persona_agents:hcm")
        assert loop.opt["validation_patience"] == 0 and validations(loop) == EPOCHS

    def test_best_weights_are_kept(self, run, tmp_path):
        loop = run("ppl", [4.0, 2.0, 3.0, 5.0], save_after_valid=True)
        assert loop.best_valid == 2.0
        assert torch.load(tmp_path / "model")["number_training_updates"] == 2
        assert torch.load(tmp_path / "model.checkpoint")["number_training_updates"] == EPOCHS


def test_metric_that_is_not_reported(run):
    """ParlAI's default metric needs replies, which --skip-generation leaves out."""
    with pytest.raises(PersonaAgentsError, match="accuracy.*does not report.*token_acc"):
        run("accuracy")


@pytest.mark.parametrize("batchsize", [4, 6])
def test_one_epoch_shows_every_sample_once(tmp_path, monkeypatch, batchsize):
    """Through the real loop, two epochs in different orders; the last batch may reach beyond."""
    chosen = samples("zh")[:20]
    shown = []
    train_step = HCMAgent.train_step

    def watch(self, batch):
        shown.extend(self.dict.vec2txt(row.tolist()) for row in batch.text_vec)
        return train_step(self, batch)

    monkeypatch.setattr(HCMAgent, "train_step", watch)
    settings = {
        "model": "persona_agents:hcm",
        "model_file": str(tmp_path / "model"),
        **SIZES,
        "batchsize": batchsize,
        "num_epochs": 2,
        "validation_every_n_epochs": -1,
        "validation_max_exs": 1,
        "short_final_eval": True,
        "label_truncate": 4,
        "loglevel": "error",
        **write_corpus(tmp_path / "data", chosen),
    }
    TrainModel.main(**settings)
    first, second, beyond = shown[:20], shown[20:40], shown[40:]
    assert len(Counter(first)) == 20 and Counter(first) == Counter(second)
    assert first != second
    assert len(beyond) == -40 % batchsize
    assert not Path(f"{tmp_path / 'model'}.checkpoint").exists()
