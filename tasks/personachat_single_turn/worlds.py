"""Chatting with a model: `parlai interactive -t personachat_single_turn` and `…:mini`."""

from __future__ import annotations

from persona_agents.tasks.content_words import Rule
from persona_agents.tasks.personachat_single_turn import build
from persona_agents.tasks.worlds import PersonaInteractiveWorld, distinct_personas


class InteractiveWorld(PersonaInteractiveWorld):
    """Draws the persona from the valid split."""

    def task_personas(self, opt):
        return distinct_personas(build.load(opt, "valid", Rule("en", 0)))


class InteractiveMiniWorld(PersonaInteractiveWorld):
    """Draws the persona from the bundled valid split."""

    def task_personas(self, opt):
        return distinct_personas(build.load_mini("valid"))
