"""s2sa is ParlAI's seq2seq in the paper's sizes, and nothing else."""

from __future__ import annotations

import pytest
import systems
import tiny
import torch
from parlai.agents.seq2seq.modules import Seq2seq
from parlai.scripts.train_model import setup_args
from torch.nn import functional as F

from persona_agents.agents.s2sa import S2SAAgent
from persona_agents.errors import PersonaAgentsError

SAMPLES = [s for language in ("zh", "en") for s in tiny.samples(language)[:30:10]]


@pytest.fixture
def make(tmp_path):
    task = tiny.write_corpus(tmp_path / "corpus", SAMPLES)

    def build(**settings):
        options = systems.SYSTEMS["s2sa"].options(**task, seed=1, **settings)
        return tiny.new_agent(**options, model_file=str(tmp_path / "model"))

    return build


def test_the_papers_settings_are_the_defaults():
    opt = setup_args().parse_kwargs(model="persona_agents:s2sa", task="cpc:mini", **tiny.QUIET)
    expected = {
        "rnn_class": "lstm",
        "numlayers": 2,
        "hiddensize": 512,
        "embeddingsize": 512,
        "attention": "general",
        "attention_time": "post",
        "bidirectional": False,
        "bert_model": "auto",
        "dropout": 0.1,
        "batchsize": 16,
        "num_epochs": 20,
        "optimizer": "adamw",
        "learningrate": 5e-5,
        "lr_scheduler": "linear",
        "warmup_ratio": 0.1,
        "inference": "greedy",
    }
    assert {name: opt[name] for name in expected} == expected


def test_logits_loss_and_replies_are_parlais_on_the_same_weights(make):
    agent = make()
    tiny.train_steps(agent, [SAMPLES] * 15)
    agent.model.eval()
    parlais = Seq2seq(
        len(agent.dict),
        systems.LSTM["embeddingsize"],
        systems.LSTM["hiddensize"],
        numlayers=2,
        attention="general",
        padding_idx=agent.NULL_IDX,
        start_idx=agent.START_IDX,
        end_idx=agent.END_IDX,
    ).eval()
    parlais.load_state_dict(agent.model.state_dict())
    batch = agent.batchify(tiny.observe(agent, SAMPLES, "eval_labels")[1])
    with torch.no_grad():
        ours, theirs = (m(batch.text_vec, ys=batch.label_vec) for m in (agent.model, parlais))
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
        losses = F.cross_entropy(theirs[0].transpose(1, 2), batch.label_vec, reduction="none")
        real = batch.label_vec.ne(agent.NULL_IDX)
        agent._local_metrics.clear()
        loss, _ = agent.compute_loss(batch, return_output=True)
        assert loss.item() == pytest.approx((losses * real).sum().item() / real.sum().item())
        # greedy decoding of ParlAI's model, the whole reply anew at each step
        words = torch.full((len(SAMPLES), 1), agent.START_IDX)
        encoded = parlais.encoder(batch.text_vec)
        for _ in range(9):
            logits = parlais.output(parlais.decoder(words, encoded)[0])
            words = torch.cat((words, logits[:, -1:].argmax(dim=-1)), dim=1)
    agent.label_truncate = 10  # with the end token, which comes last then
    replies = tiny.replies(agent, SAMPLES)
    assert len(set(replies)) > 1
    for row, index in enumerate(batch.valid_indices.tolist()):
        assert replies[index] == agent._v2t(words[row, 1:].tolist())


def test_cached_decoding_equals_decoding_at_once(make):
    agent = make()
    agent.model.eval()
    batch = agent.batchify(tiny.observe(agent, SAMPLES, "eval_labels")[1])
    with torch.no_grad():
        encoded = agent.model.encoder(batch.text_vec)
        ys = torch.cat(
            (torch.full_like(batch.label_vec[:, :1], agent.START_IDX), batch.label_vec), 1
        )
        at_once, state = agent.model.decoder(ys, encoded)[0], None
        for length in range(1, ys.size(1) + 1):
            step, state = agent.model.decoder(ys[:, :length], encoded, state)
            torch.testing.assert_close(step[:, -1], at_once[:, length - 1], atol=1e-6, rtol=0)


def test_a_vocabulary_with_other_padding_is_refused(make, monkeypatch):
    agent = make()
    monkeypatch.setattr(agent, "NULL_IDX", 5)
    with pytest.raises(PersonaAgentsError, match=r"its \[PAD\] has the id 5"):
        agent.build_model()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"hiddensize": 0}, "--hiddensize 0: must be at least 1"),
        ({"numlayers": -1}, "--numlayers -1: must be at least 1"),
        ({"decoder": "shared", "bidirectional": True}, "--decoder shared does not work"),
        ({"optimizer": "sgd"}, "--optimizer sgd"),
        ({"person_tokens": True}, "--person-tokens does not work"),
    ],
)
def test_options_that_cannot_be(make, settings, message):
    with pytest.raises(PersonaAgentsError, match=message):
        make(**settings)


@pytest.mark.parametrize(
    "settings", [{"bidirectional": True}, {"attention": "dot"}, {"lookuptable": "all"}]
)
def test_parlais_other_options_work(make, settings):
    agent = make(**settings)
    losses = tiny.train_steps(agent, [SAMPLES] * 3)
    assert losses[2] < losses[0]
    # so little trained, its greedy replies may be empty
    assert [type(reply) for reply in tiny.replies(agent, SAMPLES[:2])] == [str, str]


def test_is_an_agent_of_parlais():
    from parlai.core.loader import load_agent_module

    assert load_agent_module("persona_agents:s2sa") is S2SAAgent
