"""Chatting with a model: `parlai interactive -t cpc`, `-t cpc:raw` and `-t cpc:mini`."""

from __future__ import annotations

from persona_agents.tasks.cpc import build
from persona_agents.tasks.worlds import PersonaInteractiveWorld, distinct_personas


class InteractiveWorld(PersonaInteractiveWorld):
    """Draws the persona from the valid split."""

    def task_personas(self, opt):
        return distinct_personas(build.load(build.folder_of(opt), "valid", minimum=0))


# ParlAI looks for Interactive<Variant>World when the task is written with a variant.
InteractiveRawWorld = InteractiveWorld


class InteractiveMiniWorld(PersonaInteractiveWorld):
    """Draws the persona from the bundled valid split."""

    def task_personas(self, opt):
        return distinct_personas(build.load_mini("valid"))
