"""The PGN agent: its defaults, its coverage loss, where its words come from."""

from __future__ import annotations

import pytest
import systems
import tiny
import torch
from parlai.scripts.train_model import setup_args

from persona_agents.errors import PersonaAgentsError

SAMPLES = [s for language in ("zh", "en") for s in tiny.samples(language)[:30:10]]


@pytest.fixture
def make(tmp_path):
    task = tiny.write_corpus(tmp_path / "corpus", SAMPLES)

    def build(model_file="model", **settings):
        options = systems.SYSTEMS["pgn"].options(**task, **{"seed": 1, "dropout": 0.0, **settings})
        return tiny.new_agent(**options, model_file=str(tmp_path / model_file))

    return build


def test_sizes_and_recipe_are_those_of_s2sa():
    pgn, s2sa = (
        setup_args().parse_kwargs(model=f"persona_agents:{name}", task="cpc:mini", **tiny.QUIET)
        for name in ("pgn", "s2sa")
    )
    assert pgn["hiddensize"] == pgn["embeddingsize"] == 512 and pgn["coverage"] is False
    same = ("hiddensize", "embeddingsize", "numlayers", "dropout", "learningrate", "optimizer")
    same += ("lr_scheduler", "warmup_ratio", "batchsize", "num_epochs", "gradient_clip")
    assert {name: pgn[name] for name in same} == {name: s2sa[name] for name in same}


class TestCoverage:
    def gradients(self, agent):
        """Gradients of a batch's loss."""
        batch = agent.batchify(tiny.observe(agent, SAMPLES)[1])
        agent.model.train()
        agent.model.zero_grad()
        agent._local_metrics.clear()
        loss = agent.compute_loss(batch)
        loss.backward()
        return loss, batch, {k: p.grad.clone() for k, p in agent.model.named_parameters()}

    def test_its_loss_is_added_in_training(self, make):
        agent = make(coverage=True)
        loss, batch, found = self.gradients(agent)
        agent.model.zero_grad()
        log_prob, _, _, coverage = agent.model(batch.text_vec, batch.label_vec)
        real = batch.label_vec.ne(agent.NULL_IDX)
        expected = ((coverage - log_prob.squeeze(2)) * real).sum() / real.sum()
        assert loss.item() == pytest.approx(expected.item())
        assert (coverage * real).sum() > 0.1, "it is not nothing"
        expected.backward()
        for name, parameter in agent.model.named_parameters():
            torch.testing.assert_close(found[name], parameter.grad)

    def test_it_is_reported_apart_from_perplexity(self, make):
        agent = make(coverage=True)
        (batch,) = [SAMPLES]
        answers = tiny.act(agent, batch, "labels")
        coverage = [answer["metrics"]["coverage_loss"].value() for answer in answers]
        assert all(value > 0 for value in coverage)
        plain = make("plain", coverage=False)
        # the weights of the coverage start at zero, all others by the same seed
        expected = tiny.act(plain, batch, "labels")
        assert [a["metrics"]["ppl"] for a in answers] == [a["metrics"]["ppl"] for a in expected]
        assert all("coverage_loss" not in answer["metrics"] for answer in expected)

    def test_it_works_with_token_details(self, make):
        agent = make(coverage=True, verbose=True)
        (answer, *_) = tiny.act(agent, SAMPLES[:2], "eval_labels")
        assert answer["token_losses"] and isinstance(answer["text"], str)
        assert tiny.train_steps(agent, [SAMPLES])[0] > 0


def test_provenance_says_which_word_was_copied_from_where(make):
    """Where the gate only copies, each word of the reply comes from persona and query."""
    agent = make(provenance=True)
    tiny.train_steps(agent, [SAMPLES] * 10)
    with torch.no_grad():
        agent.model.pointer.weight.zero_()
        agent.model.pointer.bias.fill_(-30.0)
    agent.label_truncate = 6
    for answer, sample in zip(tiny.act(agent, SAMPLES), SAMPLES):
        provenance = answer["provenance"]
        assert provenance["persona"] == list(sample.persona)
        for token in provenance["tokens"][:-1]:
            assert token["generated"] < 1e-6 and token["sources"]
            assert token["beta"] + token["gamma"] == pytest.approx(1.0, abs=1e-4)
            parts = token["generated"] + token["query"] + token["persona"]
            assert parts == pytest.approx(token["probability"], abs=1e-5)
            words = {source["text"].lower() for source in token["sources"]}
            assert words == {token["token"].removeprefix("##")}


def test_explaining_agrees_with_scoring(make):
    agent = make()
    batch = agent.batchify(tiny.observe(agent, SAMPLES)[1])
    with torch.no_grad():
        agent.model.eval()
        encoded = agent.model.encoder(batch.text_vec)
        explained = agent.model.explain(encoded, batch.label_vec)
        log_prob, _ = agent.model.score(encoded, batch.label_vec)
    torch.testing.assert_close(explained.probability, log_prob.exp())
    torch.testing.assert_close(explained.generated + explained.copied.sum(2), log_prob.exp())
    assert explained.attention.sum(dim=2) == pytest.approx(2.0), (
        "one over each of query and persona"
    )


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"hiddensize": 0}, "--hiddensize 0: must be at least 1"),
        ({"embeddingsize": -3}, "--embeddingsize -3: must be at least 1"),
        ({"optimizer": "adam"}, "--optimizer adam"),
        ({"validation_metric": "f1"}, "--validation-metric f1 may need replies"),
    ],
)
def test_options_that_cannot_be(make, settings, message):
    with pytest.raises(PersonaAgentsError, match=message):
        make(**settings)


@pytest.mark.parametrize("settings", [{"hiddensize": 8}, {"coverage": True}, {"numlayers": 1}])
def test_a_model_of_other_options_does_not_load(make, settings):
    make().save()
    with pytest.raises(PersonaAgentsError, match="does not fit the model"):
        make(**settings)
