"""
GPT-2 and OpenAI GPT with masks, positions and caches of our own.

The weights stay in transformers' modules; only the way through them is ours, because the systems
built on GPT need what the library's own pass does not give: attention without the causal mask,
several sources in one layer, positions that start anew, and for OpenAI GPT any cache at all.

Shapes: B batch, T positions, S positions looked at, d hidden size, H heads, V vocabulary.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from persona_agents.models.attention import KeyValue, attend
from persona_agents.models.generator import CopyingModel


class SpecialIds(NamedTuple):
    """Ids of the tokens that give an input its structure."""

    pad: int
    start: int  # <bos>
    end: int  # <eos>
    unknown: int
    persona: int  # segment of the persona's sentences
    me: int  # before what the persona's owner says
    partner: int  # before what the other speaker says


class GPT(nn.Module):
    """
    The blocks of a GPT.

    :param transformer: a Hugging Face ``GPT2Model`` or ``OpenAIGPTModel``. GPT-2 normalises before
        each sub-layer and once more at the end, OpenAI GPT after each sub-layer.
    """

    def __init__(self, transformer: nn.Module):
        super().__init__()
        self.transformer = transformer
        self.n_heads = transformer.config.n_head
        self.normalises_first = hasattr(transformer, "ln_f")
        names = ("wte", "wpe") if self.normalises_first else ("tokens_embed", "positions_embed")
        self._words, self._positions = names

    @property
    def words(self) -> nn.Embedding:
        """Embeddings of the vocabulary, which also give the logits."""
        return getattr(self.transformer, self._words)

    @property
    def blocks(self) -> nn.ModuleList:
        return self.transformer.h

    def embed(self, ids, positions, types=None) -> torch.Tensor:
        """
        Word + position embeddings, (B, T) -> (B, T, d).

        :param positions: (B, T) or (1, T).
        :param types: (B, T) tokens whose embeddings mark segments, or None.
        """
        h = self.words(ids) + getattr(self.transformer, self._positions)(positions)
        if types is not None:
            h = h + self.words(types)
        return self.transformer.drop(h)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        # (B, T, d) -> (B, H, T, d/H)
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def project(self, block, x: torch.Tensor) -> tuple[torch.Tensor, KeyValue]:
        """Queries (B, H, T, d/H), keys and values of a block's attention for x (B, T, d)."""
        query, key, value = block.attn.c_attn(x).chunk(3, dim=-1)
        return self._split(query), KeyValue(self._split(key), self._split(value))

    def look(self, block, query, source: KeyValue, mask: torch.Tensor) -> torch.Tensor:
        """What a block's attention reads at ``source``, before its output projection: (B, T, d)."""
        return attend(query, source, mask.unsqueeze(1), block.attn.attn_dropout)[0]

    def run_block(self, block, h: torch.Tensor, attention: Callable) -> torch.Tensor:
        """
        One block around an attention.

        :param attention: (B, T, d) -> (B, T, d), before the output projection.
        """

        def attended(x):
            return block.attn.resid_dropout(block.attn.c_proj(attention(x)))

        if self.normalises_first:
            h = h + attended(block.ln_1(h))
            return h + block.mlp(block.ln_2(h))
        h = block.ln_1(h + attended(h))
        return block.ln_2(h + block.mlp(h))

    def finish(self, h: torch.Tensor) -> torch.Tensor:
        """What follows the last block."""
        return self.transformer.ln_f(h) if self.normalises_first else h

    def forward(self, h: torch.Tensor, mask: torch.Tensor, past: list[KeyValue] | None = None):
        """
        Self-attention through all blocks.

        :param h: (B, T, d) embeddings; ``mask`` (B, T, S) True where a position may look, with S
            counting the positions of ``past`` first.
        :return: hidden states (B, T, d), and keys and values of all S positions in each block.
        """
        cache = []
        for i, block in enumerate(self.blocks):

            def look_back(x, i=i, block=block):
                query, source = self.project(block, x)
                cache.append(source if past is None else past[i].append(source))
                return self.look(block, query, cache[i], mask)

            h = self.run_block(block, h, look_back)
        return self.finish(h), cache

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scores of the vocabulary, tied to the embeddings: (B, T, d) -> (B, T, V)."""
        return F.linear(hidden, self.words.weight)


class Decoded(NamedTuple):
    """The decoder's last block."""

    hidden: torch.Tensor  # (B, T, d)
    cache: list[KeyValue]  # of each block: keys and values that the next word looks back at


class GPTGenerator(CopyingModel):
    """
    What the systems built on a GPT share. They copy nothing.

    Their input is one sequence ``<bos> p_1 … p_k <partner> turn <me> turn … <partner> query``,
    padded on the right; the first speaker token ends the persona.

    :param transformer: a Hugging Face ``GPT2Model`` or ``OpenAIGPTModel``.
    :param special: ids of the special tokens.
    """

    def __init__(self, transformer: nn.Module, special: SpecialIds):
        super().__init__()
        self.gpt = GPT(transformer)
        self.special = special

    def words(self, ids: torch.Tensor) -> torch.Tensor:
        """Where inputs (B, S) hold words, unknown ones among them: bool (B, S)."""
        special = [id_ for name, id_ in self.special._asdict().items() if name != "unknown"]
        return ~torch.isin(ids, torch.tensor(special, device=ids.device))

    def speakers(self, ids: torch.Tensor) -> torch.Tensor:
        """Where the speaker tokens are: bool (B, S)."""
        return ids.eq(self.special.partner) | ids.eq(self.special.me)

    def distribution(self, decoded: Decoded, encoded):
        """Logits (B, T, V), and nothing to copy."""
        return self.gpt.logits(decoded.hidden), None, None

    def reorder_decoder_incremental_state(self, cache: list[KeyValue], rows) -> list[KeyValue]:
        """The cache's rows in the order ``rows`` (B,): beams that go on, each from its parent."""
        rows = torch.as_tensor(rows, device=cache[0].key.device)
        return [keys.select(rows) for keys in cache]


def causal(length: int, total: int, device) -> torch.Tensor:
    """(1, T, S): the last ``length`` of ``total`` positions see themselves and what is before."""
    mask = torch.ones(length, total, dtype=torch.bool, device=device)
    return mask.tril(total - length).unsqueeze(0)
