"""Swapped personas and anchor rows on the bundled corpora and on ParlAI-like messages."""

from __future__ import annotations

import subprocess

import pytest
import tiny
from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.mutators import MUTATOR_REGISTRY, setup_mutator_registry
from parlai.core.opt import Opt
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.core.worlds import create_task
from parlai.scripts.eval_model import setup_args

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn
from persona_agents.table import others, pictures, record
from persona_agents.table.render import Cell, Column, Row, Table

ANCHORS = "persona_agents.table.anchors"


def options(**settings) -> Opt:
    return setup_args().parse_kwargs(**{"datatype": "test", **tiny.QUIET, **settings})


def messages(**settings) -> list:
    """All messages of a task, as its teacher gives them."""
    (teacher,) = create_task_agent_from_taskname(options(**settings))
    found = []
    while not teacher.epoch_done():
        found.append(teacher.act())
    return found


def exchanges(**settings) -> list[tuple]:
    """(message, answer) of an agent that is evaluated on the test split."""
    opt = options(**settings)
    world = create_task(opt, create_agent(opt))
    found = []
    while not world.epoch_done():
        world.parley()
        acts = world.get_acts()
        found += zip(*acts) if opt["batchsize"] > 1 else [tuple(acts)]
    return [pair for pair in found if "text" in pair[0]]


class TestSwappedPersonas:
    @pytest.mark.parametrize("task", ["cpc:mini", "personachat_single_turn:mini"])
    def test_everybody_gets_somebody_else_s(self, task):
        own, other = messages(task=task), messages(task=task, mutators="swap_persona")
        assert len(own) == len(other) > 100
        personas = {parse_turn(message["text"]).persona for message in own}
        for before, after in zip(own, other):
            one, two = parse_turn(before["text"]), parse_turn(after["text"])
            assert not set(one.persona) & set(two.persona) and two.persona in personas
            assert one.query == two.query and before["eval_labels"] == after["eval_labels"]
            assert after["episode_done"]

    def test_the_same_whatever_the_batch(self):
        def texts(size):
            settings = {"mutators": "swap_persona", "batchsize": size, "model": "repeat_query"}
            return sorted(asked["text"] for asked, _ in exchanges(task="cpc:mini", **settings))

        assert texts(1) == texts(16)

    def test_training_data_too(self):
        message = messages(task="cpc:mini", datatype="train:evalmode", mutators="swap_persona")[0]
        assert parse_turn(message["text"]).persona

    def test_is_known_to_parlai(self):
        setup_mutator_registry()
        assert "swap_persona" in MUTATOR_REGISTRY

    def test_whole_dialogues_and_lines_in_between(self, monkeypatch):
        said = [
            Message(text="your persona: a\nhi", episode_done=False),
            Message(text="and ?", episode_done=True),
            Message(text="your persona: b\npartner's persona: c\nhi", episode_done=True),
        ]
        monkeypatch.setattr(others, "messages", lambda opt: iter(said))
        mutate = MUTATOR_REGISTRY["swap_persona"](Opt(task="x"))
        found = [m["text"] for m in mutate([m.copy() for m in said])]
        assert found == [
            "your persona: b\nhi",
            "and ?",
            "your persona: a\npartner's persona: c\nhi",
        ]

    def test_one_that_shares_a_sentence_is_passed_over(self, monkeypatch):
        personas = [("a", "b"), ("c",), ("b", "d"), ("e",)]
        said = [Message(text="\n".join(f"your persona: {s}" for s in p)) for p in personas]
        monkeypatch.setattr(others, "messages", lambda opt: iter(said))
        chosen = others.OtherPersonas(Opt(task="x"))
        assert [chosen.of(persona) for persona in personas] == [("e",), ("e",), ("c",), ("c",)]

    @pytest.mark.parametrize("texts", [["hi"], ["your persona: a\nhi"] * 3])
    def test_nobody_to_swap_with(self, monkeypatch, texts):
        monkeypatch.setattr(others, "messages", lambda opt: (Message(text=t) for t in texts))
        with pytest.raises(PersonaAgentsError, match="none to swap with"):
            others.OtherPersonas(Opt(task="a_task"))


class TestAnchors:
    def test_echoed_persona(self):
        pairs = exchanges(task="cpc:mini", batchsize=8, model=f"{ANCHORS}:EchoPersonaAgent")
        assert pairs
        for asked, said in pairs:
            assert said["text"] == parse_turn(asked["text"]).persona[0]

    def test_shuffled_gold(self):
        pairs = exchanges(task="cpc:mini", batchsize=8, model=f"{ANCHORS}:ShuffledGoldAgent")
        gold = [asked["eval_labels"][0] for asked, _ in pairs]
        said = [answer["text"] for _, answer in pairs]
        assert sorted(said) == sorted(gold), "each gold reply once"
        assert sum(a == b for a, b in zip(said, gold)) < len(gold) / 10

    def test_nothing_observed_nothing_said(self):
        agent = create_agent(options(task="cpc:mini", model=f"{ANCHORS}:EchoPersonaAgent"))
        agent.observe(Message(text="hi", episode_done=True))
        assert agent.act()["text"] == ""


class TestPictures:
    COLUMNS = (Column("p_cover", "P-Cover", 100), Column("ppl", "ppl"))

    def test_bars(self, tmp_path):
        rows = (Row("金标", {"p_cover": Cell(0.5, 0.1)}, 1), Row("failed", {}, 0))
        table = Table("t", "标题", self.COLUMNS, rows)
        assert pictures.bars(table, tmp_path / "bars.png")
        assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")

    def test_nothing_to_draw(self, tmp_path):
        table = Table("t", "x", self.COLUMNS, (Row("a", {"ppl": Cell(1.0)}, 1),))
        assert not pictures.bars(table, tmp_path / "bars.png")
        assert not pictures.curves({"a": [[]]}, "x", tmp_path / "curves.png")
        assert not list(tmp_path.iterdir())

    def test_curves(self, tmp_path):
        points = [
            {"epochs": 1.0, "steps": 5, "ppl": 30.0},
            {"epochs": 2.0, "steps": 10, "ppl": 20.0},
        ]
        assert pictures.curves({"模型": [points, points], "b": [[]]}, "x", tmp_path / "c.png")
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


class TestRecord:
    def test_versions(self):
        found = record.versions()
        assert found["parlai"] == "1.7.2" and found["torch"] and found["python"].startswith("3.")

    def test_git_state(self, tmp_path):
        def git(*arguments):
            identity = ["-c", "user.name=x", "-c", "user.email=x@y"]
            subprocess.run(
                ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True
            )

        git("init")
        file = tmp_path / "a.py"
        file.write_text("1", encoding="utf-8")
        assert record.git_state(file) is None, "a file that the repository does not know"
        git("add", "a.py")
        git("commit", "-m", "x")
        found = record.git_state(file)
        assert len(found["commit"]) == 40 and found["changed_files"] == 0
        file.write_text("2", encoding="utf-8")
        assert record.git_state(file)["changed_files"] == 1
