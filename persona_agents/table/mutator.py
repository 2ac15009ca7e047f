"""`--mutators swap_persona`: every query is asked of somebody else."""

from __future__ import annotations

from parlai.core.mutators import EpisodeMutator, register_mutator

from persona_agents.persona import parse_turn
from persona_agents.table.others import OtherPersonas


@register_mutator("swap_persona")
class SwapPersonaMutator(EpisodeMutator):
    """
    Gives every episode another one's persona, always the same one (see `OtherPersonas`).

    Only `your persona:` lines in the text are replaced. Queries and labels stay.
    """

    _others = None

    def episode_mutation(self, episode):
        """The episode's messages, with the other persona's lines first where there were any."""
        for message in episode:
            persona = parse_turn(message.get("text") or "").persona
            if persona:
                if self._others is None:  # here, since a teacher's options may still change
                    self._others = OtherPersonas(self.opt)
                message.force_set("text", _with_persona(message["text"], self._others.of(persona)))
        return episode


def _with_persona(text: str, persona) -> str:
    lines = [line for line in text.splitlines() if not parse_turn(line).persona]
    return "\n".join([*(f"your persona: {sentence}" for sentence in persona), *lines])
