"""The dictionary of words: order, parts of speech, function words, files."""

from __future__ import annotations

import pytest
from parlai.core.message import Message

from persona_agents import words
from persona_agents.errors import PersonaAgentsError
from persona_agents.words import WordDictionaryAgent, tag_words


def build(samples, times=1, **settings):
    dictionary = WordDictionaryAgent({"dict_lower": True, "dict_maxtokens": -1, **settings})
    for _ in range(times):
        for text, label in samples:
            dictionary.observe(Message({"text": text, "labels": [label], "episode_done": True}))
            dictionary.act()
    dictionary.sort()
    return dictionary


ENGLISH = [
    ("your persona: i'm a nurse.\nwhere do you live?", "i live in a quiet town, and you can too."),
    ("what do you do?", "i don't work, i slowly paint the xylophones."),
]
CHINESE = [
    ("your persona: 我住在海南。\n你在哪里工作？", "我在医院工作，你呢？"),
    ("你喜欢什么", "我很喜欢看电影和 iphone ！"),
]


def function_words(dictionary):
    return {word for word, known in dictionary.words.items() if known.is_function}


class TestFunctionWords:
    def test_english(self):
        found = function_words(build(ENGLISH, times=11))
        words_of_grammar = {"i", "a", "you", "in", "the", "and", "can", "m", "t", "what", "where"}
        assert found == words_of_grammar | {".", ",", "?", "'"}

    def test_chinese(self):
        found = function_words(build(CHINESE, times=11))
        assert {"我", "在", "你", "哪里", "呢", "什么", "和", "。", "，", "？", "！"} <= found
        assert not found & {"海南", "医院", "工作", "喜欢", "看", "电影", "住", "iphone"}

    def test_more_than_ten_times(self):
        assert "and" not in function_words(build(ENGLISH, times=10))
        assert "i" in function_words(build(ENGLISH, times=10))
        assert not function_words(build(ENGLISH, times=1))

    def test_majority_of_the_occurrences(self, monkeypatch):
        """A word is tagged as a verb when another one stands before it."""
        monkeypatch.setattr(
            words,
            "tag_words",
            lambda text: [("VB", True) if i else ("IN", False) for i, _ in enumerate(text)],
        )
        for verbs, is_function in ((2, True), (3, False)):
            samples = [("like it", "x")] * (5 - verbs) + [("to like", "x")] * verbs
            known = build(samples, times=4).words["like"]
            assert known.is_function is is_function and known.tag == ("IN" if is_function else "VB")

    def test_clitics_are_no_nouns(self):
        tags = dict(
            zip(["i", "'", "m", "don", "'", "t"], tag_words(["i", "'", "m", "don", "'", "t"]))
        )
        assert not tags["m"][1] and not tags["t"][1] and tags["don"][1]
        assert tag_words(["t"])[0][1]  # a letter of its own may be one


class TestOrder:
    @pytest.mark.parametrize("samples", [ENGLISH, CHINESE])
    def test_special_then_function_then_content_by_count(self, samples):
        dictionary = build(samples, times=11)
        kinds = [word in function_words(dictionary) for word in list(dictionary.tok2ind)[4:]]
        assert kinds == sorted(kinds, reverse=True)
        assert sum(kinds) + 4 == dictionary.n_function
        assert [dictionary[i] for i in range(4)] == ["__null__", "__start__", "__end__", "__unk__"]
        for kind in (True, False):
            counts = [
                dictionary.freq[word]
                for word in list(dictionary.tok2ind)[4:]
                if dictionary.words[word].is_function is kind
            ]
            assert counts == sorted(counts, reverse=True)

    def test_the_most_frequent_words_stay(self):
        whole, cut = build(ENGLISH, times=11), build(ENGLISH, times=11, dict_maxtokens=20)
        assert len(cut) == 20 and set(cut.words) < set(whole.words)
        dropped = set(whole.words) - set(cut.words)
        assert max(whole.freq[w] for w in dropped) <= min(whole.freq[w] for w in cut.words)

    def test_shares_of_replies(self):
        dictionary = build(ENGLISH, times=12)
        shares = dictionary.reply_shares()
        assert len(shares) == len(dictionary) - dictionary.n_function
        assert shares[dictionary["live"] - dictionary.n_function] == 0.5
        assert shares[dictionary["nurse"] - dictionary.n_function] == 0.0


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "我在医院工作，你呢？",
            "i live in a quiet town, and you can too.",
            "我有iphone，very good！",
        ],
    )
    def test_back_to_text(self, text):
        dictionary = build([(text, text)])
        assert dictionary.vec2txt(dictionary.txt2vec(text)).replace(" ", "") == text.replace(
            " ", ""
        )

    def test_chinese_is_cut_by_jieba(self):
        found = build(CHINESE).tokenize("我在医院工作， 你呢？")
        assert found == ["我", "在", "医院", "工作", "，", "你", "呢", "？"]

    def test_lower_case_and_newlines(self):
        assert build(ENGLISH).tokenize("I Live\nHere") == ["i", "live", "here"]


class TestFiles:
    @pytest.mark.parametrize("samples", [ENGLISH, CHINESE])
    def test_round_trip(self, samples, tmp_path):
        first = build(samples, times=11)
        for number in range(2):  # saving what was loaded changes nothing
            first.save(str(tmp_path / f"{number}.dict"))
            first = WordDictionaryAgent(
                {"dict_lower": True, "dict_file": str(tmp_path / f"{number}.dict")}
            )
        for name in ("0.dict", "0.dict.words"):
            other = tmp_path / name.replace("0", "1")
            assert (tmp_path / name).read_bytes() == other.read_bytes()
        again = build(samples, times=11)
        assert again.tok2ind == first.tok2ind and again.words == first.words
        assert again.n_function == first.n_function and again.n_replies == first.n_replies

    @pytest.mark.parametrize("damage", ["missing", "cut", "other", "binary"])
    def test_damage_is_named(self, damage, tmp_path):
        dictionary, path = build(ENGLISH, times=11), tmp_path / "d.dict"
        dictionary.save(str(path))
        beside = tmp_path / "d.dict.words"
        content = beside.read_text(encoding="utf-8")
        if damage == "missing":
            beside.unlink()
        elif damage == "cut":
            beside.write_text(content[: len(content) // 2], encoding="utf-8")
        elif damage == "other":
            beside.write_text(content.replace("\tfunction\t", "\tcontent\t", 1), encoding="utf-8")
        else:
            beside.write_bytes(b"\x80\x02}q\x00.")
        with pytest.raises(PersonaAgentsError, match="d.dict.words"):
            WordDictionaryAgent({"dict_lower": True, "dict_file": str(path)})
