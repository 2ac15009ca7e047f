"""
PGN: an LSTM encoder-decoder with attention that can also copy any word of its input.

See, Liu and Manning, "Get To The Point: Summarization with Pointer-Generator Networks" (2017);
equation numbers are that paper's. Encoder, attention and vocabulary distribution are those of
``s2sa`` (ParlAI's seq2seq with general attention), of which this model is the copying twin: with
p_gen = 1 it computes the same. So eq. 1, additive there, is the general score s_t W h_i here, and
eqs. 4 and 5 are W (tanh (V [s_t; h*_t])).

Shapes: B batch, S source length, T target length, L layers, E embedding size, D hidden size,
V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from persona_agents.models import copy
from persona_agents.models.attention import at_least_float32
from persona_agents.models.generator import CopyingModel, SpecialIds
from persona_agents.models.layers import Linear


class Encoded(NamedTuple):
    """What the decoder reads of one batch of inputs; every field's first dimension is B."""

    ids: torch.Tensor  # (B, S) input words
    states: torch.Tensor  # (B, S, D) h_i
    hidden: torch.Tensor  # (B, L, D) the encoder's last state, from which the decoder starts
    cell: torch.Tensor  # (B, L, D)

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed (beams of one input)."""
        return Encoded(*(part.index_select(0, rows) for part in self))


class Cache(NamedTuple):
    """The decoder's state after the words so far."""

    hidden: torch.Tensor  # (B, L, D)
    cell: torch.Tensor  # (B, L, D)
    coverage: torch.Tensor  # (B, S) c^t of eq. 10: the sum of the attention so far

    def select(self, rows: torch.Tensor) -> Cache:
        """The rows (B,) in that order: beams that go on, each from its parent."""
        return Cache(*(part.index_select(0, rows) for part in self))


class Decoded(NamedTuple):
    """What the decoder knows at each step, before the vocabulary."""

    state: torch.Tensor  # (B, T, D) s_t
    embedded: torch.Tensor  # (B, T, E) x_t, the decoder's input
    attention: torch.Tensor  # (B, T, S) a^t over all positions but padding
    coverage: torch.Tensor  # (B, T, S) c^t, zeros where the model has no coverage
    cache: Cache


class Modes(NamedTuple):
    """Log-probabilities (B, T) that the next word is generated or copied; they sum to one."""

    generate: torch.Tensor  # log p_gen
    copy: torch.Tensor  # log (1 - p_gen)


class Sources(NamedTuple):
    """Where a copied word comes from."""

    ids: torch.Tensor  # (B, S)
    attention: torch.Tensor  # (B, T, S) each row sums to one, or to zero without a word to copy


class PGN(CopyingModel):
    """
    The pointer-generator network.

    It reads the whole input, ``[CLS] persona [SEP] [CLS] query [SEP]``, as one sequence. Special
    tokens are attended to, as in ``s2sa``, but neither they nor [UNK] can be copied: their mass is
    shared out among the words. An input without a word to copy has p_gen = 1.

    :param vocab_size: size V of the vocabulary.
    :param special: ids of the special tokens.
    :param embedding_size: size E of the word embeddings.
    :param hidden_size: size D of the LSTMs.
    :param n_layers: layers L of each LSTM.
    :param dropout: dropout of embeddings, between LSTM layers and before the vocabulary.
    :param coverage: whether attention sees where it has been (eqs. 10 and 11).
    """

    def __init__(
        self,
        vocab_size: int,
        special: SpecialIds,
        embedding_size: int = 512,
        hidden_size: int = 512,
        n_layers: int = 2,
        dropout: float = 0.1,
        coverage: bool = False,
    ):
        super().__init__()
        self.special = special

        def embeddings():
            return nn.Embedding(vocab_size, embedding_size, padding_idx=special.pad)

        def lstm():
            between = dropout if n_layers > 1 else 0.0
            return nn.LSTM(embedding_size, hidden_size, n_layers, batch_first=True, dropout=between)

        self.source_embeddings, self.encoder_lstm = embeddings(), lstm()
        self.target_embeddings, self.decoder_lstm = embeddings(), lstm()
        self.attention = nn.Linear(hidden_size, hidden_size, bias=False)
        self.combine = nn.Linear(2 * hidden_size, hidden_size, bias=False)  # V
        same = hidden_size == embedding_size
        self.to_embedding = nn.Identity() if same else nn.Linear(hidden_size, embedding_size)
        self.generator = Linear(embedding_size, vocab_size)  # W, one row a word
        # start as ParlAI's seq2seq does
        nn.init.normal_(self.generator.weight)
        nn.init.uniform_(self.generator.bias, -(vocab_size**-0.5), vocab_size**-0.5)
        self.pointer = nn.Linear(2 * hidden_size + embedding_size, 1)  # w_h*, w_s, w_x, b_ptr
        self.coverage = nn.Parameter(torch.zeros(hidden_size)) if coverage else None  # w_c
        self.dropout = nn.Dropout(dropout)

    # -- input -----------------------------------------------------------------------------------

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Input ids (B, S) -> states h_i and the state that the decoder starts from."""
        lengths = ids.ne(self.special.pad).sum(dim=1).cpu()
        embedded = self.dropout(self.source_embeddings(ids))  # (B, S, E)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.encoder_lstm(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=ids.size(1))
        hidden, cell = (part.transpose(0, 1) for part in last)  # (L, B, D) -> (B, L, D)
        return Encoded(ids, states, hidden, cell)

    def copyable(self, ids: torch.Tensor) -> torch.Tensor:
        """Positions (B, S) whose word can be copied."""
        return self.words(ids) & ids.ne(self.special.unknown)

    # -- decoder ---------------------------------------------------------------------------------

    def decode(self, ids: torch.Tensor, encoded: Encoded, cache: Cache | None = None) -> Decoded:
        """
        Response so far (B, T), beginning with [CLS] -> states and attention at each step.

        :param cache: the state before ``ids`` (incremental decoding).
        """
        if cache is None:
            nothing = encoded.states.new_zeros(encoded.ids.shape)
            cache = Cache(encoded.hidden, encoded.cell, at_least_float32(nothing))
        embedded = self.dropout(self.target_embeddings(ids))  # (B, T, E)
        before = tuple(part.transpose(0, 1).contiguous() for part in cache[:2])  # (L, B, D)
        state, after = self.decoder_lstm(embedded, before)  # (B, T, D)
        attention, seen, coverage = self.attend(state, encoded, cache.coverage)
        hidden, cell = (part.transpose(0, 1) for part in after)
        return Decoded(state, embedded, attention, seen, Cache(hidden, cell, coverage))

    def attend(self, state: torch.Tensor, encoded: Encoded, coverage: torch.Tensor):
        """
        Eqs. 1, 2, 10 and 11: states s_t (B, T, D) -> a^t and c^t, both (B, T, S), and the next c.

        The coverage enters the score as a further feature of h_i, as it does in eq. 11:
        s_t W (h_i + w_c c_i).
        """
        query = self.attention(state)  # (B, T, D)
        scores = at_least_float32(query @ encoded.states.transpose(1, 2))  # (B, T, S)
        padding = encoded.ids.eq(self.special.pad).unsqueeze(1)  # (B, 1, S)
        scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        if self.coverage is None:
            return scores.softmax(dim=-1), coverage.unsqueeze(1).expand_as(scores), coverage
        slope = at_least_float32(query @ self.coverage)  # (B, T)
        attention, seen = [], []
        for t in range(state.size(1)):
            seen.append(coverage)
            attention.append((scores[:, t] + slope[:, t, None] * coverage).softmax(dim=-1))
            coverage = coverage + attention[-1]  # (B, S)
        return torch.stack(attention, dim=1), torch.stack(seen, dim=1), coverage

    def distribution(self, decoded: Decoded, encoded: Encoded):
        """The parts of eq. 9: logits (B, T, V), modes and sources."""
        states = encoded.states
        context = decoded.attention.to(states.dtype) @ states  # (B, T, D) h*_t, eq. 3
        copyable = self.copyable(encoded.ids)  # (B, S)
        return (
            self.generate_logits(decoded.state, context),
            self.modes(decoded, context, copyable.any(dim=1)),
            Sources(encoded.ids, copy.copy_distribution(decoded.attention, copyable)),
        )

    def generate_logits(self, state: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Eq. 4 before the softmax, (B, T, V); padding is never generated."""
        combined = torch.tanh(self.combine(torch.cat((state, context), dim=-1)))  # (B, T, D)
        logits = self.generator(self.dropout(self.to_embedding(combined)))
        logits[..., self.special.pad] = torch.finfo(logits.dtype).min
        return logits

    def modes(self, decoded: Decoded, context: torch.Tensor, can_copy: torch.Tensor) -> Modes:
        """Eq. 8, p_gen = sigmoid(w_h* h*_t + w_s s_t + w_x x_t + b_ptr), in logarithms."""
        features = torch.cat((context, decoded.state, decoded.embedded), dim=-1)
        logit = at_least_float32(self.pointer(features).squeeze(-1))  # (B, T)
        nothing = ~can_copy.unsqueeze(1)  # (B, 1)
        return Modes(
            F.logsigmoid(logit).masked_fill(nothing, 0.0),
            F.logsigmoid(-logit).masked_fill(nothing, copy.NO_MASS),
        )

    # -- what training and search call besides ---------------------------------------------------

    def forward(self, ids: torch.Tensor, ys: torch.Tensor):
        """As in :class:`CopyingModel`; with coverage also its loss (B, T), eq. 12."""
        encoded = self.encoder(ids)
        decoded = self.decode(self._shift_right(ys), encoded)
        log_prob, best = self._score(decoded, encoded, ys)
        outputs = log_prob.unsqueeze(-1), best, encoded
        if self.coverage is None:
            return outputs
        return (*outputs, torch.minimum(decoded.attention, decoded.coverage).sum(dim=-1))

    def reorder_decoder_incremental_state(self, cache: Cache, rows) -> Cache:
        """The cache's rows in the order ``rows`` (B,)."""
        return cache.select(torch.as_tensor(rows, device=cache.hidden.device))
