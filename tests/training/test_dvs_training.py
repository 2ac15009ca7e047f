"""Trainings of DVS2S: two phases, what is reported, interruption, the variants, wrong options."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainLoop, TrainModel

from persona_agents.agents.dvs2s import DVS2SAgent
from persona_agents.errors import PersonaAgentsError

SMALL = {
    "model": "persona_agents:dvs2s",
    "embedding_size": 12,
    "hidden_size": 12,
    "batchsize": 8,
    "seed": 3,
    "dvs_top_k": 20,
    "dvs_pretrain_epochs": 2,
    "num_epochs": 4,
    "verbose": False,
    "skip_generation": True,
    **tiny.QUIET,
}
REPORTED = ("ppl", "ppl_full", "t_size", "t_recall", "predictor_loss", "reward")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    some = tiny.samples("en")[:80:2]
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), some, some[:16], some[16:32])


def train(corpus, model_file, **settings):
    return TrainModel.main(model_file=str(model_file), **{**SMALL, **corpus, **settings})


@pytest.fixture(scope="module")
def joint(corpus, tmp_path_factory):
    """(model file, report on valid, phases of the batches, trainstats) of a joint training."""
    model_file, phases = tmp_path_factory.mktemp("joint") / "model", []
    step = DVS2SAgent.train_step

    def spy(self, batch):
        result = step(self, batch)
        phases.append(self.scheduler.phase)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DVS2SAgent, "train_step", spy)
        valid, _ = train(corpus, model_file)
    stats = json.loads(Path(f"{model_file}.trainstats").read_text(encoding="utf-8"))
    return model_file, valid, phases, stats


class TestPhases:
    def test_both_in_one_run(self, joint):
        _, _, phases, _ = joint
        assert phases == [1] * 10 + [2] * 10

    def test_what_is_reported(self, joint):
        _, valid, _, stats = joint
        for report in (valid, *stats["train_reports"], *stats["valid_reports"]):
            for name in REPORTED:
                value = report[name]
                assert math.isfinite(getattr(value, "value", lambda v=value: v)()), name
        assert stats["train_reports"][-1]["phase"] == 2
        assert math.isfinite(stats["train_reports"][-1]["baseline"])
        assert stats["best_valid"] == min(report["ppl"] for report in stats["valid_reports"])

    def test_sizes(self, joint):
        """By the rule where T is chosen for a reply; sampled in joint training."""
        model_file, valid, _, stats = joint
        agent = create_agent_from_model_file(
            str(model_file), {**tiny.QUIET, "skip_generation": False}
        )
        assert valid["t_size"].value() == agent.dict.n_function + 20
        assert stats["train_reports"][0]["t_size"] == agent.dict.n_function + 20
        assert stats["train_reports"][-1]["t_size"] != agent.dict.n_function + 20
        assert 0 < valid["t_recall"].value() < 1

    def test_the_perplexities_are_those_of_a_plain_softmax(self, joint, corpus):
        """Within T and words(Y), and on the full vocabulary; recall and reward by counting."""
        model_file, *_ = joint
        report = EvalModel.main(
            model_file=str(model_file),
            datatype="test",
            skip_generation=True,
            **corpus,
            **tiny.QUIET,
        )
        agent = create_agent_from_model_file(
            str(model_file), {**tiny.QUIET, "skip_generation": False}
        )
        model, first = agent.module.eval(), agent.dict.n_function
        nll, full, tokens, found, gold, rewards = 0.0, 0.0, 0, 0, 0, []
        for persona, query, response in tiny.samples("en")[:80:2][16:32]:
            _, (observation,) = tiny.observe(agent, [(persona, query, response)], "eval_labels")
            batch = agent.batchify([observation])
            with torch.no_grad():
                encoded = model.encoder(batch.text_vec)
                scores = model.decode_forced(encoded, batch.label_vec)[0][0].double()
                top = set(model.word_logits(encoded)[0].topk(20).indices.tolist())
            ys = batch.label_vec[0].tolist()
            chosen = set(range(first)) | {first + c for c in top}
            columns = sorted(chosen | set(ys))
            own = 0.0
            for row, word in zip(scores, ys):
                own += row[columns].logsumexp(0).item() - row[word].item()
                full += row.logsumexp(0).item() - row[word].item()
            content = {word for word in ys if word >= first}
            nll, tokens = nll + own, tokens + len(ys)
            found, gold = found + len(content & chosen), gold + len(content)
            rewards.append((-own - 5.0 * sum(word not in chosen for word in ys)) / len(ys))
        assert report["ppl"].value() == pytest.approx(math.exp(nll / tokens), rel=1e-4)
        assert report["ppl_full"].value() == pytest.approx(math.exp(full / tokens), rel=1e-4)
        assert report["t_recall"].value() == pytest.approx(found / gold)
        assert report["reward"].value() == pytest.approx(sum(rewards) / len(rewards), rel=1e-4)

    def test_a_reply_tells_its_vocabulary(self, joint):
        model_file, *_ = joint
        agent = create_agent_from_model_file(
            str(model_file), {**tiny.QUIET, "skip_generation": False}
        )
        some = tiny.samples("en")[:40:10]
        known = tiny.act(agent, some, "eval_labels")
        for answer, (_, _, response) in zip(known, some):
            assert answer["vocabulary_size"] == agent.dict.n_function + 20
            content = {
                word for word in agent.dict.tokenize(response) if word in agent.dict.words
            } - set(list(agent.dict.tok2ind)[: agent.dict.n_function])
            assert set(answer["missed_words"]) <= content
            json.dumps({key: answer[key] for key in ("vocabulary_size", "missed_words")})
        assert any(answer["missed_words"] for answer in known)
        assert "missed_words" not in tiny.act(agent, some)[0]
        assert tiny.act(agent, some)[0]["vocabulary_size"] == agent.dict.n_function + 20


class Stopped(Exception):
    """Stands for whatever ends a training from outside."""


@pytest.mark.parametrize("stop_after", [7, 17])  # in phase 1 and in phase 2
def test_an_interrupted_training_ends_alike(corpus, joint, tmp_path, monkeypatch, stop_after):
    model_file, _, _, whole = joint
    get_time = TrainLoop._get_time

    def stop(loop, world):
        if loop._train_steps > stop_after:
            raise Stopped
        return get_time(loop, world)

    with monkeypatch.context() as patch:
        patch.setattr(TrainLoop, "_get_time", stop)
        with pytest.raises(Stopped):
            train(corpus, tmp_path / "model")
    train(corpus, tmp_path / "model")
    for suffix in ("", ".checkpoint"):
        a, b = (
            torch.load(f"{path}{suffix}", weights_only=True)
            for path in (model_file, tmp_path / "model")
        )
        assert all(torch.equal(a["model"][name], b["model"][name]) for name in a["model"])
        assert a["baseline"] == b["baseline"] and a["lr_scheduler"] == b["lr_scheduler"]
    parts = json.loads((tmp_path / "model.trainstats").read_text(encoding="utf-8"))
    assert [r["ppl"] for r in parts["valid_reports"]] == [r["ppl"] for r in whole["valid_reports"]]


def test_scripted_perplexities_halve_the_rate_and_end_a_training(corpus, tmp_path, monkeypatch):
    """Through the train loop: of 12 epochs, a rise in the 3rd, two more in the 5th and 6th."""
    script, rates = iter([9.0, 8.0, 8.5, 8.4, 8.6, 8.7, 8.7, 1.0, 1.0]), []
    receive = DVS2SAgent.receive_metrics

    def scripted(self, metrics):
        receive(self, {**metrics, "ppl": next(script)})
        rates.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(DVS2SAgent, "receive_metrics", scripted)
    settings = {"num_epochs": 12, "dvs_pretrain_epochs": 1}
    train(corpus, tmp_path / "model", **settings)
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    before = torch.load(tmp_path / "model.checkpoint", weights_only=True)
    train(corpus, tmp_path / "model", **settings)  # given again, it does not go on
    after = torch.load(tmp_path / "model.checkpoint", weights_only=True)
    assert all(torch.equal(before["model"][name], after["model"][name]) for name in after["model"])
    assert len(rates) <= 7


class TestVariants:
    @pytest.mark.parametrize("mode", ["separate", "none"])
    def test_one_phase(self, corpus, tmp_path, mode):
        valid, _ = train(corpus, tmp_path / "model", dvs=mode, num_epochs=2)
        stats = json.loads((tmp_path / "model.trainstats").read_text(encoding="utf-8"))
        assert all("phase" not in report for report in stats["train_reports"])
        if mode == "none":
            assert valid["ppl"].value() == valid["ppl_full"].value()
            assert "t_size" not in valid
        else:
            assert valid["ppl"].value() < valid["ppl_full"].value()
            assert valid["t_recall"].value() > 0
        with pytest.raises(PersonaAgentsError, match="--dvs"):
            other = "joint" if mode == "none" else "none"
            create_agent_from_model_file(str(tmp_path / "model"), {"dvs": other, **tiny.QUIET})

    def test_separate_is_phase_one_of_joint(self, corpus, joint, tmp_path):
        _, _, _, whole = joint
        train(corpus, tmp_path / "model", dvs="separate", num_epochs=3)
        stats = json.loads((tmp_path / "model.trainstats").read_text(encoding="utf-8"))
        perplexities = [
            [report["ppl"] for report in run["valid_reports"]] for run in (whole, stats)
        ]
        assert perplexities[0][:2] == perplexities[1][:2]
        assert perplexities[0][2] != perplexities[1][2]

    def test_negatives_by_frequency(self, corpus, tmp_path):
        valid, _ = train(corpus, tmp_path / "model", dvs="separate", num_epochs=1, dvs_negatives=30)
        assert valid["t_recall"].value() > 0

    def test_threshold(self, corpus, joint):
        model_file, *_ = joint
        sizes = [
            EvalModel.main(
                model_file=str(model_file),
                dvs_threshold=threshold,
                skip_generation=True,
                **corpus,
                **tiny.QUIET,
            )["t_size"].value()
            for threshold in (0.0, 0.02, 0.2, 1.0)
        ]
        agent = create_agent_from_model_file(
            str(model_file), {**tiny.QUIET, "skip_generation": False}
        )
        assert sizes[0] == len(agent.dict) and sizes[-1] == agent.dict.n_function
        assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4


@pytest.mark.parametrize(
    "settings, named",
    [
        ({"bert_model": "auto"}, "--bert-model"),
        ({"dvs_kappa": 0.0}, "--dvs-kappa"),
        ({"dvs_samples": 0}, "--dvs-samples"),
        ({"dvs_top_k": -1}, "--dvs-top-k"),
        ({"dvs_threshold": 1.5}, "--dvs-threshold"),
        ({"hidden_size": 0}, "--hidden-size"),
        ({"optimizer": "adam"}, "--optimizer"),
        ({"lr_scheduler": "linear"}, "--lr-scheduler"),
        ({"warmup_ratio": 0.2}, "--warmup-ratio"),
        ({"dict_tokenizer": "gpt2"}, "--dict-tokenizer"),
    ],
)
def test_wrong_options_are_named(corpus, tmp_path, settings, named):
    with pytest.raises(PersonaAgentsError, match=f"^{named} "):
        train(corpus, tmp_path / "model", **settings)
    assert not list(tmp_path.iterdir())
