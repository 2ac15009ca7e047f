"""
HCM: a BERT encoder and a Transformer decoder that copies hierarchically from persona and query.

Shapes: B batch, S source length, T target length, d hidden size, H heads, V vocabulary. Equation
numbers are those of the paper; each equation has its method here or in ``copy.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from persona_agents.models import copy
from persona_agents.models.attention import KeyValue, MultiHeadAttention, project_for
from persona_agents.models.generator import PERSONA, QUERY, CopyingModel, SpecialIds
from persona_agents.models.layers import Dropout, Linear, use_fast_layers
from persona_agents.models.lengths import by_length


class Source(NamedTuple):
    """
    The words of the query or of the persona, special tokens excluded, moved to the left.

    N is their greatest number in a row of the batch: the decoder computes nothing for other words.
    """

    position: torch.Tensor  # (B, N) where each stands in the input
    word: torch.Tensor  # (B, N) bool: False at padding
    copyable: torch.Tensor  # (B, N) bool: words that are not [UNK]
    ids: torch.Tensor  # (B, N)
    hidden: torch.Tensor  # (B, N, d) H_Q or H_P, rows of eq. 3's H
    keys: list[KeyValue]  # for each decoder layer, (B, H, N, d/H)
    gaps: bool  # whether some row has no word

    def select(self, rows: torch.Tensor) -> Source:
        """The rows (B',) of the batch in that order, repeats allowed."""
        tensors = (part.index_select(0, rows) for part in self[:5])
        return Source(*tensors, [keys.select(rows) for keys in self.keys], self.gaps)

    def in_input(self, values: torch.Tensor, length: int) -> torch.Tensor:
        """Values (B, T, N) of the words at their places in the input, (B, T, S), zero elsewhere."""
        values = values * self.word.unsqueeze(1)
        places = self.position.unsqueeze(1).expand_as(values)
        return values.new_zeros(*values.shape[:2], length).scatter(-1, places, values)


class Encoded(NamedTuple):
    """What the decoder reads of one batch of inputs."""

    ids: torch.Tensor  # (B, S) input words
    query: Source
    persona: Source

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed (beams of one input)."""
        return Encoded(self.ids.index_select(0, rows), *(part.select(rows) for part in self[1:]))


class DecoderLayer(nn.Module):
    """Eqs. 5-8: masked self-attention, query attention, persona attention, feed-forward."""

    def __init__(self, d: int, n_heads: int, ffn_size: int, dropout: float, eps: float):
        super().__init__()
        self.self_attention = MultiHeadAttention(d, n_heads, dropout)
        self.self_attention_norm = nn.LayerNorm(d, eps=eps)
        self.query_attention = MultiHeadAttention(d, n_heads, dropout)
        self.query_attention_norm = nn.LayerNorm(d, eps=eps)
        self.persona_attention = MultiHeadAttention(d, n_heads, dropout)
        self.persona_attention_norm = nn.LayerNorm(d, eps=eps)
        self.ffn_in = Linear(d, ffn_size)
        self.ffn_out = Linear(ffn_size, d)
        self.ffn_norm = nn.LayerNorm(d, eps=eps)
        self.dropout = Dropout(dropout)

    def attend_self(self, h, past: KeyValue | None, visible) -> tuple[torch.Tensor, KeyValue]:
        """
        Eq. 5: h (R, T, d) looks at itself and, before it, at the cached positions.

        :param visible: (1, T, past + T) where it may look, None: everywhere.
        """
        source = self.self_attention.project(h)
        if past is not None:
            source = past.append(source)
        context, _ = self.self_attention(h, source, visible, all_look=True)
        return self.self_attention_norm(h + self.dropout(context)), source

    def _attend_source(self, attention, norm, h, source: Source, layer: int, need_weights: bool):
        mask = source.word.unsqueeze(1)  # (B, 1, N)
        context, weights = attention(h, source.keys[layer], mask, need_weights, not source.gaps)
        attended = norm(h + self.dropout(context))
        if source.gaps:  # where the source is empty the whole sub-layer is skipped
            present = source.word.any(dim=1)[:, None, None]
            attended = torch.where(present, attended, h)
        return attended, weights

    def attend_query(self, h, query: Source, layer: int, need_weights: bool):
        """Eq. 6: (h_q, a_q), (B, T, d) and (B, T, N)."""
        return self._attend_source(
            self.query_attention, self.query_attention_norm, h, query, layer, need_weights
        )

    def attend_persona(self, h, persona: Source, layer: int, need_weights: bool):
        """Eq. 7: (h_p, a_p), (B, T, d) and (B, T, N)."""
        return self._attend_source(
            self.persona_attention, self.persona_attention_norm, h, persona, layer, need_weights
        )

    def feed_forward(self, h: torch.Tensor) -> torch.Tensor:
        """Eq. 8."""
        inner = nn.functional.gelu(self.ffn_in(h))  # (B, T, ffn)
        return self.ffn_norm(h + self.dropout(self.ffn_out(inner)))


class Decoded(NamedTuple):
    """The decoder's last layer, before the vocabulary."""

    hidden: torch.Tensor  # (B, T, d) H_r
    embedded: torch.Tensor  # (B, T, d) e, the decoder's input embedding
    query_attention: torch.Tensor | None  # (B, T, N) a_q
    persona_attention: torch.Tensor | None  # (B, T, N) a_p
    cache: list[KeyValue]  # self-attention keys and values of each layer


class HCM(CopyingModel):
    """
    The model M(P, Q) of the paper.

    Its input is one id sequence ``[CLS] persona [SEP] [CLS] query [SEP]`` (eq. 2), padded on the
    right. The special tokens occur nowhere else, so the second [CLS] alone tells where the query
    begins, and no mask needs to be passed along.

    :param bert: a Hugging Face ``BertModel`` without pooler. Its embeddings serve the decoder too.
    :param special: ids of the special tokens.
    :param n_decoder_layers: number of decoder layers L; their sizes are BERT's.
    :param copy_mode: 'hierarchical' (the paper), 'flat' (one gate over the mean of both copy
        distributions) or 'none' (eqs. 10-16 removed, both cross-attentions kept).
    :param dropout: dropout in the decoder; the encoder's is set in BERT's configuration.
    """

    beams_share_input = True

    def __init__(
        self,
        bert: nn.Module,
        special: SpecialIds,
        n_decoder_layers: int,
        copy_mode: str = "hierarchical",
        dropout: float = 0.1,
    ):
        super().__init__()
        config = bert.config
        d = config.hidden_size
        self.special = special
        use_fast_layers(bert)
        self.bert = bert
        self.layers = nn.ModuleList(
            DecoderLayer(
                d,
                config.num_attention_heads,
                config.intermediate_size,
                dropout,
                config.layer_norm_eps,
            )
            for _ in range(n_decoder_layers)
        )
        self.generator = Linear(d, config.vocab_size)  # W_A, b_A
        self.copy = None if copy_mode == "none" else copy.CopyGate(d, copy_mode == "hierarchical")
        for part in (self.layers, self.generator, self.copy):
            if part is not None:
                part.apply(lambda module: self._initialise(module, config.initializer_range))

    @staticmethod
    def _initialise(module: nn.Module, std: float) -> None:
        """BERT's own initialisation, for what BERT does not bring."""
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0.0, std)
            if module.bias is not None:
                module.bias.data.zero_()

    def start_generator_from_embeddings(self) -> None:
        """Start W_A, which stays a matrix of its own, from the (pretrained) word embeddings."""
        with torch.no_grad():
            self.generator.weight.copy_(self.bert.embeddings.word_embeddings.weight)

    # -- input -----------------------------------------------------------------------------------

    def embed(self, ids: torch.Tensor, offset: int = 0) -> torch.Tensor:
        """Eq. 1 for the response: word + position + segment embedding, (B, T) -> (B, T, d)."""
        positions = torch.arange(offset, offset + ids.size(1), device=ids.device)
        return self.bert.embeddings(
            input_ids=ids,
            position_ids=positions.unsqueeze(0),
            token_type_ids=torch.full_like(ids, PERSONA),
        )

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Eq. 3: input ids (B, S) -> BERT's hidden states H (B, S, d)."""
        return self.bert(
            input_ids=ids,
            attention_mask=ids.ne(self.special.pad).long(),
            token_type_ids=self.segments(ids),
        )[0]

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Eqs. 2 and 3: input ids (B, S) -> what the decoder reads of them."""
        segments, word = self.segments(ids), self.words(ids)
        hidden = by_length(self.read, ids, self.special.pad)  # (B, S, d)
        return Encoded(
            ids,
            self._source(
                ids,
                hidden,
                word & segments.eq(QUERY),
                [layer.query_attention for layer in self.layers],
            ),
            self._source(
                ids,
                hidden,
                word & segments.eq(PERSONA),
                [layer.persona_attention for layer in self.layers],
            ),
        )

    def _source(self, ids, hidden, member, attentions) -> Source:
        """The rows of H (B, S, d) that are H_Q or H_P, as ``member`` (B, S) says."""
        words = member.sum(dim=1)
        fewest, length = torch.stack((words.min(), words.max())).tolist()
        length = max(1, length)
        # members first, each in its place among them
        position = member.byte().sort(dim=1, descending=True, stable=True)[1][:, :length]
        places = position.unsqueeze(-1).expand(-1, -1, hidden.size(-1))
        ids, word = ids.gather(1, position), member.gather(1, position)  # (B, N)
        hidden = hidden.gather(1, places)  # (B, N, d)
        copyable = word & ids.ne(self.special.unknown)
        keys = project_for(attentions, hidden, word)
        return Source(position, word, copyable, ids, hidden, keys, gaps=fewest == 0)

    # -- decoder ---------------------------------------------------------------------------------

    def decode(
        self, ids: torch.Tensor, encoded: Encoded, cache: list[KeyValue] | None = None
    ) -> Decoded:
        """
        Eqs. 4-8: responses so far (R, T), beginning with [CLS] -> states of the last layer.

        R = B k: there may be k responses to an input, as in beam search, one after the other. To all
        but self-attention they are further positions of one response, (B, k T), so that they read
        one copy of their input.

        :param cache: keys and values of the positions before ``ids`` (incremental decoding).
        """
        (rows, length), n_inputs = ids.shape, encoded.ids.size(0)
        offset = 0 if cache is None else cache[0].key.size(2)
        visible = None
        if length > 1:
            visible = torch.ones(length, offset + length, dtype=torch.bool, device=ids.device)
            visible = visible.tril(offset).unsqueeze(0)  # (1, T, past + T)
        embedded = h = self.embed(ids, offset)  # (R, T, d)
        query_attention = persona_attention = None
        new_cache = []
        for i, layer in enumerate(self.layers):
            need_weights = self.copy is not None and i + 1 == len(self.layers)
            h = h.reshape(rows, length, -1)  # (R, T, d)
            h, keys = layer.attend_self(h, None if cache is None else cache[i], visible)
            h = h.reshape(n_inputs, -1, h.size(-1))  # (B, k T, d)
            h, query_attention = layer.attend_query(h, encoded.query, i, need_weights)
            h, persona_attention = layer.attend_persona(h, encoded.persona, i, need_weights)
            h = layer.feed_forward(h)
            new_cache.append(keys)
        embedded = embedded.reshape(h.shape)
        return Decoded(h, embedded, query_attention, persona_attention, new_cache)

    def copy_sources(self, decoded: Decoded, encoded: Encoded) -> copy.Sources:
        """Eqs. 10 and 11: p_query and p_persona over the query's, then the persona's words."""
        query, persona = encoded.query, encoded.persona
        from_query = copy.copy_distribution(decoded.query_attention, query.copyable)
        from_persona = copy.copy_distribution(decoded.persona_attention, persona.copyable)
        return copy.Sources(
            torch.cat((query.ids, persona.ids), dim=1),  # (B, S'), both N together
            nn.functional.pad(from_query, (0, persona.ids.size(1))),  # (B, T, S')
            nn.functional.pad(from_persona, (query.ids.size(1), 0)),  # (B, T, S')
        )

    def copy_modes(self, decoded: Decoded, encoded: Encoded) -> copy.Modes:
        """Eqs. 12-15: context vectors C_q and C_p, then p_gen, beta and gamma."""
        c_query, c_persona = self.contexts(decoded, encoded)
        return self.copy(
            c_query,
            c_persona,
            decoded.hidden,
            decoded.embedded,
            encoded.query.copyable.any(dim=1),
            encoded.persona.copyable.any(dim=1),
        )

    @staticmethod
    def contexts(decoded: Decoded, encoded: Encoded) -> tuple[torch.Tensor, torch.Tensor]:
        """Eqs. 12 and 13: C_q = a_q H_Q and C_p = a_p H_P, each (B, T, d)."""
        query, persona = encoded.query.hidden, encoded.persona.hidden
        return (
            decoded.query_attention.to(query.dtype) @ query,
            decoded.persona_attention.to(persona.dtype) @ persona,
        )

    def distribution(self, decoded: Decoded, encoded: Encoded):
        """The three parts of eq. 16: logits (B, T, V), modes and sources (None without copying)."""
        logits = self.generator(decoded.hidden)  # eq. 9
        if self.copy is None:
            return logits, None, None
        return logits, self.copy_modes(decoded, encoded), self.copy_sources(decoded, encoded)

    def at_input(self, sources: copy.Sources, encoded: Encoded) -> copy.Sources:
        """The sources over the S positions of the input."""
        length, n_query = encoded.ids.size(1), encoded.query.ids.size(1)
        return copy.Sources(
            encoded.ids,
            encoded.query.in_input(sources.query[..., :n_query], length),
            encoded.persona.in_input(sources.persona[..., n_query:], length),
        )

    def reorder_decoder_incremental_state(self, cache: list[KeyValue], rows) -> list[KeyValue]:
        """The cache's rows in the order ``rows`` (B,): beams that go on, each from its parent."""
        rows = torch.as_tensor(rows, device=cache[0].key.device)
        return [keys.select(rows) for keys in cache]
