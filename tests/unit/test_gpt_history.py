"""The input of the GPT systems: who speaks, over several turns, and what is cut from it."""

from __future__ import annotations

import gpt_models
import pytest
import tiny
from parlai.core.agents import create_agent_from_shared
from parlai.core.message import Message

from persona_agents.gpt_dictionary import ME, PARTNER
from persona_agents.persona import format_turn

PERSONA = ("i sew .", "my cat is old .")
P = ["i", "sew", ".", "my", "cat", "is", "old", "."]
START = "[CLS]"


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    corpus = tiny.write_corpus(folder, [(PERSONA, "hello you a b c d e", "yes no 我 喜 欢")] * 2)
    given = {**gpt_models.settings(), "model": "persona_agents:lic", "seed": 1}
    return tiny.new_agent(**corpus, **given, model_file=str(folder / "model"))


@pytest.fixture
def clone(agent):
    def make(**options):
        shared = agent.share()
        shared["opt"] = {**agent.opt, **options}
        return create_agent_from_shared(shared)

    return make


def hear(agent, text, persona=(), **fields):
    """What the agent reads when it has heard a turn."""
    message = Message(text=format_turn(persona, text), episode_done=False, **fields)
    return [agent.dict[i] for i in agent.observe(message)["text_vec"].tolist()]


def reply(agent, text):
    agent.self_observe(Message(text=text, episode_done=False))


def test_one_turn(clone):
    assert hear(clone(), "hello", PERSONA) == [START, *P, PARTNER, "hello"]
    assert hear(clone(), "我喜欢") == [START, PARTNER, "我", "喜", "欢"]
    assert hear(clone(), "", PERSONA) == [START, *P, PARTNER]


def test_speakers_take_turns_and_the_partner_speaks_last(clone):
    agent = clone(history_size=-1)
    hear(agent, "hello", PERSONA)
    reply(agent, "yes")
    assert hear(agent, "you") == [START, *P, PARTNER, "hello", ME, "yes", PARTNER, "you"]
    reply(agent, "no")
    heard = hear(agent, "hello hello")
    assert heard[-7:] == [PARTNER, "you", ME, "no", PARTNER, "hello", "hello"]


def test_history_size_counts_turns(clone):
    for size, expected in ((1, ["you"]), (2, ["yes", "you"]), (3, ["hello", "yes", "you"])):
        agent = clone(history_size=size)
        hear(agent, "hello", PERSONA)
        reply(agent, "yes")
        heard = hear(agent, "you")
        assert heard[: 1 + len(P)] == [START, *P], "the persona is no turn"
        assert [word for word in heard[1 + len(P) :] if word not in (ME, PARTNER)] == expected
        assert heard.count(PARTNER) + heard.count(ME) == size


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (20, [START, *P, PARTNER, "hello", ME, "yes", PARTNER, *"abcde"]),
        (16, [START, *P, ME, "yes", PARTNER, *"abcd"]),
        (15, [START, *P, PARTNER, *"abcde"]),
        (12, [START, *P, PARTNER, "d", "e"]),
        (6, [START, *P[:4], PARTNER]),
    ],
)
def test_oldest_turns_go_first_then_the_query_then_the_persona(clone, limit, expected):
    agent = clone(history_size=-1, text_truncate=limit)
    last = "a b c d e" if limit != 16 else "a b c d"
    hear(agent, "hello", PERSONA)
    reply(agent, "yes")
    assert hear(agent, last) == expected
    assert agent.observation["context_truncate_rate"] is (limit != 20)


def test_the_persona_survives_fifty_turns(clone):
    agent = clone(history_size=3, text_truncate=16)
    hear(agent, "hello", PERSONA)
    for _ in range(50):
        reply(agent, "yes")
        assert hear(agent, "you")[: 1 + len(P)] == [START, *P]
