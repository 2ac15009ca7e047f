"""Interactive worlds: the model is given a persona and the person sees it."""

from __future__ import annotations

import json

import pytest
from parlai.agents.local_human.local_human import LocalHumanAgent
from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.message import Message
from parlai.core.worlds import create_task
from parlai.scripts import self_chat
from parlai.scripts.interactive import setup_args
from persona_agents.tasks.cpc import build

from persona_agents.agents.history import PersonaHistory
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import Turn, parse_turn
from tests.unit.corpora import variant, write


class Person(RepeatLabelAgent):
    """Says two things a chat, the second of which ends it; or what it is given to say."""

    def __init__(self, opt, lines=None):
        super().__init__(opt)
        self.said, self.lines = 0, lines

    def act(self):
        self.said += 1
        if self.lines is None:
            return Message(id="person", text=f"你好{self.said}", episode_done=self.said % 2 == 0)
        return Message(id="person", text=self.lines.pop(0), episode_done=False)


class Model(RepeatLabelAgent):
    """Writes down what it is told."""

    def __init__(self, opt):
        super().__init__(opt)
        self.told = []

    def observe(self, observation):
        self.told.append(observation["text"])
        return super().observe(observation)


def chat(task, turns=2, lines=None, **settings) -> list[Turn]:
    """What the model is told in the first turns, parsed."""
    opt = setup_args().parse_kwargs(task=task, model="repeat_label", **settings)
    model = Model(opt)
    world = create_task(opt, [Person(opt, lines), model])
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


# The middle of a chat


class WordlessHistory(PersonaHistory):
    """Needs no dictionary."""

    def parse(self, text):
        return []


def test_another_persona_in_the_middle(capsys):
    lines = ["你好", "/人设 我叫王明｜我住在青云镇", "你叫什么？", "是吗？"]
    first, second, third = chat("cpc:mini", 3, lines, persona="我是老师")
    assert first == Turn(("我是老师",), (), "你好")
    assert second == Turn(("我叫王明", "我住在青云镇"), (), "你叫什么？")
    assert third == Turn((), (), "是吗？"), "the model is told once"
    history = WordlessHistory({})
    for text in ("your persona: 我是老师\n你好", "your persona: 我叫王明\n你叫什么？", "是吗？"):
        history.update_history({"text": text})
    assert history.persona == ("我叫王明",), "and knows it from then on"
    assert history.history_strings == ["你好", "你叫什么？", "是吗？"]
    assert "[ 模型的人设 ]\n  我叫王明\n  我住在青云镇" in capsys.readouterr().out


def test_drawing_another_persona_in_the_middle(capsys):
    first, second = chat("cpc:mini", 2, ["你好", "/换", "你叫什么？"], seed=1)
    assert second.query == "你叫什么？"
    assert len(second.persona) == 4 and second.persona != first.persona
    # Without data to draw from the chat goes on as it was.
    lines = ["/draw", "你好"]
    (turn,) = chat("cpc", 1, lines, persona="我是老师", cpc_path="nowhere")
    assert turn.persona == ("我是老师",) and turn.query == "你好"
    assert "To chat without the data" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/persona", "[ The model's persona ]\n  i sew."),
        ("/人设", "[ The model's persona ]\n  i sew."),
        ("/help", "/draw draws one"),
        ("/what now", "There is no command /what now."),
        ("/", "There is no command /."),
    ],
)
def test_commands_say_nothing_to_the_model(capsys, command, shown):
    task = "personachat_single_turn:mini"
    turns = chat(task, 2, ["hi", command, "hello"], persona="i sew.")
    assert [turn.query for turn in turns] == ["hi", "hello"]
    assert turns[1].persona == ()
    assert shown in capsys.readouterr().out.split("i sew.", 1)[1]


def test_the_person_may_have_a_persona(capsys):
    turns = chat("cpc:mini", persona="我是老师", partner_persona="我是医生|我有猫")
    assert turns[0].partner_persona == () and turns[0].persona == ("我是老师",)
    assert "[ 你的人设 ]\n  我是医生\n  我有猫" in capsys.readouterr().out
    chat("cpc:mini", persona="我是老师", partner_persona="draw", seed=3)
    drawn = capsys.readouterr().out.split("[ 你的人设 ]\n")[1].splitlines()[:4]
    known = {sample.persona for sample in build.load_mini("valid")}
    assert tuple(line.strip() for line in drawn) in known


def test_personas_of_a_file(tmp_path):
    path = tmp_path / "personas.txt"
    path.write_text("我是老师|我有猫\n\n我是医生\n", encoding="utf-8")
    turns = chat("cpc", 20, cpc_path="nowhere", persona_file=str(path), seed=1)
    drawn = {turn.persona for turn in turns} - {()}
    assert drawn == {("我是老师", "我有猫"), ("我是医生",)}
    path.write_text("\n", encoding="utf-8")
    for name, message in ((path, "holds no persona"), (tmp_path / "no", "cannot be read")):
        with pytest.raises(PersonaAgentsError, match=message):
            chat("cpc", persona_file=str(name))


@pytest.mark.parametrize("task", ["cpc:mini", "personachat_single_turn:mini"])
def test_the_interface_speaks_the_language(monkeypatch, capsys, task):
    typed = iter(["你好", "[DONE]", "好", "[EXIT]"])
    prompts = []

    def type_in(prompt):
        prompts.append(prompt)
        return next(typed)

    monkeypatch.setattr("builtins.input", type_in)
    opt = setup_args().parse_kwargs(task=task, model="repeat_label")
    human, model = LocalHumanAgent(opt), Model(opt)
    world = create_task(opt, [human, model])
    capsys.readouterr()
    while not world.epoch_done():
        world.parley()
    out = capsys.readouterr().out + "".join(prompts)
    assert [parse_turn(text).query for text in model.told] == ["你好", "好"]
    if task == "cpc:mini":
        assert prompts == ["请输入："] * 4
        assert "对话结束。新的对话开始。" in out
        assert "your persona" not in out and "Enter" not in out and "CHAT" not in out
    else:
        assert all("Enter Your Message" in prompt for prompt in prompts)
        assert "A new one begins." in out


def test_end_of_input_ends_the_chat(monkeypatch):
    def end(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    opt = setup_args().parse_kwargs(task="cpc:mini", model="repeat_label")
    world = create_task(opt, [LocalHumanAgent(opt), Model(opt)])
    world.parley()
    assert world.epoch_done()


# A model with itself


def self_chat_world(task="cpc:mini", **settings):
    opt = self_chat.setup_args().parse_kwargs(task=task, model="repeat_label", **settings)
    sides = [Model(opt), Model(opt)]
    return create_task(opt, sides), sides


def test_self_chat_gives_each_side_a_persona():
    world, sides = self_chat_world(seed=1)
    for _ in range(3):
        world.parley()
    known = {sample.persona for sample in build.load_mini("valid")}
    personas = [parse_turn(side.told[0]).persona for side in sides]
    assert set(personas) <= known and personas[0] != personas[1]
    opener = sides[1].told[1]
    assert opener in {sample.query for sample in build.load_mini("valid")}
    assert [parse_turn(text).persona for text in sides[1].told[1:]] == [()] * (
        len(sides[1].told) - 1
    )


def test_self_chat_with_given_personas_needs_no_data(capsys):
    settings = {"persona": "我是老师", "partner_persona": "我是医生|我有猫", "cpc_path": "nowhere"}
    world, sides = self_chat_world("cpc", **settings)
    world.parley()
    assert [parse_turn(side.told[0]).persona for side in sides] == [
        ("我是老师",),
        ("我是医生", "我有猫"),
    ]
    assert "人设：我是老师" in world.display() and "your persona" not in world.display()
    world.parley()
    assert sides[1].told[1] == "你好！"


def test_self_chat_another_persona_in_the_middle():
    world, sides = self_chat_world(persona="我是老师", partner_persona="我是医生")
    for _ in range(2):
        world.parley()
    world.set_persona(1, ("我是律师",))
    world.parley()
    personas = [parse_turn(text).persona for text in sides[1].told]
    assert [persona for persona in personas if persona] == [("我是医生",), ("我是律师",)]


def test_self_chat_openers(tmp_path):
    (tmp_path / "openers.txt").write_text("在吗？\n", encoding="utf-8")
    world, sides = self_chat_world(seed_messages_from_file=str(tmp_path / "openers.txt"))
    for _ in range(2):
        world.parley()
    assert sides[1].told[1] == "在吗？"
    write(tmp_path, [variant()])
    world, sides = self_chat_world(
        "cpc", cpc_path=str(tmp_path), seed_messages_from_task=True, persona="我是老师"
    )
    for _ in range(2):
        world.parley()
    assert sides[1].told[1] in ("你好，你喜欢什么？", "我爱听 rap 音乐。")


@pytest.mark.parametrize(
    "task", ["cpc:raw", "cpc:multi_turn", "cpc:official_test", "personachat_single_turn:revised"]
)
def test_every_variant_has_both_worlds(tmp_path, task):
    write(tmp_path, [variant()])
    lines = "1 your persona: i sew.\n2 hi\thello\n"
    (tmp_path / "valid_self_revised.txt").write_text(lines, encoding="utf-8")
    key = "personachat_path" if task.startswith("persona") else "cpc_path"
    assert chat(task, **{key: str(tmp_path)})[0].persona
    world, sides = self_chat_world(task, **{key: str(tmp_path)})
    world.parley()
    assert parse_turn(sides[0].told[0]).persona
