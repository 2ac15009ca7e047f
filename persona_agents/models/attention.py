"""Multi-head attention as the decoders of this package use it: keys cached, weights on request."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from persona_agents.models.layers import Dropout, Linear


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """x in float32, or in float64 if it is: what softmax and logarithms are computed in."""
    return x if x.dtype == torch.float64 else x.float()


class KeyValue(NamedTuple):
    """Projected keys and values of one source, split by head, each (B, H, S, d/H)."""

    key: torch.Tensor
    value: torch.Tensor

    def append(self, other: KeyValue) -> KeyValue:
        """These positions followed by those of ``other``: the cache of incremental decoding."""
        return KeyValue(*(torch.cat(pair, dim=2) for pair in zip(self, other)))

    def select(self, rows: torch.Tensor) -> KeyValue:
        """The rows (B',) of the batch, in that order, repeats allowed (beam search)."""
        return KeyValue(*(part.index_select(0, rows) for part in self))


def attend(
    q: torch.Tensor,
    source: KeyValue,
    mask: torch.Tensor | None,
    dropout: nn.Module,
    all_look: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Scaled dot-product attention of queries (B, H, T, d/H), before the output projection.

    :param mask: bool, broadcastable to (B, H, T, S); True where a query may look. One that may look
        nowhere gets weights of zero. None with ``all_look``: everywhere.
    :param dropout: applied to the weights.
    :param all_look: the caller knows that every query may look somewhere, which saves a step.
    :return: the context, heads joined (B, T, d), and the weights (B, H, T, S) before dropout.
    """
    q = q / math.sqrt(q.size(-1))
    scores = at_least_float32(q @ source.key.transpose(-1, -2))  # (B, H, T, S)
    if mask is not None:
        # A finite fill keeps a row with no allowed position free of NaN.
        hidden = torch.zeros(mask.shape, dtype=scores.dtype, device=mask.device)
        scores = scores + hidden.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)
    if not all_look:
        weights = weights * mask
    context = dropout(weights.to(q.dtype)) @ source.value  # (B, H, T, d/H)
    return context.transpose(1, 2).flatten(2), weights


class MultiHeadAttention(nn.Module):
    """
    MHA of the paper's eqs. 3 and 5-7 (scaled dot-product attention over ``n_heads`` heads).

    :param d: hidden size; must be a multiple of ``n_heads``.
    :param dropout: probability with which an attention weight is dropped while training.
    """

    def __init__(self, d: int, n_heads: int, dropout: float):
        super().__init__()
        if d % n_heads:
            raise ValueError(f"hidden size {d} is not a multiple of {n_heads} heads")
        self.n_heads = n_heads
        self.query = Linear(d, d)
        self.key = Linear(d, d)
        self.value = Linear(d, d)
        self.out = Linear(d, d)
        self.dropout = Dropout(dropout)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        # (B, S, d) -> (B, H, S, d/H)
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def project(self, memory: torch.Tensor) -> KeyValue:
        """Keys and values of ``memory`` (B, S, d), computed once however often they are read."""
        return KeyValue(self._split(self.key(memory)), self._split(self.value(memory)))

    def forward(
        self,
        x: torch.Tensor,
        source: KeyValue,
        mask: torch.Tensor | None,
        need_weights: bool = False,
        all_look: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Attend from x (B, T, d) to a projected source.

        :param mask: bool, broadcastable to (B, T, S); True where x may look. A row that may look
            nowhere gets weights of zero and a context that the caller must not use. None as in
            :func:`attend`.
        :param all_look: as in :func:`attend`.
        :return: the context (B, T, d) and, if asked for, the weights (B, T, S) in at least float32: their
            mean over heads, taken before dropout, so that each row sums to one also in training.
        """
        q = self._split(self.query(x))  # (B, H, T, d/H)
        mask = None if mask is None else mask.unsqueeze(1)
        context, weights = attend(q, source, mask, self.dropout, all_look)
        context = self.out(context)  # (B, T, d)
        return context, weights.mean(dim=1) if need_weights else None


def project_for(
    attentions: list[MultiHeadAttention], memory: torch.Tensor, real: torch.Tensor
) -> list[KeyValue]:
    """
    What each of several attentions reads at one memory, by a single product.

    Laid out as the attentions' own products read it, which would else copy it at each step.

    :param memory: (B, S, d).
    :param real: bool (B, S), the positions that are read; keys and values are zero elsewhere.
    """
    maps = [linear for attention in attentions for linear in (attention.key, attention.value)]
    weight = torch.cat([linear.weight for linear in maps])  # (2 L d, d)
    projected = F.linear(memory[real], weight, torch.cat([linear.bias for linear in maps]))
    placed = projected.new_zeros(*real.shape, projected.size(-1))
    placed[real] = projected  # (B, S, 2 L d)
    placed = placed.unflatten(-1, (len(maps), attentions[0].n_heads, -1))
    placed = placed.permute(2, 0, 3, 1, 4).contiguous()  # (2 L, B, H, S, d/H)
    return [KeyValue(*pair) for pair in zip(placed[::2], placed[1::2])]
