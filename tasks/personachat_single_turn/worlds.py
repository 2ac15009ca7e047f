"""Chats in English: `parlai interactive -t personachat_single_turn`, `parlai self_chat …`."""

from __future__ import annotations

from persona_agents.tasks.content_words import Rule
from persona_agents.tasks.personachat_single_turn import build
from persona_agents.tasks.worlds import PersonaInteractiveWorld, PersonaSelfChatWorld


class _RealData:
    version = "original"

    def task_samples(self, opt):
        """The valid split, unfiltered."""
        return build.load(opt, "valid", Rule("en", 0), self.version)


class _MiniData:
    def task_samples(self, opt):
        """The bundled valid split."""
        return build.load_mini("valid")


class InteractiveWorld(_RealData, PersonaInteractiveWorld):
    """A person and a model."""


class InteractiveRevisedWorld(InteractiveWorld):
    """The same with revised personas."""

    version = "revised"


class InteractiveMiniWorld(_MiniData, PersonaInteractiveWorld):
    """The same with personas of the bundled data."""


class SelfChatWorld(_RealData, PersonaSelfChatWorld):
    """A model and itself."""


class SelfChatRevisedWorld(SelfChatWorld):
    """The same with revised personas."""

    version = "revised"


class SelfChatMiniWorld(_MiniData, PersonaSelfChatWorld):
    """The same with personas of the bundled data."""
