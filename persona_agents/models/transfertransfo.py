"""
TransferTransfo (Wolf et al., arXiv 1901.08149): a GPT that continues persona and dialogue.

Persona, dialogue and reply are one sequence. Every token carries, beside word and position, the
embedding of its segment: persona, the owner's turns or the partner's. A second head reads the last
token of a reply and tells the reply that was given from distractors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from persona_agents.models.attention import KeyValue
from persona_agents.models.gpt import Decoded, GPTGenerator, SpecialIds, causal


class Encoded(NamedTuple):
    """The sequence up to the reply; every field's first dimension is B."""

    ids: torch.Tensor  # (B, S)
    real: torch.Tensor  # (B, S) bool: no padding
    keys: list[KeyValue]  # of each block, (B, H, S, d/H)

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed."""
        parts = (part.index_select(0, rows) for part in self[:2])
        return Encoded(*parts, [source.select(rows) for source in self.keys])


class TransferTransfo(GPTGenerator):
    """
    :param double_heads: a Hugging Face ``GPT2DoubleHeadsModel`` or ``OpenAIGPTDoubleHeadsModel``.
    :param special: ids of the special tokens.
    :param with_choice: keep the head that chooses among replies. Without distractors it would never
        learn, and unused parameters break distributed training.

    What precedes the reply is read once, as an encoder's output would be, however many replies
    continue it; the reply's positions and attention run on from there.
    """

    def __init__(self, double_heads: nn.Module, special: SpecialIds, with_choice: bool = True):
        super().__init__(double_heads.transformer, special)
        self.choice_head = double_heads.multiple_choice_head if with_choice else None

    def segment_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """Each token's segment (B, S), named by the token whose embedding marks it."""
        speakers = self.speakers(ids)
        places = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
        latest = places.masked_fill(~speakers, 0).cummax(dim=1).values  # the last one seen
        spoken = speakers.cumsum(dim=1) > 0
        return ids.gather(1, latest).masked_fill(~spoken, self.special.persona)

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Input ids (B, S) -> keys and values that replies look back at."""
        real = ids.ne(self.special.pad)
        length = ids.size(1)
        positions = torch.arange(length, device=ids.device).unsqueeze(0)
        h = self.gpt.embed(ids, positions, self.segment_tokens(ids))
        mask = causal(length, length, ids.device) & real.unsqueeze(1)  # (B, S, S)
        return Encoded(ids, real, self.gpt(h, mask)[1])

    def decode(self, ids: torch.Tensor, encoded: Encoded, cache=None) -> Decoded:
        """Reply so far (B, T), beginning with <bos>, which stands for the speaker's token."""
        past = encoded.keys if cache is None else cache
        (rows, length), before = ids.shape, encoded.ids.size(1)
        said = past[0].key.size(2) - before  # positions of the reply in the cache
        ids = ids.masked_fill(ids.eq(self.special.start), self.special.me)
        places = torch.arange(said, said + length, device=ids.device)
        positions = encoded.real.sum(dim=1, keepdim=True) + places  # (B, T)
        h = self.gpt.embed(ids, positions, torch.full_like(ids, self.special.me))
        mask = torch.cat(
            (
                encoded.real.unsqueeze(1).expand(rows, length, before),
                causal(length, said + length, ids.device).expand(rows, -1, -1),
            ),
            dim=2,
        )  # (B, T, S + said + T)
        return Decoded(*self.gpt(h, mask, past))

    def decode_whole(self, ys: torch.Tensor, encoded: Encoded) -> Decoded:
        """Replies (B, T) with their start and their last token: states of (B, T + 1) positions."""
        start = ys.new_full((ys.size(0), 1), self.special.start)
        return self.decode(torch.cat((start, ys), dim=1), encoded)

    def choice(self, hidden: torch.Tensor, ys: torch.Tensor) -> torch.Tensor:
        """
        How well each reply continues the dialogue: logits (B, N).

        :param hidden: (B, N, T + 1, d) states of N replies ``ys`` (B, N, T), read at their last
            real token.
        """
        last = ys.ne(self.special.pad).sum(dim=2)  # (B, N)
        return self.choice_head(hidden, last).squeeze(-1)

    def forward(self, ids: torch.Tensor, distractors: torch.Tensor | None = None, *, ys):
        """
        Teacher forcing.

        :param ids: (B, S) inputs; ``ys`` (B, T) replies that end in <eos>, padded.
        :param distractors: (B, N - 1, T') other replies, padded.
        :return: log p(y) (B, T, 1), the most probable words (B, T), and the encoded input; with
            distractors also the choice logits (B, N), those of ``ys`` first.
        """
        if distractors is None:
            return super().forward(ids, ys)
        encoded = self.encoder(ids)
        longest = max(ys.size(1), distractors.size(2))
        replies = torch.cat(
            [
                F.pad(part, (0, longest - part.size(-1)), value=self.special.pad)
                for part in (ys.unsqueeze(1), distractors)
            ],
            dim=1,
        )  # (B, N, longest)
        n_rows, n_replies, _ = replies.shape
        rows = torch.arange(n_rows, device=ids.device).repeat_interleave(n_replies)
        decoded = self.decode_whole(replies.flatten(0, 1), encoded.select(rows))
        hidden = decoded.hidden.unflatten(0, (n_rows, n_replies))  # (B, N, longest + 1, d)
        log_prob, best = self._score(Decoded(hidden[:, 0, : ys.size(1)], []), encoded, ys)
        return log_prob.unsqueeze(-1), best, encoded, self.choice(hidden, replies)
