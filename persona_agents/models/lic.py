"""
LIC: the multi-input Transformer of "Large-Scale Transfer Learning for Natural Language Generation"
(Golovanov et al., ACL 2019), the system "Lost in Conversation".

One set of GPT weights is encoder and decoder. Persona and query are encoded apart; in each block of
the decoder the same attention looks at the reply so far, at the persona and at the query, and the
results are averaged.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F

from persona_agents.models.attention import KeyValue, at_least_float32
from persona_agents.models.gpt import Decoded, GPTGenerator, causal


class Encoded(NamedTuple):
    """What the decoder reads of one batch of inputs; every field's first dimension is B."""

    ids: torch.Tensor  # (B, S)
    persona: torch.Tensor  # (B, S) bool: positions of the persona; none without persona sentences
    query: torch.Tensor  # (B, S) bool: positions of the dialogue turns
    keys: list[KeyValue]  # of each block, (B, H, S, d/H)

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed (beams of one input)."""
        parts = (part.index_select(0, rows) for part in self[:3])
        return Encoded(*parts, [source.select(rows) for source in self.keys])


class LIC(GPTGenerator):
    """The multi-input Transformer; :class:`GPTGenerator` says what it is built from."""

    # -- encoder ---------------------------------------------------------------------------------

    def sources(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions (B, S) of persona and query; a source without words has none."""
        real, word = ids.ne(self.special.pad), self.words(ids)
        second = self.speakers(ids).cumsum(dim=1) > 0
        return tuple(
            real & part & (word & part).any(dim=1, keepdim=True) for part in (~second, second)
        )

    def encode_sources(self, ids, persona, query, see_all: bool) -> torch.Tensor:
        """
        Hidden states (B, S, d): each source apart, from position 0, by the shared blocks.

        Both go through in one pass: no position sees the other source.

        :param see_all: without the causal mask, as the decoder reads them.
        """
        mask = (persona[:, :, None] & persona[:, None]) | (query[:, :, None] & query[:, None])
        if not see_all:
            mask = mask & causal(ids.size(1), ids.size(1), ids.device)
        counted = torch.where(persona, persona.cumsum(dim=1), query.cumsum(dim=1))
        positions = (counted - 1).clamp_min(0)  # (B, S)
        return self.gpt(self.gpt.embed(ids, positions), mask)[0]

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Input ids (B, S) -> what the decoder reads of them."""
        persona, query = self.sources(ids)
        hidden = self.encode_sources(ids, persona, query, see_all=True)
        keys = [self.gpt.project(block, hidden)[1] for block in self.gpt.blocks]
        return Encoded(ids, persona, query, keys)

    # -- decoder ---------------------------------------------------------------------------------

    def decode(self, ids: torch.Tensor, encoded: Encoded, cache=None) -> Decoded:
        """Reply so far (B, T), beginning with <bos>, after the positions in the cache."""
        offset = 0 if cache is None else cache[0].key.size(2)
        length = ids.size(1)
        positions = torch.arange(offset, offset + length, device=ids.device).unsqueeze(0)
        h = self.gpt.embed(ids, positions)  # (B, T, d)
        visible = causal(length, offset + length, ids.device)
        masks = [source.unsqueeze(1) for source in (encoded.persona, encoded.query)]  # (B, 1, S)
        present = [mask.any(dim=2, keepdim=True) for mask in masks]  # (B, 1, 1)
        count = 1 + sum(there.to(h.dtype) for there in present)
        new_cache = []
        for i, block in enumerate(self.gpt.blocks):

            def look_everywhere(x, i=i, block=block):
                query, own = self.gpt.project(block, x)
                new_cache.append(own if cache is None else cache[i].append(own))
                context = self.gpt.look(block, query, new_cache[i], visible)
                for mask in masks:  # an absent source gives zero
                    context = context + self.gpt.look(block, query, encoded.keys[i], mask)
                # The mean may be taken before the output projection, which is linear.
                return context / count

            h = self.gpt.run_block(block, h, look_everywhere)
        return Decoded(self.gpt.finish(h), new_cache)

    # -- training --------------------------------------------------------------------------------

    def source_loss(self, ids: torch.Tensor) -> torch.Tensor:
        """
        The auxiliary loss: the GPT as a language model of its sources.

        It needs the causal mask, so the sources are read once more. Mean over the words of persona
        and of query, then over both; special tokens are given, not asked for.
        """
        sources = self.sources(ids)
        hidden = self.encode_sources(ids, *sources, see_all=False)
        losses = []
        for source in sources:
            asked = source[:, :-1] & source[:, 1:] & self.words(ids)[:, 1:]  # (B, S - 1)
            if asked.any():
                logits = self.gpt.logits(hidden[:, :-1][asked])  # (words, V)
                losses.append(F.cross_entropy(at_least_float32(logits), ids[:, 1:][asked]))
        if not losses:
            return hidden.sum() * 0.0
        return torch.stack(losses).mean()

    def forward(self, ids: torch.Tensor, with_source_loss: bool = False, *, ys: torch.Tensor):
        """As any :class:`CopyingModel`; with the auxiliary loss as a fourth result if asked for."""
        result = super().forward(ids, ys)
        return (*result, self.source_loss(ids)) if with_source_loss else result
