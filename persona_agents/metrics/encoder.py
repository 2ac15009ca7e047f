"""Pretrained encoders of the metrics: one a model and process, each text encoded once."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import torch

from persona_agents.metrics import models

BATCH_SIZE = 64
CACHE_BYTES = 512 * 2**20


class Vectors(NamedTuple):
    """What is kept of one text; on the CPU, in float32.

    Attributes:
        tokens: (T, d), one layer's vectors of all tokens, [CLS] and [SEP] included; or None.
        is_piece: (T,), 1.0 for word pieces, 0.0 for [CLS] and [SEP].
        mean: (d,), mean of the last layer over the word pieces, zero if there is none; or None.
    """

    tokens: torch.Tensor | None
    is_piece: torch.Tensor
    mean: torch.Tensor | None

    def bytes(self) -> int:
        """How much memory it takes."""
        return sum(4 * part.numel() for part in self if part is not None)


class Encoder:
    """
    An encoder and the vectors of the texts that it has seen, the last ones up to a bound.

    `layer` and `keeps_means` are set by the metrics that want these vectors, so that one pass
    through the model serves both.

    :param name: a hub name or folder
    :param option: the option that named it, for messages
    :param device: where it runs
    """

    def __init__(self, name: str, option: str, device: str):
        self.name, self.device = name, device
        self.tokenizer, self.model = models.load_encoder(name, option)
        self.signature = models.describe(name, self.model)
        self.layer: int | None = None
        self.keeps_means = False
        self.texts_encoded = 0
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        self._bytes = 0

    @property
    def n_layers(self) -> int:
        return self.model.config.num_hidden_layers

    def keep_layer(self, layer: int) -> None:
        """From now on keep the token vectors of this layer (0: the embeddings)."""
        if layer != self.layer:
            self.layer = layer
            self.forget()

    def forget(self) -> None:
        """Drop all vectors."""
        self._cache.clear()
        self._bytes = 0

    def embed(self, texts: Iterable[str]) -> dict[str, Vectors]:
        """Vectors of the texts; only those not seen before pass through the model, in batches."""
        found, missing = {}, []
        for text in dict.fromkeys(texts):
            vectors = self._cache.get(text)
            if vectors is None or (self.keeps_means and vectors.mean is None):
                missing.append(text)
            else:
                self._cache.move_to_end(text)
                found[text] = vectors
        encoded = [(self._ids(text), text) for text in missing]
        encoded.sort(key=lambda pair: len(pair[0]))  # like lengths together: little padding
        for begin in range(0, len(encoded), BATCH_SIZE):
            ids, batch = zip(*encoded[begin : begin + BATCH_SIZE])
            for text, vectors in zip(batch, self._run(ids)):
                found[text] = vectors
                self._keep(text, vectors)
        return found

    def _ids(self, text: str) -> list[int]:
        """As bert-score encodes a sentence; its way of encoding "" is gone in transformers 5."""
        from bert_score.utils import sent_encode

        if not text.strip():
            return self.tokenizer.encode("")
        return sent_encode(self.tokenizer, text)

    def _run(self, ids: tuple[list[int], ...]) -> Iterable[Vectors]:
        self.texts_encoded += len(ids)
        lengths = [len(row) for row in ids]
        batch = torch.full((len(ids), max(lengths)), self.tokenizer.pad_token_id or 0)  # (B, T)
        mask = torch.zeros_like(batch)
        for row, (text_ids, length) in enumerate(zip(ids, lengths)):
            batch[row, :length] = torch.tensor(text_ids)
            mask[row, :length] = 1
        special = torch.tensor([self.tokenizer.cls_token_id, self.tokenizer.sep_token_id])
        pieces = (mask.bool() & ~torch.isin(batch, special)).float()  # (B, T)
        model = self.model.to(self.device)
        with torch.inference_mode():
            states = model(
                batch.to(self.device),
                attention_mask=mask.to(self.device),
                output_hidden_states=True,
            ).hidden_states  # layers + 1 of (B, T, d)
            means = [None] * len(ids)
            if self.keeps_means:
                weights = pieces.to(self.device).unsqueeze(-1)  # (B, T, 1)
                sums = (states[-1].float() * weights).sum(dim=1)  # (B, d)
                means = (sums / weights.sum(dim=1).clamp_min(1)).cpu()
            tokens = [None] * len(ids)
            if self.layer is not None:
                layer = states[self.layer].float().cpu()  # (B, T, d)
                tokens = [row[:length].clone() for row, length in zip(layer, lengths)]
        for row, length in enumerate(lengths):
            mean = None if means[row] is None else means[row].clone()
            yield Vectors(tokens[row], pieces[row, :length].clone(), mean)

    def _keep(self, text: str, vectors: Vectors) -> None:
        previous = self._cache.pop(text, None)
        self._bytes -= previous.bytes() if previous else 0
        self._cache[text] = vectors
        self._bytes += vectors.bytes()
        while self._bytes > CACHE_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= oldest.bytes()


_encoders: dict[tuple[str, str], Encoder] = {}


def encoder_for(name: str, option: str, device: str) -> Encoder:
    """
    The process's encoder of this model, whichever option names it.

    :raises PersonaAgentsError: if it cannot be loaded; `option` is for the message
    """
    key = (os.path.realpath(name) if os.path.isdir(name) else name, device)
    if key not in _encoders:
        _encoders[key] = Encoder(name, option, device)
    return _encoders[key]
