"""The input of the systems that are built on a GPT."""

from __future__ import annotations

from persona_agents.agents.history import PersonaHistory
from persona_agents.gpt_dictionary import ME, PARTNER


class GPTHistory(PersonaHistory):
    """A :class:`PersonaHistory` whose turns tell who speaks."""

    def encode(self, limit: int | None) -> tuple[list[int], int]:
        """
        ``<bos> p_1 … p_k <partner> turn <me> turn … <partner> query``; the partner speaks last.

        :param limit: greatest length, or None; :meth:`PersonaHistory.parts` says what is cut.
        :return: ids, and the length before anything was cut.
        """
        persona, turns, whole = self.parts(limit, n_special=1)
        speakers = [self.dict[PARTNER], self.dict[ME]]
        dialogue = [
            word
            for place, turn in enumerate(turns)
            for word in (speakers[(len(turns) - 1 - place) % 2], *turn)
        ]
        return [self.dict[self.dict.start_token], *persona, *dialogue], whole
