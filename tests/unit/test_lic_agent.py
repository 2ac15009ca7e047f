"""What LIC is trained on: the reply's loss and, beside it, that of its sources."""

from __future__ import annotations

import gpt_models
import pytest
import tiny

from persona_agents.errors import PersonaAgentsError

EIGHT = tiny.samples("zh")[:80:10]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), EIGHT)


@pytest.fixture
def make(corpus, tmp_path):
    def build(**settings):
        given = {**gpt_models.settings(), "model": "persona_agents:lic", "seed": 1}
        given = {**given, "dropout": 0.0, "max_train_steps": 100, "num_epochs": -1, **settings}
        return tiny.new_agent(**corpus, **given, model_file=str(tmp_path / "model"))

    return build


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_loss_is_the_weighted_sum(make, weight):
    agent = make(source_lm_weight=weight)
    batch = agent.batchify(tiny.observe(agent, EIGHT)[1])
    agent.model.train()
    loss = agent.compute_loss(batch)
    log_p, _, _, source_loss = agent.model(batch.text_vec, True, ys=batch.label_vec)
    reply = -log_p.squeeze(2)[batch.label_vec.ne(agent.NULL_IDX)].mean()
    assert loss.item() == pytest.approx((reply + weight * source_loss).item())
    assert source_loss.item() > 1


def test_the_source_loss_falls_and_is_reported_apart(make):
    agent = make(learningrate=1e-2)
    first = tiny.act(agent, EIGHT, "labels")[0]["metrics"]
    tiny.train_steps(agent, [EIGHT] * 20)
    agent.reset_metrics()
    last = tiny.act(agent, EIGHT, "labels")[0]["metrics"]
    assert last["source_loss"].value() < first["source_loss"].value() - 1
    (answer,) = tiny.act(agent, EIGHT[:1], "eval_labels")
    assert "ppl" in answer["metrics"] and "source_loss" not in answer["metrics"]


def test_weight_zero_leaves_it_out(make):
    agent = make(source_lm_weight=0.0)
    (answer,) = tiny.act(agent, EIGHT[:1], "labels")
    assert "source_loss" not in answer["metrics"]
    assert all(parameter.grad is not None for parameter in agent.model.parameters())


def test_a_batch_without_any_source_trains(make):
    agent = make()
    batch = [tiny.Sample((), "", "你好。"), tiny.Sample((), "", "好。")]
    losses = tiny.train_steps(agent, [batch])
    assert 0 < losses[0] < 20


def test_negative_weights_are_refused(make):
    with pytest.raises(PersonaAgentsError, match="--source-lm-weight"):
        make(source_lm_weight=-0.5)
