"""The mini corpora: what is bundled is what the generator makes, and only copying can answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from persona_agents.tasks import mini
from persona_agents.tasks.cpc.build import load_mini as load_zh
from persona_agents.tasks.personachat_single_turn.build import load_mini as load_en

SPLITS = ("train", "valid", "test")
LANGUAGES = pytest.mark.parametrize("language", ["zh", "en"])


@pytest.fixture(scope="module")
def corpora():
    loaders = {"zh": load_zh, "en": load_en}
    return {key: {split: load(split) for split in SPLITS} for key, load in loaders.items()}


def persona_entities(samples) -> set[str]:
    return {name for sample in samples for line in sample.persona for name in mini.entities(line)}


def pieces(entity: str, language: str) -> list[str]:
    return list(entity) if language == "zh" else entity.split()


def asked(sample) -> str:
    return mini.asked_entity(sample.response, sample.persona, sample.query)


def test_bundled_files_are_what_the_generator_writes(tmp_path):
    bundled = Path(mini.__file__).parent
    paths = mini.write(str(tmp_path))
    assert len(paths) == 6
    for path in map(Path, paths):
        assert path.read_bytes() == (bundled / path.relative_to(tmp_path)).read_bytes(), path
    assert sum(Path(path).stat().st_size for path in paths) < 3_000_000


def test_another_seed_makes_other_dialogues():
    few = {"train": 20}
    assert mini.make("en", 1, few) == mini.make("en", 1, few)
    assert mini.make("en", 1, few) != mini.make("en", 2, few)


@LANGUAGES
def test_sizes(corpora, language):
    for split, least in mini.PAIRS.items():
        assert least <= len(corpora[language][split]) < least + 10


@LANGUAGES
def test_each_sentence_names_one_entity(corpora, language):
    for split in SPLITS:
        for sample in corpora[language][split]:
            names = [mini.entities(line) for line in sample.persona]
            assert [len(found) for found in names] == [1] * mini.FACTS, sample
            assert mini.entities(sample.response) == [asked(sample)]
            # A query either asks (and names nothing) or tells one thing before it asks.
            assert len(mini.entities(sample.query)) <= 1
            used = [piece for name in names for piece in pieces(name[0], language)]
            assert len(set(used)) == len(used), "a piece would be copied from two places"


@LANGUAGES
def test_entities_of_the_splits_are_disjoint(corpora, language):
    names = [persona_entities(corpora[language][split]) for split in SPLITS]
    assert min(map(len, names)) > 200
    assert not (names[0] & names[1] or names[0] & names[2] or names[1] & names[2])


@LANGUAGES
def test_no_entity_holds_another(corpora, language):
    names = set().union(*(persona_entities(corpora[language][split]) for split in SPLITS))
    text = "\n".join(name.replace(" ", "") for name in names)
    assert [name for name in names if text.count(name.replace(" ", "")) != 1] == []


@LANGUAGES
def test_pieces_of_unseen_entities_are_known_as_answers(corpora, language):
    answers = Counter(
        piece for sample in corpora[language]["train"] for piece in pieces(asked(sample), language)
    )
    unseen = persona_entities(corpora[language]["valid"] + corpora[language]["test"])
    rare = {piece for name in unseen for piece in pieces(name, language) if answers[piece] < 3}
    assert rare == set()
    # A piece is rare enough that it is not worth learning by heart.
    assert max(answers.values()) < 0.015 * len(corpora[language]["train"])


@LANGUAGES
def test_a_part_of_the_answers_stands_in_the_query_alone(corpora, language):
    for split in SPLITS:
        samples = corpora[language][split]
        alone = sum(asked(sample) not in persona_entities([sample]) for sample in samples)
        assert 0.18 < alone / len(samples) < 0.28


@LANGUAGES
def test_right_and_wrong_replies(corpora, language):
    for sample in corpora[language]["test"]:
        right = asked(sample)
        others = persona_entities([sample]) - {right}
        told = (sample.response, sample.persona, sample.query)
        assert mini.is_right(sample.response, *told)
        assert mini.is_right(" ".join(right).upper(), *told), "case and spaces do not matter"
        assert not mini.is_right("", *told)
        assert not mini.is_right(sample.response.replace(right, others.pop()), *told)
        assert not mini.is_right(f"{right} {others.pop()}", *told)


def test_examples():
    assert mini.entities("我 在 华兴公司 上班") == ["华兴"]
    assert mini.entities("我家在青云镇，你呢？") == ["青云"]
    assert mini.entities("上的哪所中学？") == []
    assert mini.entities("i often cook apple soup.") == ["apple soup"]
    assert mini.entities("I live in Silver  Harbor , and you ?") == ["silver harbor"]
    assert mini.entities("where do you live ?") == []
    persona = ("我叫陈伟", "我住在青云镇")
    assert mini.is_right("我 叫 陈 伟 ， 你 呢 ？", "我叫陈伟。", persona, "你叫什么？")
    assert not mini.is_right("我叫青云。", "我叫陈伟。", persona, "你叫什么？")
    query = "我住白石镇，你去过吗？"
    assert mini.is_right("白石镇我去过。", "我没去过白石镇。", persona, query)
    assert not mini.is_right("我没去过青云镇。", "我没去过白石镇。", persona, query)


def test_a_reply_without_entity_cannot_be_judged():
    with pytest.raises(ValueError, match="No entity"):
        mini.is_right("hello", "hello", ("my name is ann fox.",), "hello")
