"""
BERT2BERT (Rothe et al., TACL 2020): encoder and decoder both start from BERT.

The network is transformers' EncoderDecoderModel; only what search asks for is added.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from torch import nn

from persona_agents.models.generator import CopyingModel, SpecialIds
from persona_agents.models.layers import use_fast_layers


class Encoded(NamedTuple):
    """What the decoder reads of one batch of inputs; every field's first dimension is B."""

    ids: torch.Tensor  # (B, S)
    hidden: torch.Tensor  # (B, S, d)

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed (beams of one input)."""
        return Encoded(*(part.index_select(0, rows) for part in self))


class Decoded(NamedTuple):
    """The decoder's last layer."""

    logits: torch.Tensor  # (B, T, V)
    cache: Any  # the library's keys and values, tuples or an object by its version


class BERT2BERT(CopyingModel):
    """
    :param pair: a Hugging Face ``EncoderDecoderModel`` of two BERTs, the encoder without pooler
        (unused parameters break distributed training).
    :param special: ids of BERT's special tokens.

    The input is ``[CLS] persona [SEP] [CLS] query [SEP]`` in segments 0 and 1. Nothing is copied.
    """

    def __init__(self, pair: nn.Module, special: SpecialIds):
        super().__init__()
        use_fast_layers(pair)
        self.pair = pair
        self.special = special
        parameters = inspect.signature(type(pair.decoder).forward).parameters
        self._cache = "cache" if "cache" in parameters else "past_key_values"

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Input ids (B, S) -> what the decoder reads of them."""
        hidden = self.pair.encoder(
            input_ids=ids, attention_mask=self._real(ids), token_type_ids=self.segments(ids)
        )[0]
        return Encoded(ids, hidden)

    def _real(self, ids: torch.Tensor) -> torch.Tensor:
        return ids.ne(self.special.pad).long()

    def decode(self, ids: torch.Tensor, encoded: Encoded, cache=None) -> Decoded:
        """Reply so far (B, T), beginning with [CLS], after the positions in the cache."""
        seen = ids.size(1) + self._length(cache)
        output = self.pair.decoder(
            input_ids=ids,
            attention_mask=ids.new_ones(len(ids), seen),  # replies are padded behind their end
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=self._real(encoded.ids),
            use_cache=not self.training,
            return_dict=True,
            **{self._cache: cache},
        )
        return Decoded(output.logits, getattr(output, self._cache))

    @staticmethod
    def _length(cache) -> int:
        """Positions in a cache."""
        if cache is None:
            return 0
        return cache[0][0].size(2) if isinstance(cache, tuple) else cache.get_seq_length()

    def distribution(self, decoded: Decoded, encoded: Encoded):
        """Logits (B, T, V), and nothing to copy."""
        return decoded.logits, None, None

    def reorder_decoder_incremental_state(self, cache, rows):
        """The cache's rows in the order ``rows`` (B,): beams that go on, each from its parent."""
        device = next(self.parameters()).device
        rows = torch.as_tensor(rows, device=device)
        if isinstance(cache, tuple):
            return tuple(tuple(part.index_select(0, rows) for part in layer) for layer in cache)
        cache.reorder_cache(rows)  # in place
        return cache
