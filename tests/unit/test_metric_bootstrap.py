"""Paired bootstrap: every resample is scored as if its replies were a corpus of their own."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, Settings, compare, score
from persona_agents.metrics.tokens import basic
from tests.tiny import samples

NAMES = "corpus_bleu,char_f1,p_cover,corpus_distinct,verbatim,length"
COUNT = 60


@pytest.fixture(scope="module")
def systems():
    """Two systems: the first gives other samples' gold replies, the second some right ones too."""
    chosen = samples("en", "valid")[:COUNT]
    texts = [sample.response for sample in chosen]
    first = texts[1:] + texts[:1]
    second = [right if i % 3 == 0 else other for i, (right, other) in enumerate(zip(texts, first))]
    second[4] = ""

    def replies(system):
        return [
            Reply(text, [s.response], s.persona if i % 5 else (), s.query)
            for i, (text, s) in enumerate(zip(system, chosen))
        ]

    return replies(first), replies(second)


@pytest.fixture(scope="module")
def scores(systems):
    return [score(replies, NAMES) for replies in systems]


def resampled(seed: int, resamples: int, count: int = COUNT) -> list[list[int]]:
    """The samples of each resample, as indices."""
    weights = np.random.default_rng(seed).multinomial(
        count, np.full(count, 1 / count), size=resamples
    )
    return [np.repeat(np.arange(count), row).tolist() for row in weights]


@pytest.mark.parametrize("output", ["corpus_bleu_2", "char_f1", "corpus_distinct_2", "length"])
def test_every_resample_is_a_corpus(systems, scores, output):
    name = output.removesuffix("_2")
    differences = []
    for chosen in resampled(7, 40):
        values = [score([replies[i] for i in chosen], name).values[output] for replies in systems]
        differences.append(values[1] - values[0])
    found = compare(*scores, resamples=40, seed=7)[output]
    low, high = np.percentile(differences, [2.5, 97.5])
    assert low < high
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)
    far = np.abs(np.array(differences) - np.mean(differences)) >= abs(found.difference)
    assert found.p_value == pytest.approx((far.sum() + 1) / 41)


def test_bleu_against_sacrebleu(systems, scores):
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    differences = []
    for chosen in resampled(3, 50):
        values = [
            bleu.corpus_score(
                [" ".join(basic(replies[i].text)) for i in chosen],
                [[" ".join(basic(replies[i].references[0])) for i in chosen]],
            ).score
            for replies in systems
        ]
        differences.append(values[1] - values[0])
    found = compare(*scores, resamples=50, seed=3)["corpus_bleu_4"]
    assert found.low == pytest.approx(np.percentile(differences, 2.5), abs=1e-9)
    assert found.high == pytest.approx(np.percentile(differences, 97.5), abs=1e-9)


def test_values_and_left_out_samples(scores):
    found = compare(*scores, resamples=20)
    for output, difference in found.items():
        if difference.samples == COUNT:
            assert difference.first == scores[0].values[output]
            assert difference.second == scores[1].values[output]
        assert difference.difference == difference.second - difference.first
        assert difference.low <= difference.high
    assert found["p_cover"].samples == found["verbatim_persona"].samples == COUNT * 4 // 5


def test_seed(scores):
    assert compare(*scores, resamples=50, seed=1) == compare(*scores, resamples=50, seed=1)
    assert compare(*scores, resamples=50, seed=1) != compare(*scores, resamples=50, seed=2)


def test_a_clear_difference_and_none(scores):
    assert compare(*scores, resamples=300)["char_f1"].p_value < 0.02
    assert compare(*scores, resamples=300)["char_f1"].low > 0
    same = compare(scores[0], scores[0], resamples=50)
    assert {d.p_value for d in same.values()} == {1}
    assert {(d.low, d.difference, d.high) for d in same.values()} == {(0, 0, 0)}


def test_no_difference_is_seldom_found_significant():
    """Two systems that are equal but for chance: p is below 0.05 about once in twenty."""
    random = np.random.default_rng(5)
    found = []
    for seed in range(60):
        pair = []
        for _ in range(2):
            texts = random.choice(["a b c d", "a x y z", "q r s t"], size=40)
            pair.append(score([Reply(str(t), ["a b c d"]) for t in texts], "char_f1"))
        found.append(compare(*pair, resamples=200, seed=seed)["char_f1"].p_value)
    assert np.mean(np.array(found) < 0.05) < 0.17
    assert np.mean(np.array(found) < 0.5) > 0.3, "nor does it never find any"


def test_what_does_not_compare(scores):
    with pytest.raises(PersonaAgentsError, match="60 and 1 replies"):
        compare(scores[0], score([Reply("a", ["b"])], NAMES))
    with pytest.raises(PersonaAgentsError, match="char_f1 was not computed in the same way"):
        replies = [Reply("a", ["b"])] * COUNT
        compare(scores[0], score(replies, NAMES, Settings(language="zh")))
    with pytest.raises(PersonaAgentsError, match="--resamples 0"):
        compare(*scores, resamples=0)
