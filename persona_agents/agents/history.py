"""Persona, dialogue turns and the encoder's input sequence (eq. 2), kept for a whole episode."""

from __future__ import annotations

from parlai.core.torch_agent import History

from persona_agents.persona import parse_turn, persona_of


class PersonaHistory(History):
    """
    ParlAI's history with the persona kept apart from the turns.

    Most ParlAI tasks give the persona in the first turn only, and ParlAI's own history then loses
    it to ``--history-size`` or to truncation. Here it is taken from the raw text of a turn, stays
    until another one is given or the episode ends, and is never counted as a turn.
    """

    def reset(self):
        super().reset()
        self.persona = ()

    persona: tuple[str, ...] = ()

    def update_history(self, obs, temp_history=None):
        """Take in what the other speaker said; a message may bring the persona alone."""
        self.persona = persona_of(obs) or self.persona
        query = parse_turn(obs.get(self.field) or "").query
        if query:
            super().add_reply(query)  # parses and stores it, and drops what is too old
        self.temp_history = temp_history

    def get_history_str(self):
        """Persona and turns as text, None before anything was said."""
        lines = [*self.persona, *self.history_strings]
        return "\n".join(lines) if lines else None

    def get_history_vec(self):
        """The whole input sequence, uncut."""
        return self.encode(None)[0]

    def encode(self, limit: int | None) -> tuple[list[int], int]:
        """
        ``[CLS] p_1 … p_k [SEP] [CLS] q [SEP]`` (eq. 2), every earlier turn closed by [SEP] too.

        :param limit: greatest length, or None; :meth:`parts` says what is cut.
        :return: ids, and the length before anything was cut.
        """
        start, end = self.dict[self.dict.start_token], self.dict[self.dict.end_token]
        persona, turns, whole = self.parts(limit, n_special=3)
        query = [word for turn in turns for word in (*turn, end)]
        return [start, *persona, end, start, *query], whole

    def parts(self, limit: int | None, n_special: int):
        """
        Ids of the persona's words and of each turn, cut to a length.

        Too long an input loses its oldest turns first, then the beginning of the query, and only
        then the end of the persona.

        :param limit: greatest length of the input, or None.
        :param n_special: special tokens in it, beside one for each turn.
        :return: the persona's ids, a list of ids for each turn (at least one), and the input's
            length before anything was cut.
        """
        persona = [word for sentence in self.persona for word in self.parse(sentence)]
        turns = [list(turn) for turn in self.history_vecs] or [[]]
        if self.temp_history:
            turns[-1] += self.parse(self.temp_history)

        def length():
            return n_special + len(persona) + sum(len(turn) + 1 for turn in turns)

        whole = length()
        if limit is not None:
            while length() > limit and len(turns) > 1:
                turns.pop(0)
            excess = max(0, length() - limit)
            from_query = min(excess, len(turns[0]))
            turns[0] = turns[0][from_query:]
            persona = persona[: max(0, len(persona) - (excess - from_query))]
        return persona, turns, whole
