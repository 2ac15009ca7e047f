"""Interactive worlds: the model is given a persona and the person sees it."""

from __future__ import annotations

import json

import pytest
from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.message import Message
from parlai.core.worlds import create_task
from parlai.scripts.interactive import setup_args
from persona_agents.tasks.cpc import build

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import Turn, parse_turn


class Person(RepeatLabelAgent):
    """Says two things a chat, the second of which ends it."""

    def __init__(self, opt):
        super().__init__(opt)
        self.said = 0

    def act(self):
        self.said += 1
        return Message(id="person", text=f"你好{self.said}", episode_done=self.said % 2 == 0)


class Model(RepeatLabelAgent):
    """Writes down what it is told."""

    def __init__(self, opt):
        super().__init__(opt)
        self.told = []

    def observe(self, observation):
        self.told.append(observation["text"])
        return super().observe(observation)


def chat(task, turns=2, **settings) -> list[Turn]:
    """What the model is told in the first turns, parsed."""
    opt = setup_args().parse_kwargs(task=task, model="repeat_label", **settings)
    model = Model(opt)
    world = create_task(opt, [Person(opt), model])
    for _ in range(turns):
        world.parley()
    return [parse_turn(text) for text in model.told]


def test_persona_option():
    first, second = chat("cpc:mini", persona="我是老师| 我住在海南 |")
    assert first == Turn(("我是老师", "我住在海南"), (), "你好1")
    assert second == Turn((), (), "你好2"), "as in ParlAI's tasks, only the first turn has it"


def test_persona_is_drawn_and_shown(capsys):
    turns = chat("cpc:mini", turns=4, seed=7)
    drawn = [turns[0].persona, turns[2].persona]
    known = {sample.persona for sample in build.load_mini("valid")}
    assert set(drawn) <= known
    assert drawn[0] != drawn[1], "the next chat has another persona"
    printed = capsys.readouterr().out
    assert all(line in printed for persona in drawn for line in persona)
    assert chat("cpc:mini", seed=7)[0].persona == drawn[0]
    assert len({chat("cpc:mini", seed=seed)[0].persona for seed in range(5)}) > 1


@pytest.mark.parametrize("task", ["cpc", "cpc:raw"])
def test_persona_of_the_real_data(tmp_path, task):
    dialogue = {"p1_persona": ["我 是 一"], "p2_persona": ["我 是 二"]}
    dialogue["conversation"] = ["p1 : 你好", "p2 : 你好"]
    (tmp_path / "Persona_dev.json").write_text(json.dumps(dialogue), encoding="utf-8")
    assert chat(task, cpc_path=str(tmp_path))[0].persona == ("我是二",)


def test_english_worlds(tmp_path):
    assert len(chat("personachat_single_turn:mini", seed=1)[0].persona) == 4
    lines = "1 your persona: i sew.\n2 hi\thello\n"
    (tmp_path / "valid_self_original.txt").write_text(lines, encoding="utf-8")
    turns = chat("personachat_single_turn", personachat_path=str(tmp_path))
    assert turns[0].persona == ("i sew.",)


def test_without_data_a_persona_can_be_given(tmp_path):
    with pytest.raises(PersonaAgentsError, match="To chat without the data give the persona"):
        chat("cpc", cpc_path=str(tmp_path))
    assert chat("cpc", cpc_path=str(tmp_path), persona="我是老师")[0].persona == ("我是老师",)
