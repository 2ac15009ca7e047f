"""Chats in Chinese: `parlai interactive -t cpc` and `parlai self_chat -t cpc`, and variants."""

from __future__ import annotations

from persona_agents.tasks.cpc import build
from persona_agents.tasks.worlds import PersonaInteractiveWorld, PersonaSelfChatWorld


class _RealData:
    language = "zh"

    def task_samples(self, opt):
        """The valid split, unfiltered."""
        return build.load_for(opt, "valid", build.settings_of(opt))


class _MiniData:
    language = "zh"

    def task_samples(self, opt):
        """The bundled valid split."""
        return build.load_mini("valid")


class InteractiveWorld(_RealData, PersonaInteractiveWorld):
    """A person and a model."""


class InteractiveMiniWorld(_MiniData, PersonaInteractiveWorld):
    """The same with personas of the bundled data."""


class SelfChatWorld(_RealData, PersonaSelfChatWorld):
    """A model and itself."""


class SelfChatMiniWorld(_MiniData, PersonaSelfChatWorld):
    """The same with personas of the bundled data."""


# ParlAI looks for Interactive<Variant>World when the task is written with a variant, in this
# spelling of the variant.
InteractiveRawWorld = InteractiveMulti_turnWorld = InteractiveOfficial_testWorld = InteractiveWorld
SelfChatRawWorld = SelfChatMulti_turnWorld = SelfChatOfficial_testWorld = SelfChatWorld
