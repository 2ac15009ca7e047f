"""Whole dialogues, the split by persona, and the revised personas of Persona-Chat."""

from __future__ import annotations

import json
import random

import pytest
from persona_agents.tasks.base import Sample
from persona_agents.tasks.cpc import build
from persona_agents.tasks.cpc.build import Settings
from persona_agents.tasks.cpc.dialogue import parse_dialogue

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn
from tests.unit.corpora import numbered, teacher, variant, write

ONE, TWO = ("我喜欢钓鱼", "我在海滩做救生员"), ("我养了一只猫", "我爱听 rap")


def test_whole_dialogues(tmp_path):
    folder = write(tmp_path, [variant()])
    turns = "你好，你喜欢什么？", "我爱听 rap 音乐。", "我每天钓鱼。"
    assert build.load(folder, "valid", settings=Settings(whole=True)) == [
        [Sample(ONE, "__SILENCE__", turns[0]), Sample(ONE, turns[1], turns[2])],
        [Sample(TWO, turns[0], turns[1])],
    ]


def test_messages_of_whole_dialogues(tmp_path):
    one = teacher("cpc:multi_turn", cpc_path=write(tmp_path, [variant()]))
    assert (one.num_episodes(), one.num_examples()) == (2, 3)
    messages = list(one)
    assert [parse_turn(message["text"]).persona for message in messages] == [ONE, (), TWO]
    assert messages[1]["text"] == "我爱听 rap 音乐。"
    assert [message["episode_done"] for message in messages] == [False, True, True]
    assert messages[1]["eval_labels"] == ["我每天钓鱼。"]


def test_training_on_whole_dialogues_shows_each_once_an_epoch(tmp_path):
    write(tmp_path, numbered(40), "Persona_train.json")
    one = teacher("cpc:multi_turn", "train", cpc_path=str(tmp_path))
    messages = [one.act() for _ in range(2 * one.num_examples())]
    texts = [(message["text"], message["labels"][0]) for message in messages]
    first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
    assert sorted(first) == sorted(second) and first != second
    assert len(set(texts)) == one.num_examples()


@pytest.fixture
def recurring(tmp_path):
    """300 dialogues whose 600 speakers share 60 personas."""
    rng = random.Random(0)
    lines = []
    for number in range(300):
        one, two = rng.sample(range(60), 2)
        personas = [[f"我 是 第 {i} 号", f"我 有 {i} 只 猫"] for i in (one, two)]
        rng.shuffle(personas[0])  # the order of the sentences does not matter
        turns = [f"p{1 + i % 2} : {number} {i}" for i in range(5)]
        lines.append(variant(p1_persona=personas[0], p2_persona=personas[1], conversation=turns))
    write(tmp_path, lines, "Persona_train.json")
    return tmp_path


def personas(samples) -> set:
    return {frozenset(sample.persona) for sample in samples}


def test_held_out_personas_do_not_occur_in_training(recurring, monkeypatch):
    monkeypatch.setattr(build, "HELD_OUT", 0.15)
    by_session = [build.load(str(recurring), split) for split in ("train", "test")]
    assert personas(by_session[0]) & personas(by_session[1]), "by session they recur"
    settings = Settings(by="persona")
    train, test = (
        build.load(str(recurring), split, settings=settings) for split in ("train", "test")
    )
    assert not personas(train) & personas(test)
    numbers = [{sample.query.split()[0] for sample in part} for part in (train, test)]
    assert not numbers[0] & numbers[1], "and no dialogue is in both"
    assert len(numbers[0]) + len(numbers[1]) == 300, "nor in none"


def test_the_split_by_persona_counts_what_it_leaves_out(recurring):
    parts, report = build.build(build.locate(str(recurring), "train"), Settings(by="persona"))
    assert sum(report.dialogues.values()) == 300
    assert sum(sum(counts.values()) for counts in report.pairs.values()) == 300 * 4
    assert report.pairs["test"]["persona of another split"] > 0
    assert report.pairs["train"]["persona of another split"] == 0
    assert {split: len(part) for split, part in parts.items()} == {
        split: report.pairs[split]["kept"] for split in parts
    }


def test_the_partner_of_a_held_out_persona_is_not_trained_on(recurring):
    for line in (recurring / "Persona_train.json").read_text(encoding="utf-8").splitlines():
        dialogue = parse_dialogue(line)
        split, counts = build.split_of(dialogue, ("train", "test"), "persona")
        held_out = [build.persona_place(p) < build.HELD_OUT for p in dialogue.personas]
        assert (split == "test") == any(held_out)
        assert counts == ((True, True) if split == "train" else tuple(held_out))


def test_the_option(recurring):
    sizes = {
        by: teacher(
            "cpc:raw", "train:ordered", cpc_path=str(recurring), cpc_split=by
        ).num_examples()
        for by in ("session", "persona")
    }
    assert sizes["session"] == len(build.load(str(recurring), "train"))
    assert sizes["persona"] == len(
        build.load(str(recurring), "train", settings=Settings(by="persona"))
    )
    assert sizes["session"] != sizes["persona"]


def test_a_single_file_by_persona(recurring):
    (recurring / "Persona_train.json").rename(recurring / "all.json")
    parts, report = build.build(
        build.locate(str(recurring / "all.json"), "valid"), Settings(by="persona")
    )
    found = [personas(part) for part in parts.values()]
    assert set(parts) == {"train", "valid", "test"}
    assert sum(map(len, found)) == len(set.union(*found)) == 60
    assert sum(report.dialogues.values()) == 300


def test_revised_personas(tmp_path):
    for version in ("original", "revised"):
        lines = f"1 your persona: {version}.\n2 hi\thello\n"
        (tmp_path / f"valid_self_{version}.txt").write_text(lines, encoding="utf-8")
    for task, version in (("", "original"), (":revised", "revised")):
        one = teacher(f"personachat_single_turn{task}", personachat_path=str(tmp_path))
        assert list(one.samples) == [Sample((f"{version}.",), "hi", "hello")]
    (tmp_path / "valid_self_revised.txt").unlink()
    with pytest.raises(PersonaAgentsError, match=r"holds no valid_self_revised.txt"):
        teacher("personachat_single_turn:revised", personachat_path=str(tmp_path))


def test_skipping_in_persona_chat(tmp_path):
    lines = "1 your persona: a.\n2 hi\thello\n3 no tab\n4 lost\tlost\n1 your persona: b.\n2 x\ty\n"
    (tmp_path / "valid_self_original.txt").write_text(lines, encoding="utf-8")
    settings = {"personachat_path": str(tmp_path), "skip_bad_lines": True}
    one = teacher("personachat_single_turn", **settings)
    assert [sample.response for sample in one.samples] == ["hello", "y"]
    from persona_agents.tasks.personachat_single_turn import build as personachat
    from persona_agents.tasks.personachat_single_turn.build import DataFile, Rule

    file = DataFile(str(tmp_path / "valid_self_original.txt"))
    _, report = personachat.build(file, "valid", Rule("en", 0), skip_bad=True)
    assert report.adds_up()
    assert report.skipped == {"no tab": 1, "after a bad line": 1}
    turns = report.pairs["valid"]["kept"] + report.notes["persona lines"]
    assert turns == report.read == 4
    assert json.dumps(report.to_dict())
