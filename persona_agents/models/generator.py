"""What training and search call on a model that generates or copies each word."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from persona_agents.models import copy

PERSONA, QUERY = 0, 1  # BERT segments; the response is spoken by the persona's owner: segment 0


class SpecialIds(NamedTuple):
    """Ids of BERT's special tokens."""

    pad: int
    start: int  # [CLS]
    end: int  # [SEP]
    unknown: int


class CopyingModel(nn.Module):
    """
    Scores responses by the mixture of ``copy.py``, under teacher forcing and word by word.

    Shapes: B batch, S source length, T target length, V vocabulary. Sub-classes set ``special``
    (:class:`SpecialIds`) and implement

    * ``encoder(ids)``: input (B, S) -> what the decoder reads of it, with ``ids`` and ``select(rows)``,
    * ``decode(ids, encoded, cache=None)``: response so far (B, T), beginning with [CLS], after the
      positions in the cache -> the decoder's states, with the new ``cache``,
    * ``distribution(decoded, encoded)``: logits (B, T, V), modes and sources of ``copy.py``; without
      a copy mechanism the latter two are None.
    """

    # Whether the k beams of an input, R = B k rows in all, can read one copy of what is encoded.
    beams_share_input = False

    def forward(self, ids: torch.Tensor, ys: torch.Tensor):
        """
        Teacher forcing.

        :param ids: (B, S) inputs; ``ys`` (B, T) responses that end in [SEP], padded.
        :return: log p_response(y) (B, T, 1), the most probable words (B, T), and the encoded input.
        """
        encoded = self.encoder(ids)
        log_prob, best = self.score(encoded, ys)
        return log_prob.unsqueeze(-1), best, encoded

    def score(self, encoded, ys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """log p_response(y) (B, T) under teacher forcing, and the most probable words (B, T)."""
        return self._score(self.decode(self._shift_right(ys), encoded), encoded, ys)

    def _score(self, decoded, encoded, ys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, modes, sources = self.distribution(decoded, encoded)
        log_p = copy.log_decode(logits)  # (B, T, V)
        with torch.no_grad():
            best = copy.best_word(log_p, modes, sources)
        return copy.target_log_prob(log_p, ys, modes, sources), best

    def explain(self, encoded, ys: torch.Tensor) -> copy.Explanation:
        """
        Where each word of the responses ``ys`` (B, T) comes from, by one teacher-forced pass.

        :raise ValueError: for a model that does not copy.
        """
        decoded = self.decode(self._shift_right(ys), encoded)
        logits, modes, sources = self.distribution(decoded, encoded)
        if modes is None:
            raise ValueError("A model without a copy mechanism generates every word.")
        words, segments = self.words(encoded.ids), self.segments(encoded.ids)
        query, persona = words & segments.eq(QUERY), words & segments.eq(PERSONA)
        return copy.explain(logits, ys, modes, self.at_input(sources, encoded), query, persona)

    def at_input(self, sources, encoded):
        """The sources over the S positions of the input, for models whose own are others."""
        return sources

    def decode_forced(self, encoded, ys: torch.Tensor):
        """The whole mixture under teacher forcing: log-probabilities (B, T, V) and argmax."""
        log_probs, _ = self.decoder(self._shift_right(ys), encoded)
        return log_probs, log_probs.argmax(dim=-1)

    def words(self, ids: torch.Tensor) -> torch.Tensor:
        """Where inputs (B, S) hold words, [UNK] among them: bool (B, S), special tokens excluded."""
        special = self.special
        return ids.ne(special.pad) & ids.ne(special.start) & ids.ne(special.end)

    def segments(self, ids: torch.Tensor) -> torch.Tensor:
        """Segment of each input position (B, S): the query's begins at the second [CLS]."""
        return (ids.eq(self.special.start).cumsum(dim=1) > 1).long()

    def _shift_right(self, ys: torch.Tensor) -> torch.Tensor:
        # target g_1 … g_m [SEP]  ->  decoder input [CLS] g_1 … g_m
        start = ys.new_full((ys.size(0), 1), self.special.start)
        return torch.cat((start, ys[:, :-1]), dim=1)

    def decoder(self, ids: torch.Tensor, encoded, cache=None):
        """
        Log-probabilities of the next words, for search.

        :param ids: (R, T) the whole responses so far; with a cache only the last word is read.
            R = B, or B k if ``beams_share_input``.
        :return: (R, T, V), or (R, 1, V) with a cache, and the new cache.
        """
        if cache is not None:
            ids = ids[:, -1:]
        decoded = self.decode(ids, encoded, cache)
        scores = copy.mixture(*self.distribution(decoded, encoded))
        return scores.reshape(*ids.shape, -1), decoded.cache

    def output(self, log_probs: torch.Tensor) -> torch.Tensor:
        """Identity: the decoder's scores are log-probabilities already."""
        return log_probs

    def reorder_encoder_states(self, encoded, rows):
        """Rows of the encoded batch, in the order ``rows``."""
        return encoded.select(torch.as_tensor(rows, device=encoded.ids.device))
