"""Metrics that need no model: tokens, BLEU, F1, P-Cover, distinct, verbatim, length."""

from __future__ import annotations

import math
import random

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import NAMES, Reply, Settings, score
from persona_agents.metrics.scorer import OUTPUTS, choose, scorer_for
from persona_agents.metrics.tokens import basic, characters, words
from tests.tiny import samples

CHEAP = "corpus_bleu,char_f1,p_cover,corpus_distinct,verbatim,length"
SPACED = str.maketrans({mark: f" {mark} " for mark in "，。？！,.?!'“”：:（）()…"})


def values(replies, names=CHEAP, language="en", **settings):
    return score(replies, names, Settings(language=language, **settings)).values


def shuffled(language: str, count: int = 120) -> list[Reply]:
    """Gold replies of the bundled corpus, a fifth of them in their own place."""
    chosen = samples(language, "valid")[:count]
    texts = [sample.response for sample in chosen]
    moved = texts[::5] + [t for i, t in enumerate(texts) if i % 5]
    return [
        Reply(text, [sample.response], sample.persona, sample.query)
        for text, sample in zip(moved, chosen)
    ]


class TestTokens:
    def test_basic(self):
        assert basic("我爱New York，你呢？！") == (
            *("我", "爱", "new", "york", ",", "你", "呢", "?", "!"),
        )
        assert basic("I've  2 dogs…") == ("i", "'", "ve", "2", "dogs", ".", ".", ".")
        assert basic("ＡＢＣ café") == ("abc", "café")
        assert basic(" \n") == ()

    def test_words(self):
        assert words("我 喜欢 猫 ！") == words("我喜欢猫!") == ("我", "喜欢", "猫")
        assert words("我 喜 欢 猫") == words("我喜欢猫"), "cut otherwise than jieba does"
        assert words("I like C3PO.") == ("i", "like", "c3po")

    def test_characters(self):
        assert characters("我 Ａ\tb！") == "我ab!"


class TestBleu:
    @pytest.mark.parametrize("language", ["en", "zh"])
    @pytest.mark.parametrize("references", [1, 3])
    def test_is_sacrebleus(self, language, references):
        replies = shuffled(language)
        random.Random(1).shuffle(others := [reply.references[0] for reply in replies])
        for i, reply in enumerate(replies):
            more = [others[i], others[-i]][: references - 1]
            reply.references = (*reply.references, *more)
        replies[7].text = ""
        found = values(replies, "corpus_bleu", language)
        hypotheses = [" ".join(basic(reply.text)) for reply in replies]
        streams = [
            [" ".join(basic(reply.references[i])) for reply in replies] for i in range(references)
        ]
        for order in range(1, 5):
            oracle = BLEU(
                tokenize="none", smooth_method="none", max_ngram_order=order, force=True
            ).corpus_score(hypotheses, streams)
            assert 5 < oracle.score < 95
            assert found[f"corpus_bleu_{order}"] == pytest.approx(oracle.score, abs=1e-9)

    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_identical_is_100_however_punctuation_is_spaced(self, language):
        gold = [sample.response for sample in samples(language, "valid")]
        for replies in (
            [Reply(text, [text]) for text in gold],
            [Reply(text.translate(SPACED), [text]) for text in gold],
            [Reply(text, [text.translate(SPACED)]) for text in gold],
        ):
            found = values(replies, "corpus_bleu,char_f1", language)
            for order in range(1, 5):
                assert found[f"corpus_bleu_{order}"] == pytest.approx(100, abs=1e-9)
            assert found["char_f1"] == found["word_f1"] == 1

    def test_segmented_chinese_is_the_same_text(self):
        replies = [Reply("我 喜欢 猫 ， 你 呢 ？", ["我喜欢猫，你呢？"])]
        assert values(replies, "corpus_bleu", "zh")["corpus_bleu_4"] == pytest.approx(100)

    def test_full_width_punctuation_is_the_narrow_one(self):
        replies = [Reply("你好，我是老师！好吗？", ["你好,我是老师!好吗?"])]
        assert values(replies, "corpus_bleu", "zh")["corpus_bleu_4"] == pytest.approx(100)

    def test_is_no_average_of_sentences(self):
        """One long right reply and one short wrong one: counts are summed."""
        replies = [Reply("a b c d e f g h", ["a b c d e f g h"]), Reply("x", ["y"])]
        found = values(replies, "corpus_bleu")
        assert found["corpus_bleu_1"] == pytest.approx(100 * 8 / 9)
        assert found["corpus_bleu_4"] == pytest.approx(100 * (8 / 9) ** (1 / 4))

    def test_brevity(self):
        found = values([Reply("a b", ["a b c d"])], "corpus_bleu")
        assert found["corpus_bleu_2"] == pytest.approx(100 * math.exp(1 - 4 / 2))
        assert found["corpus_bleu_3"] == 0, "there is no 3-gram"

    def test_is_not_smoothed(self):
        found = values([Reply("a b c x", ["a b c y"])], "corpus_bleu")
        assert found["corpus_bleu_3"] > 0 and found["corpus_bleu_4"] == 0

    def test_signature(self):
        found = score([Reply("a", ["a"])], "corpus_bleu").signatures["corpus_bleu"]
        assert "basic" in found and "smooth:none" in found and sacrebleu.__version__ in found


@pytest.mark.parametrize(
    "reply, reference, char_f1, word_f1",
    [
        # 3 of 4 characters are common; of 2 or 3 words 我 and 喜欢
        ("我喜欢猫", "我喜欢狗", 3 / 4, 2 / 3),
        # 好 is there three times, once in the gold reply: 2 · 2 / (4 + 2)
        ("好好好的", "好的", 2 * 2 / 6, None),
        ("。。。", "我喜欢猫。", 2 * 1 / (3 + 5), 0),
        ("", "我喜欢猫。", 0, 0),
        ("你好！", "你好!", 1, 1),
        # aab against abb: a and b once each in common; words: nothing
        ("aab", "abb", 2 * 2 / 6, 0),
        # i like tea / i like coffee : characters i,l,i,k,e,e in common of 8 and 11
        ("I like tea", "i like coffee", 2 * 6 / (8 + 11), 2 * 2 / 6),
        ("dogs dogs dogs", "two dogs", None, 2 * 1 / (3 + 2)),
        ("!!!", "yes", 0, 0),
        ("", "yes", 0, 0),
    ],
)
def test_f1_by_hand(reply, reference, char_f1, word_f1):
    found = values([Reply(reply, [reference])], "char_f1", "zh")
    for output, wanted in (("char_f1", char_f1), ("word_f1", word_f1)):
        if wanted is not None:
            assert found[output] == pytest.approx(wanted, abs=1e-12)


def test_f1_averages():
    replies = [Reply("ab", ["ab"]), Reply("xyzw", ["abcd"]), Reply("", ["a"])]
    assert values(replies, "char_f1")["char_f1"] == pytest.approx(1 / 3)
    micro = values(replies, "char_f1", f1_average="micro")
    assert micro["char_f1"] == pytest.approx(2 * 2 / (2 + 2 + 4 + 4 + 0 + 1))
    of = {
        average: scorer_for(("char_f1",), Settings(f1_average=average)).signatures["char_f1"]
        for average in ("reply", "micro")
    }
    assert of["reply"] != of["micro"]


def test_f1_takes_the_best_reference():
    assert values([Reply("abc", ["xyz", "abd", "x"])], "char_f1")["char_f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "language, reply, persona, wanted",
    [
        ("en", "I have two dogs!", ["i have a cat .", "i love two dogs ."], 3 / 4),
        ("en", "dogs dogs dogs", ["i love dogs , dogs"], 1 / 4),  # repeated: counted once
        ("en", "", ["i ski"], 0),
        ("en", "?!.", ["i ski ."], 0),  # punctuation is counted nowhere
        ("en", "yes , nurse .", ["nurse", "i am a nurse"], 1),  # a persona of one word
        ("en", "hello", [], None),
        ("en", "hello", ["...", ""], None),  # no word in it
        ("zh", "我喜欢猫。", ["我喜欢狗。", "我是老师"], 2 / 3),
        ("zh", "猫，猫。", ["我的猫，猫"], 1 / 4),
        ("zh", "我 喜欢 猫", ["我喜欢猫！"], 1),
        ("zh", "", ["我喜欢狗。"], 0),
        ("zh", "。。。", ["我喜欢狗。"], 0),
        ("zh", "老师", ["老师"], 1),
        ("zh", "你好", [], None),
    ],
)
def test_p_cover_by_hand(language, reply, persona, wanted):
    found = values([Reply(reply, [], persona)], "p_cover", language)["p_cover"]
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_without_persona_is_left_out_and_counted():
    replies = [Reply("i ski", ["i ski"], ["i ski"]), Reply("no", ["i ski"]), Reply("", ["x"])]
    scores = score(replies, "p_cover,verbatim,corpus_bleu")
    assert scores.values["p_cover"] == 1 and scores.counts["p_cover"] == 1
    assert scores.values["verbatim_query"] is None and scores.counts["verbatim_query"] == 0
    assert scores.counts["without_persona"] == 2 and scores.counts["empty_replies"] == 1
    assert scores.counts["corpus_bleu_4"] == scores.counts["replies"] == 3


def test_distinct_and_length():
    found = values([Reply("a b a b"), Reply("a b !"), Reply("")], "corpus_distinct,length")
    assert found["corpus_distinct_1"] == pytest.approx(3 / 7)
    assert found["corpus_distinct_2"] == pytest.approx(3 / 5)  # ab, ba, b!
    assert found["length"] == pytest.approx(7 / 3)


@pytest.mark.parametrize(
    "reply, persona, query, in_persona, in_query",
    [
        ("I have two dogs!", ["i have two dogs ."], "do you have two cats ?", 1, 2 / 4),
        ("dogs i have", ["i have two dogs"], "x", 2 / 3, 0),
        ("", ["i ski"], "x", 0, 0),
        ("...", ["i ski"], "...", 0, 0),
        ("我有两只狗。", ["我有两只猫", "他有两只狗"], "你有狗吗？", 4 / 5, 1 / 5),
    ],
)
def test_verbatim_by_hand(reply, persona, query, in_persona, in_query):
    found = values([Reply(reply, [], persona, query)], "verbatim")
    assert found["verbatim_persona"] == pytest.approx(in_persona)
    assert found["verbatim_query"] == pytest.approx(in_query)


def test_char_ppl():
    replies = [Reply(None, ["ab c"], nll=3.0), Reply("x", ["d"], nll=1.0), Reply("x", ["e"])]
    scores = score(replies, "char_ppl,length")
    assert scores.values["char_ppl"] == pytest.approx(math.exp(4 / 4))
    assert scores.counts["char_ppl"] == 2
    assert scores.counts["length"] == 2, "there is no text to measure"


def test_nothing_to_judge():
    assert score([], CHEAP).values["corpus_bleu_4"] is None
    only_empty = values([Reply("", [""])] * 2)
    assert {only_empty[output] for name in CHEAP.split(",") for output in OUTPUTS[name]} == {
        *(0, None),
    }


class TestNames:
    def test_groups(self):
        assert choose("persona") == ("corpus_bleu", "char_f1", "bert_score", "p_cover", "p_em")
        assert choose(" length ,persona,p_em") == (*choose("persona"), "length")

    def test_unknown(self):
        with pytest.raises(PersonaAgentsError, match="corpus_blue.*Did you mean corpus_bleu"):
            choose("corpus_blue")

    def test_outputs_are_those_of_the_classes(self):
        from persona_agents.metrics import bert_score, bleu, c_score, f1, persona, surface

        classes = {
            "corpus_bleu": [bleu.CorpusBleu],
            "char_f1": [f1.CharF1],
            "bert_score": [bert_score.BertScore],
            "p_cover": [persona.PCover],
            "p_em": [persona.PEm],
            "corpus_distinct": [surface.CorpusDistinct],
            "verbatim": [surface.Verbatim, surface.VerbatimQuery],
            "length": [surface.Length],
            "char_ppl": [surface.CharPpl],
            "c_score": [c_score.CScore],
        }
        assert tuple(classes) == NAMES
        for name, found in classes.items():
            assert OUTPUTS[name] == tuple(output for kind in found for output in kind.outputs)
