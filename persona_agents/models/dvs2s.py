"""
DVS2S: a sequence-to-sequence model that decodes within a vocabulary chosen for each input.

After "Neural Response Generation with Dynamic Vocabularies" (AAAI 2018). Shapes: B batch, S source
length, T target length, V vocabulary, F function words, C = V - F content words, p embedding size,
m hidden size, D = p + 3m the projection's input. The dictionary lists function words first, special
tokens at their head: word w is a function word if w < F, and content word c is word F + c.

How a vocabulary is chosen when decoding stands in ``dvs_vocabulary.py``, how choosing is learned in
``dvs_joint.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from persona_agents.models.attention import at_least_float32
from persona_agents.models.dvs_vocabulary import ChosenVocabulary, choose_content

EMBEDDING_STD = 0.1
WORDS_KEPT = (100, 400)  # the encoder's units forget within so many words
HELD_SHARE = 0.3  # of a reply's content words, those in its input; in Persona-Chat and CPC 0.29
INPUT_GAIN = 2.0  # nats by which an input may raise the logit of a word that it holds, at the start
RIDGE = 0.01


class Encoded(NamedTuple):
    """What the decoder and the word predictor read of one batch; first dimension B everywhere."""

    memory: torch.Tensor  # (B, S, 2m) states of the encoder, both directions
    keys: torch.Tensor  # (B, S, m) the part of the attention's sum that does not change
    mask: torch.Tensor  # (B, S) bool: real words
    summary: torch.Tensor  # (B, m) h_t, the decoder's first state

    def select(self, rows: torch.Tensor) -> Encoded:
        """The rows (B',) of the batch in that order, repeats allowed (beams of one input)."""
        return Encoded(*(part.index_select(0, rows) for part in self))


class Sizes(NamedTuple):
    """Sizes of a network."""

    vocabulary: int  # V
    function_words: int  # F, special tokens included; F = V leaves nothing to choose
    embedding: int = 620  # p
    hidden: int = 1024  # m


class DVS2S(nn.Module):
    """
    GRU encoder and decoder with additive attention, and a predictor of the reply's content words.

    :param sizes: see :class:`Sizes`. Without content words (F = V) there is no predictor, and the
        network is the plain sequence-to-sequence model.
    :param pad: id of padding; :param start: id of the word that begins a decoder's input.
    :param dropout: of embeddings and of the projection's input.
    """

    def __init__(self, sizes: Sizes, pad: int, start: int, dropout: float = 0.0):
        super().__init__()
        v, f, p, m = sizes
        if not max(pad, start) < f <= v:
            raise ValueError(f"{f} function words of {v} words do not hold the special tokens")
        self.sizes, self.pad, self.start = sizes, pad, start
        self.embedding = nn.Embedding(v, p, padding_idx=pad)
        self.encoder_gru = nn.GRU(p, m, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * m, m)
        self.decoder_gru = nn.GRU(p, m, batch_first=True)
        self.attend_memory = nn.Linear(2 * m, m, bias=False)  # W_a = [attend_memory; attend_state]
        self.attend_state = nn.Linear(m, m, bias=False)
        self.attend_score = nn.Linear(m, 1, bias=False)  # v
        self.projection = nn.Linear(p + 3 * m, v)  # W_w and b_w, one row a word
        self.predictor = nn.Linear(m, v - f) if v > f else None  # W_c and b_c
        self.dropout = nn.Dropout(dropout)
        self._start_encoder()

    @torch.no_grad()
    def _start_encoder(self) -> None:
        """
        Let h_t keep all words of an input, and keep them while training goes on.

        The predictor reads h_t alone. So units forget within 100 to 400 words (chrono
        initialisation, Tallec and Ollivier 2018), and are brought to a scale that tanh hardly
        bends. Embeddings are small and what reads them, the decoder too, is large: then the many updates of the shared
        weights change little of what single words leave in h_t, and each embedding is changed by
        its own word alone.
        """
        m = self.sizes.hidden
        for name, bias in self.encoder_gru.named_parameters():
            if name.startswith("bias_hh"):
                shortest, longest = WORDS_KEPT
                bias[m : 2 * m] = torch.empty(m).uniform_(shortest - 1, longest - 1).log()
        self.embedding.weight.mul_(EMBEDDING_STD)
        for gru in (self.encoder_gru, self.decoder_gru):
            for name, weight in gru.named_parameters():
                if name.startswith("weight_ih"):
                    weight.div_(EMBEDDING_STD)
        nn.init.xavier_uniform_(self.bridge.weight, gain=10.0)

    @torch.no_grad()
    def start_predictor(self, shares: torch.Tensor, counts: torch.Tensor, end: int) -> None:
        """
        Let beta begin where it is calibrated, and above that for the input's own words.

        What is spoken of tends to come back in the reply, and learning that for each word apart
        would take much data. So W_c starts as the best linear guess (Fisher's discriminant) from
        the untrained encoder's h_t whether the input holds word c: the encoder's answer to that
        word alone, whitened by how h_t varies between inputs. These are made up of words drawn by
        their frequency. The less surely h_t tells its words, the less the guess counts.

        :param shares: (C,) share of training replies that hold each content word.
        :param counts: (V,) occurrences of all words.
        :param end: id of the word that ends an input.
        """
        training, first, m = self.training, self.sizes.function_words, self.sizes.hidden
        self.eval()
        shares, inputs = shares.clamp(1e-6, 0.5), []
        for length in torch.linspace(10, 100, max(8, min(64, m // 8))).long().tolist():
            words = torch.multinomial(counts, 64 * length, replacement=True).view(64, length)
            ends = (words.new_full((64, 1), word) for word in (self.start, end))
            inputs.append(torch.cat((next(ends), words, next(ends)), dim=1))
        states = torch.stack([self.encoder(ids).summary for ids in inputs])  # (L, 64, m)
        usual = states.mean(dim=(0, 1))  # (m,)
        states = states - usual
        spread = torch.cov(states.flatten(0, 1).T)  # (m, m)
        spread.diagonal().add_(RIDGE * spread.diagonal().mean())
        content = torch.arange(first, self.sizes.vocabulary).unsqueeze(1)
        alone = torch.cat([self.encoder(some).summary for some in content.split(1024)])  # (C, m)
        alone = alone - alone.mean(dim=0)
        weight = torch.linalg.solve(spread, alone.T).T
        weight = weight / (weight * alone).sum(dim=1, keepdim=True).clamp_min(1e-9)
        own = n_own = torch.zeros((), dtype=torch.long)  # logits of the inputs' own words
        for ids, state in zip(inputs, states):
            held = ids >= first
            logits = weight[(ids - first).clamp_min(0)] @ state.unsqueeze(2)  # (64, S, 1)
            own, n_own = own + logits.squeeze(2)[held].sum(), n_own + held.sum()
        own = (own / n_own.clamp_min(1)).clamp_min(1e-9)
        noise = ((weight @ spread * weight).sum(dim=1) * shares).sum() / shares.sum()
        gain = (HELD_SHARE * own**2 / noise).clamp_max(INPUT_GAIN)
        weight = weight * gain / own
        self.predictor.weight.copy_(weight)
        self.predictor.bias.copy_(torch.logit(shares) - weight @ usual)
        self.train(training)

    # -- the network -------------------------------------------------------------------------------

    def encoder(self, ids: torch.Tensor) -> Encoded:
        """Read inputs (B, S), padded on the right."""
        mask = ids.ne(self.pad)
        lengths = mask.sum(dim=1).clamp_min(1)
        embedded = self.dropout(self.embedding(ids))  # (B, S, p)
        packed = pack_padded_sequence(
            embedded, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, last = self.encoder_gru(packed)  # last (2, B, m): last forward, first backward
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=ids.size(1))
        summary = torch.tanh(self.bridge(torch.cat((last[0], last[1]), dim=-1)))
        return Encoded(memory, self.attend_memory(memory), mask, summary)

    def attend(self, states: torch.Tensor, encoded: Encoded) -> torch.Tensor:
        """c_i (B, T, 2m) of decoder states h_i (B, T, m): e_ij = v tanh(W_a [h_j; h_i])."""
        query = self.attend_state(states).unsqueeze(2)  # (B, T, 1, m)
        energy = torch.tanh(encoded.keys.unsqueeze(1) + query)  # (B, T, S, m)
        scores = at_least_float32(self.attend_score(energy).squeeze(-1))  # (B, T, S)
        scores = scores.masked_fill(~encoded.mask.unsqueeze(1), torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).to(encoded.memory.dtype) @ encoded.memory

    def decode(self, words: torch.Tensor, state: torch.Tensor, encoded: Encoded):
        """
        The projection's input [y_{i-1}; h_{i-1}; c_i] at each step.

        :param words: (B, T) y_{i-1}; ``state`` (B, m) the state before the first of them.
        :return: (B, T, D), and the state (B, m) after the last of them.
        """
        embedded = self.dropout(self.embedding(words))  # (B, T, p)
        states, _ = self.decoder_gru(embedded, state.unsqueeze(0).contiguous())  # (B, T, m)
        before = torch.cat((state.unsqueeze(1), states[:, :-1]), dim=1)
        features = torch.cat((embedded, before, self.attend(states, encoded)), dim=-1)
        return self.dropout(features), states[:, -1]

    def features(self, encoded: Encoded, ys: torch.Tensor) -> torch.Tensor:
        """:meth:`decode` under teacher forcing of replies (B, T) that end in the end token."""
        start = ys.new_full((ys.size(0), 1), self.start)
        return self.decode(torch.cat((start, ys[:, :-1]), dim=1), encoded.summary, encoded)[0]

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """s(w) of all words: (B, T, D) -> (B, T, V), at least float32."""
        return at_least_float32(self.projection(features))

    def word_logits(self, encoded: Encoded) -> torch.Tensor:
        """The logits (B, C) of beta, at least float32."""
        return at_least_float32(self.predictor(encoded.summary))

    # -- the vocabulary of a reply -----------------------------------------------------------------

    def choose(
        self,
        encoded: Encoded,
        top_k: int,
        threshold: float | None = None,
        beams: int = 1,
        path: str = "auto",
    ) -> ChosenVocabulary:
        """T by one of the test-time rules, ready to decode in; see ``dvs_vocabulary.py``."""
        weight, bias = self.projection.weight, self.projection.bias
        batch = encoded.summary.size(0)
        n_content = self.sizes.vocabulary - self.sizes.function_words
        if n_content == 0 or (threshold is None and top_k >= n_content):  # T = V
            return ChosenVocabulary.whole(weight, bias, batch)
        content, mask = choose_content(self.word_logits(encoded), top_k, threshold)
        return ChosenVocabulary(
            weight,
            bias,
            self.sizes.function_words,
            content,
            mask,
            encoded.summary.dtype,
            path,
            beams,
        )

    # -- what ParlAI calls on a generator ----------------------------------------------------------

    def decode_forced(self, encoded: Encoded, ys: torch.Tensor):
        """Scores of all words under teacher forcing (B, T, V), and the best words (B, T)."""
        scores = self.scores(self.features(encoded, ys))
        return scores, scores.argmax(dim=-1)

    def reorder_encoder_states(self, encoded: Encoded, rows) -> Encoded:
        return encoded.select(torch.as_tensor(rows, device=encoded.mask.device))

    def forward(self, ids: torch.Tensor, ys: torch.Tensor, task):
        """
        All that a loss needs, computed inside ``forward`` so that distributed training sees it.

        :param ids: (B, S) inputs; ``ys`` (B, T) replies.
        :param task: a function of (model, encoded, ys), one of ``dvs_joint.py``.
        """
        return task(self, self.encoder(ids), ys)
