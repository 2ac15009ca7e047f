"""The parser of persona lines."""

from __future__ import annotations

import pytest

from persona_agents.persona import Turn, format_turn, parse_turn, persona_of


def test_lines_are_sorted_out():
    text = "partner's persona: i ski.\nyour persona: i sew.\nyour persona: i sing.\nhi !\nwho are you ?"
    assert parse_turn(text) == Turn(("i sew.", "i sing."), ("i ski.",), "hi !\nwho are you ?")


def test_persona_lines_may_stand_anywhere():
    turn = parse_turn("hello\nyour persona: i sew.\nhow are you ?\npartner's persona: i ski.")
    assert turn == Turn(("i sew.",), ("i ski.",), "hello\nhow are you ?")


@pytest.mark.parametrize(
    "line",
    ["your persona：我住在海南", "Your Persona: 我住在海南", "  YOUR PERSONA :我住在海南 "],
)
def test_spelling_is_tolerated(line):
    assert parse_turn(f"{line}\n你好") == Turn(("我住在海南",), (), "你好")


def test_curly_apostrophe():
    assert parse_turn("partner’s persona: i ski.").partner_persona == ("i ski.",)


def test_mentioning_a_persona_is_no_persona_line():
    assert parse_turn("is this your persona: yes ?").query == "is this your persona: yes ?"


@pytest.mark.parametrize("text", ["", "\n", "your persona:", "your persona:  \n"])
def test_nothing(text):
    assert parse_turn(text) == Turn()


def test_format_and_parse_are_inverse():
    persona, query = ("我是老师。", "我有两只猫：黑的和白的"), "你好，\n你呢？"
    assert parse_turn(format_turn(persona, query)) == Turn(persona, (), query)
    assert format_turn((), "hi") == "hi"


def test_persona_of_a_message():
    assert persona_of({"text": "your persona: i sew.\nhi"}) == ("i sew.",)
    assert persona_of({"text": "hi"}) == ()
    assert persona_of({"text": None}) == ()
    assert persona_of({}) == ()


def test_persona_of_msc():
    as_text = "partner's persona: i ski.\nyour persona: i sew.\nyour persona: i sing."
    assert persona_of({"text": "hi", "personas": as_text}) == ("i sew.", "i sing.")
    as_lists = [["i ski."], ["i sew.", "your persona: i sing."]]
    assert persona_of({"text": "hi", "personas": as_lists}) == ("i sew.", "i sing.")
    assert persona_of({"text": "your persona: mine.\nhi", "personas": as_text}) == ("mine.",)
