"""
The small vocabulary T of each input, and the projection onto its columns.

A vocabulary's columns are the F function words, in the dictionary's order and the same for every
input, and after them content words. So the ids of special tokens and function words are their
columns too, and only content words have to be mapped back. Two layouts of the content columns:

* ``gather``: each input has its own K columns, whose rows of W are copied once (B, K, D);
* ``union``: all inputs share the U columns that some of them chose, and mask those that are not
  theirs. It copies each row once, but computes B x U products a step instead of B x K.
"""

from __future__ import annotations

import copy

import torch

from persona_agents.models.attention import at_least_float32

FORBIDDEN = -1e20  # what ParlAI's searches take for minus infinity

# Over a reply of some 15 words, fetching a row of W costs as much as this many products with it
# (benchmarks/dvs2s_decode.py shows both layouts; one thread of a CPU).
PRODUCTS_PER_ROW = 13.0


def union_is_cheaper(n_union: int, n_own: int, batch: int, beams: int) -> bool:
    """
    Which layout costs less: U rows that are multiplied with all beams, or K of each input's own.

    :param n_union: U; ``n_own`` K.
    """
    union = n_union * (PRODUCTS_PER_ROW + batch * beams)
    return union <= batch * n_own * (PRODUCTS_PER_ROW + beams)


def choose_content(
    logits: torch.Tensor, top_k: int, threshold: float | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    Content words by the test-time rules: the K most probable ones, or those with beta >= threshold.

    :param logits: (B, C) of beta.
    :param threshold: None for the top K.
    :return: (B, K) content words in rising order, and a mask (B, K) of those that count, None for
        all.
    """
    if threshold is None:
        if top_k >= logits.size(1):
            every = torch.arange(logits.size(1), device=logits.device)
            return every.expand(logits.size(0), -1), None
        return logits.topk(top_k, dim=1, sorted=False).indices.sort(dim=1).values, None
    chosen = logits.sigmoid() >= threshold  # (B, C)
    most = int(chosen.sum(dim=1).max())
    # chosen words first; others fill up the shorter rows, which are rising like all rows
    first = (~chosen).to(torch.uint8).sort(dim=1, stable=True).indices[:, :most]
    content = first.sort(dim=1).values
    return content, chosen.gather(1, content)


def as_sets(content: torch.Tensor, mask: torch.Tensor | None, n_content: int) -> torch.Tensor:
    """Words (B, K) that a mask (B, K) lets count, None for all, as sets: bool (B, n_content)."""
    sets = torch.zeros(len(content), n_content, dtype=torch.bool, device=content.device)
    return sets.scatter_(1, content, True if mask is None else mask)


class ChosenVocabulary:
    """
    T of a batch of inputs.

    :param weight: (V, D) rows W_w of the projection; ``bias`` (V,).
    :param n_function: F; columns 0 … F-1 are the words 0 … F-1.
    :param content: (B, K) content words, counted from 0.
    :param mask: (B, K) bool, which of them count; None for all.
    :param dtype: of the projection's input.
    :param path: 'gather', 'union', or 'auto' for the one that costs less with so many ``beams``.
    """

    def __init__(self, weight, bias, n_function, content, mask, dtype, path="auto", beams=1):
        self.n_function = n_function
        self.function = weight[:n_function].to(dtype), bias[:n_function].to(dtype)
        batch, k = content.shape
        self.sizes = n_function + (
            torch.full((batch,), k, device=content.device) if mask is None else mask.sum(dim=1)
        )  # (B,)
        self.shared = False
        if path != "gather" and batch > 1:
            sets = as_sets(content, mask, weight.size(0) - n_function)
            union = sets.any(dim=0).nonzero().squeeze(1)  # (U,)
            self.shared = path == "union" or union_is_cheaper(len(union), k, batch, beams)
        if self.shared:
            content, mask = union.expand(batch, -1), sets[:, union]
            rows = union + n_function
        else:
            rows = content + n_function
        self.words = content + n_function  # (B, K) or (B, U)
        self.content = weight[rows].to(dtype), bias[rows].to(dtype)  # (B, K, D) or (U, D)
        self.forbidden = None if mask is None else ~mask.unsqueeze(1)  # (B, 1, K or U)

    @classmethod
    def whole(cls, weight, bias, batch: int) -> ChosenVocabulary:
        """T = V: all columns are shared, and nothing is copied."""
        nothing = torch.empty(batch, 0, dtype=torch.long, device=weight.device)
        return cls(weight, bias, weight.size(0), nothing, None, weight.dtype, "gather")

    @property
    def n_columns(self) -> int:
        return self.n_function + self.words.size(1)

    def row(self, row: int, mask: bool = True) -> ChosenVocabulary:
        """One input's vocabulary, for mapping only; without its mask, all columns count."""
        own = copy.copy(self)
        own.words = self.words[row : row + 1]
        own.forbidden = (
            self.forbidden[row : row + 1] if mask and self.forbidden is not None else None
        )
        return own

    def keep(self, inputs: torch.Tensor) -> ChosenVocabulary:
        """The vocabularies of some of the inputs (B',)."""
        kept = copy.copy(self)
        kept.words, kept.sizes = self.words[inputs], self.sizes[inputs]
        if self.forbidden is not None:
            kept.forbidden = self.forbidden[inputs]
        if not self.shared:
            kept.content = tuple(part[inputs] for part in self.content)
        return kept

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """
        s(w) of the words of T.

        :param features: (B, N, D) the projection's input, N beams an input.
        :return: (B, N, columns), at least float32; FORBIDDEN outside T.
        """
        function = torch.nn.functional.linear(features, *self.function)  # (B, N, F)
        if self.words.size(1) == 0:
            return at_least_float32(function)
        weight, bias = self.content
        if self.shared:
            content = torch.nn.functional.linear(features, weight, bias)  # (B, N, U)
        else:
            content = torch.baddbmm(bias.unsqueeze(1), features, weight.transpose(1, 2))
        content = at_least_float32(content)
        if self.forbidden is not None:
            content = content.masked_fill(self.forbidden, FORBIDDEN)
        return torch.cat((at_least_float32(function), content), dim=-1)

    def to_words(self, columns: torch.Tensor) -> torch.Tensor:
        """Dictionary ids of columns (B, N)."""
        if self.words.size(1) == 0:
            return columns
        own = self.words.gather(1, (columns - self.n_function).clamp_min(0))
        return torch.where(columns < self.n_function, columns, own)

    def to_columns(self, words: torch.Tensor) -> torch.Tensor:
        """
        Columns of dictionary ids (B, N).

        A word outside T gets the number after the last column, where a search may block it.
        """
        outside = self.n_columns
        is_function = words < self.n_function
        if self.words.size(1) == 0:
            return words.masked_fill(~is_function, outside)
        place = torch.searchsorted(self.words.contiguous(), words.contiguous())  # rows are rising
        place = place.clamp_max(self.words.size(1) - 1)
        inside = self.words.gather(1, place) == words
        if self.forbidden is not None:
            inside &= ~self.forbidden.squeeze(1).gather(1, place)
        content = torch.where(inside, place + self.n_function, outside)
        return torch.where(is_function, words, content)

    def holds(self, words: torch.Tensor) -> torch.Tensor:
        """Whether words (B, N) are in T of their input, bool (B, N)."""
        return self.to_columns(words) < self.n_columns
