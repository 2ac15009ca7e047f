"""Rows that no model stands behind: what a metric says of them tells what it can tell.

They are agents like any other, evaluated by the same command. Gold and constant reply are ParlAI's
own `repeat_label` and `fixed_response`.
"""

from __future__ import annotations

from parlai.core.agents import Agent
from parlai.core.message import Message

from persona_agents.persona import persona_of
from persona_agents.table.config import ANCHORS, CONSTANT, Config, System, Task
from persona_agents.table.others import messages
from persona_agents.text import task_language


def systems(config: Config, task: Task) -> list[System]:
    """The anchor rows of a task."""
    constant = config.constant_reply or CONSTANT[task_language(task.name)]
    agents = (
        ("repeat_label", {}),
        (f"{__name__}:ShuffledGoldAgent", {}),
        (f"{__name__}:EchoPersonaAgent", {}),
        ("fixed_response", {"fixed_response": constant}),
    )
    return [
        System(name, name, model, None, options, (0,), {}, train=False, kind="anchor")
        for name, (model, options) in zip(ANCHORS, agents)
    ]


class EchoPersonaAgent(Agent):
    """Says the first sentence of its persona, whatever it is asked."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "EchoPersona"

    def act(self):
        persona = persona_of(self.observation)
        return Message(id=self.id, text=persona[0] if persona else "", episode_done=False)


class ShuffledGoldAgent(Agent):
    """Says the gold reply of another sample, the one half the data away."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "ShuffledGold"
        self.other = shared["other"] if shared else _shuffled(opt)

    def share(self):
        return {**super().share(), "other": self.other}

    def act(self):
        text = self.other.get(_key(self.observation), "")
        return Message(id=self.id, text=text, episode_done=False)


def _labels(message) -> tuple[str, ...]:
    return tuple(message.get("labels") or message.get("eval_labels") or ())


def _key(message) -> tuple[str, tuple[str, ...]]:
    return message.get("text") or "", _labels(message)


def _shuffled(opt) -> dict:
    """For each turn of the data the first gold reply of the turn half the data away."""
    turns = [message for message in messages(opt) if _labels(message)]
    half = len(turns) // 2
    return {
        _key(turn): _labels(other)[0] for turn, other in zip(turns, turns[half:] + turns[:half])
    }
