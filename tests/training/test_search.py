"""The faster search gives what ParlAI's own gives: same words, same scores, all hypotheses."""

from __future__ import annotations

import random

import pytest
import tiny
import torch
from parlai.core.torch_generator_agent import TorchGeneratorAgent

from persona_agents.agents import search

SAMPLES = [s for language in ("zh", "en") for s in tiny.samples(language)[:60:5]]

SEARCHES = {
    "greedy": {},
    "greedy, hot": {"temperature": 0.5},
    "greedy, long": {"beam_min_length": 6},
    "greedy, blocked": {"beam_block_ngram": 1},
    "beam": {"inference": "beam", "beam_size": 4},
    "beam, blocked": {
        "inference": "beam",
        "beam_size": 3,
        "beam_block_ngram": 2,
        "beam_context_block_ngram": 2,
        "beam_min_length": 3,
        "beam_length_penalty": 1.0,
    },
    "topk": {"inference": "topk", "topk": 5, "beam_size": 2, "temperature": 1.5},
    "nucleus": {"inference": "nucleus", "topp": 0.8},
    "delayed beam": {"inference": "delayedbeam", "topk": 5, "beam_delay": 2, "beam_size": 3},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model trained so little that its replies are wrong but end at different lengths."""
    model_file = str(tmp_path_factory.mktemp("search") / "model")
    options = {"learningrate": 1e-2, "lr_scheduler": "none", "seed": 1, "task": "cpc:mini"}
    agent = tiny.new_agent(model_file=model_file, **options)
    batches = [SAMPLES[:12], SAMPLES[12:]] * 25
    tiny.train_steps(agent, batches)
    agent.save(model_file)
    return model_file


def generate(agent, chosen, ours: bool, max_ts: int):
    """(best hypotheses, all hypotheses of all samples), with a fixed state of the random numbers."""
    _, observations = tiny.observe(agent, chosen, labels=None)
    batch = agent.batchify(observations)
    torch.manual_seed(7)
    call = type(agent)._generate if ours else TorchGeneratorAgent._generate
    with torch.no_grad():
        agent.model.eval()
        best, searches = call(agent, batch, agent.beam_size, max_ts)
    return best, [one.get_rescored_finished() for one in searches]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for (words, score, details), (expected_words, expected_score, _) in zip(found, expected):
        assert words.tolist() == expected_words.tolist()
        assert float(score) == pytest.approx(float(expected_score), abs=1e-4)
        assert details is None


@pytest.mark.parametrize("name", SEARCHES)
def test_equal_to_parlai(trained, name):
    agent = tiny.new_agent(model_file=trained, task="cpc:mini", **SEARCHES[name])
    lengths = set()
    for size, max_ts in ((1, 20), (2, 20), (7, 20), (24, 20), (24, 3)):
        chosen = random.Random(size).sample(SAMPLES, size)
        best, all_of_them = generate(agent, chosen, True, max_ts)
        expected_best, expected_all = generate(agent, chosen, False, max_ts)
        assert_same(best, expected_best)
        for found, expected in zip(all_of_them, expected_all):
            assert_same(found, expected)
        lengths |= {len(words) for words, *_ in best}
    assert len(lengths) > 4, "replies that end at different steps are what this is about"


def test_greedy_replies_may_be_empty(trained):
    """ParlAI's greedy search pays no attention to --beam-min-length, whose default is 1."""
    agent = tiny.new_agent(model_file=trained, task="cpc:mini", beam_min_length=3)
    with torch.no_grad():
        agent.model.generator.bias[agent.END_IDX] += 1e3
        agent.model.copy.gate.bias += 1e3  # p_gen = 1
    best, _ = generate(agent, SAMPLES[:5], True, 20)
    expected, _ = generate(agent, SAMPLES[:5], False, 20)
    assert_same(best, expected)
    assert all(words.tolist() == [agent.START_IDX, agent.END_IDX] for words, *_ in best)


def test_finished_samples_leave_the_batch(trained, monkeypatch):
    agent = tiny.new_agent(model_file=trained, task="cpc:mini")
    sizes = []
    decoder = agent.model.decoder

    def counted(words, *states):
        sizes.append(len(words))
        return decoder(words, *states)

    monkeypatch.setattr(agent.model, "decoder", counted)
    generate(agent, SAMPLES, True, 20)
    assert sizes[0] == len(SAMPLES) and sizes[-1] < len(SAMPLES) / 2
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("what", ["prefix", "details", "rerank"])
def test_left_to_parlai(trained, monkeypatch, what):
    agent = tiny.new_agent(model_file=trained, task="cpc:mini")
    _, observations = tiny.observe(agent, SAMPLES[:3], labels=None)
    batch, prefix = agent.batchify(observations), None
    if what == "prefix":
        prefix = torch.full((3, 1), 50)
    elif what == "details":
        agent.show_token_details = True
    else:
        monkeypatch.setattr(agent, "_rerank_beams", lambda _, beams: beams, raising=False)
    assert not search.is_covered(agent, batch, prefix)
    agent.model.eval()
    with torch.no_grad():
        best, _ = agent._generate(batch, 1, 6, prefix)
    if what == "prefix":
        assert all(words[1] == 50 for words, *_ in best)
    assert len(best) == 3
