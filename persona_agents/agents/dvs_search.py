"""
Searches inside a small vocabulary.

The searches are those of any agent; they see columns of T in place of dictionary ids. Special
tokens have the same number in both (``dvs_vocabulary.py``). What they call on the agent and its
model is translated here: the model's scores and inputs, the n-grams of context and block list, and
in the end the replies.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from persona_agents.agents.search import FinishedGreedy
from persona_agents.models.dvs2s import Encoded
from persona_agents.models.dvs_vocabulary import FORBIDDEN, ChosenVocabulary


class LocalEncoded(NamedTuple):
    """Encoded inputs with their vocabularies; beams of one input stand side by side."""

    encoded: Encoded  # R rows
    vocabulary: ChosenVocabulary  # of R / beams inputs
    inputs: torch.Tensor  # (R,) which input a row belongs to, counted as at the beginning


class LocalModel:
    """
    A DVS2S as a search sees it, in columns.

    :param start: the inputs and their vocabularies, encoded once for the search.
    :param blocking: whether words may be blocked: one more column, which is never chosen, then
        stands for all words outside T.
    """

    def __init__(self, model, start: LocalEncoded, blocking: bool):
        self.model, self.start, self.blocking = model, start, blocking

    def encoder(self, *_):
        return self.start

    def decoder(self, columns, local: LocalEncoded, state=None):
        """Scores (R, 1, columns) after the last of the columns (R, t), and the decoder's state."""
        encoded, vocabulary, _ = local
        n = len(vocabulary.words)
        words = vocabulary.to_words(columns[:, -1].view(n, -1)).view(-1, 1)
        state = encoded.summary if state is None else state
        features, state = self.model.decode(words, state, encoded)
        scores = vocabulary.scores(features.view(n, -1, features.size(-1)))
        scores = scores.view(len(words), 1, -1)
        return pad(scores, (0, 1), value=FORBIDDEN) if self.blocking else scores, state

    def output(self, scores):
        return scores

    def reorder_encoder_states(self, local: LocalEncoded, rows) -> LocalEncoded:
        """Rows leave, or become beams; the vocabulary of inputs that leave goes with them."""
        rows = torch.as_tensor(rows, device=local.inputs.device)
        before, inputs = local.inputs.unique(), local.inputs[rows]
        kept = torch.searchsorted(before, inputs.unique())
        vocabulary = local.vocabulary
        if len(kept) < len(before):
            vocabulary = vocabulary.keep(kept)
        return LocalEncoded(local.encoded.select(rows), vocabulary, inputs)

    def reorder_decoder_incremental_state(self, state, rows):
        return state.index_select(0, torch.as_tensor(rows, device=state.device))


class LocalBlockList:
    """A block list in columns that all inputs share; phrases with a word outside them drop out."""

    def __init__(self, block_list, vocabulary: ChosenVocabulary):
        self._ngrams = {}
        one = vocabulary.row(0, mask=False)
        for size, ngrams in block_list.items():
            words = torch.tensor(ngrams, device=vocabulary.words.device)
            columns = one.to_columns(words.view(1, -1)).view(-1, size)
            kept = columns[(columns < vocabulary.n_columns).all(dim=1)].tolist()
            if kept:
                self._ngrams[size] = kept

    def __bool__(self):
        return True

    def items(self):
        return self._ngrams.items()


class SmallVocabularySearch:
    """Generation in the columns of T; a mixin that stands before an agent with a DVS2S as model."""

    vocabulary_sizes = None  # |T| of each input of the last batch

    def choose_vocabulary(self, encoded: Encoded, beams: int, path: str) -> ChosenVocabulary:
        """T of a batch of encoded inputs."""
        raise NotImplementedError

    def _generate(self, batch, beam_size, max_ts, prefix_tokens=None):
        encoded = self.module.encoder(*self._encoder_input(batch))
        blocking = bool(self.beam_block_list) or self.beam_context_block_ngram > 0
        if prefix_tokens is None and not hasattr(self, "_rerank_beams"):
            # blocking asks for columns that all inputs share
            path = "union" if blocking else "auto"
            vocabulary = self.choose_vocabulary(encoded, beam_size, path)
        else:  # prefixes and re-ranking speak of dictionary ids: columns are the same when T = V
            vocabulary = self.module.choose(encoded, self.module.sizes.vocabulary)
        self.vocabulary_sizes = vocabulary.sizes.tolist()

        inputs = torch.arange(batch.batchsize, device=encoded.mask.device)
        local = copy.copy(self)
        start = LocalEncoded(encoded, vocabulary, inputs)
        local.model = LocalModel(self.module, start, blocking)
        if self.beam_context_block_ngram > 0:
            local._get_batch_context = lambda batch: vocabulary.to_columns(
                self._get_batch_context(batch)
            )
        if self.beam_block_list:
            local.beam_block_list = LocalBlockList(self.beam_block_list, vocabulary)
        local._treesearch_factory = lambda *args, **keywords: _with_local_stops(
            self._treesearch_factory(*args, **keywords), vocabulary
        )
        _, searches = super(SmallVocabularySearch, local)._generate(
            batch, beam_size, max_ts, prefix_tokens
        )
        for row, search in enumerate(searches):
            _to_words(search, vocabulary.row(row))
        return [search.get_rescored_finished()[0] for search in searches], searches


def _to_words(search, vocabulary: ChosenVocabulary) -> None:
    """Map what a finished search has chosen back to dictionary ids."""

    def words(columns):
        return vocabulary.to_words(columns.to(vocabulary.words.device).view(1, -1)).view_as(columns)

    if isinstance(search, FinishedGreedy):
        reply, *rest = search.hypothesis
        search.hypothesis = (words(reply), *rest)
    else:
        search.outputs = [words(output) for output in search.outputs]
        search.partial_hyps = words(search.partial_hyps)


def _with_local_stops(search, vocabulary: ChosenVocabulary):
    """Factual nucleus sampling knows the words . ? ! by their ids."""
    if hasattr(search, "full_stop_list"):
        stops = search.full_stop_list.to(vocabulary.words.device)
        columns = vocabulary.row(0, mask=False).to_columns(stops.view(1, -1))
        search.full_stop_list = columns.view_as(stops)
    return search
