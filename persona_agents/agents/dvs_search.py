"""ParlAI's searches inside a small vocabulary."""

from __future__ import annotations

import torch
from torch.nn.functional import pad

from persona_agents.models.dvs_vocabulary import FORBIDDEN, ChosenVocabulary


class LocalBlockList:
    """ParlAI's block list in the columns of one input; phrases with a word outside T drop out."""

    def __init__(self, block_list, vocabulary: ChosenVocabulary, row: int, device):
        self._ngrams = {}
        for size, ngrams in block_list.items():
            words = torch.tensor(ngrams, device=device).view(1, -1)
            columns = vocabulary.select(row).to_columns(words).view(-1, size)
            kept = columns[(columns < vocabulary.n_columns).all(dim=1)].tolist()
            if kept:
                self._ngrams[size] = kept

    def items(self):
        return self._ngrams.items()


class SmallVocabularySearch:
    """
    Generation in the columns of T; a mixin for a ``TorchGeneratorAgent`` whose model is a DVS2S.

    The searches are ParlAI's own and see columns in place of dictionary ids. Special tokens have
    the same number in both (``dvs_vocabulary.py``); n-grams of the context and of the block list are
    translated, and one more column, which is never chosen, stands for all words outside T. After
    the last step the columns are mapped back.
    """

    def choose_vocabulary(self, encoded, beams: int) -> ChosenVocabulary:
        """T of a batch of encoded inputs."""
        raise NotImplementedError

    def _generate(self, batch, beam_size, max_ts, prefix_tokens=None):
        model, rows = self.module, batch.batchsize
        encoded = model.encoder(*self._encoder_input(batch))
        if prefix_tokens is None:
            vocabulary = self.choose_vocabulary(encoded, beam_size)
        else:  # its words may lie outside T
            vocabulary = model.choose(encoded, model.sizes.vocabulary)
        self.vocabulary_sizes = vocabulary.sizes.tolist()
        device = batch.text_vec.device
        searches, blocking = self._searches(batch, vocabulary, device)

        inputs = torch.arange(rows, device=device).repeat_interleave(beam_size)
        encoded = encoded if beam_size == 1 else encoded.select(inputs)
        state = encoded.summary  # (rows x beams, m)
        words = self._get_initial_decoder_input(rows, beam_size, device)
        for step in range(max_ts):
            if all(search.is_done() for search in searches):
                break
            features, state = model.decode(words, state, encoded)
            scores = vocabulary.scores(features.view(rows, beam_size, -1))
            if self.temperature != 1.0:
                scores = scores / self.temperature
            if blocking:
                scores = pad(scores, (0, 1), value=FORBIDDEN)
            log_probs = self._generation_activation(scores)
            if prefix_tokens is not None and step < prefix_tokens.size(1):
                only = torch.full_like(log_probs, FORBIDDEN)
                own = prefix_tokens[:, step].view(-1, 1, 1).expand(-1, beam_size, 1)
                log_probs = only.scatter(2, own, log_probs.gather(2, own))
            for search, log_prob in zip(searches, log_probs):
                if not search.is_done():
                    search.advance(log_prob, step)
            columns = torch.stack([search.get_output_from_current_step() for search in searches])
            words = vocabulary.to_words(columns).view(-1, 1)
            if beam_size > 1:
                before = torch.stack([s.get_backtrack_from_current_step() for s in searches])
                first = torch.arange(0, rows * beam_size, beam_size, device=device)
                state = state.index_select(0, (before + first.unsqueeze(1)).view(-1))
        for row, search in enumerate(searches):
            own, outputs = vocabulary.select(row), torch.stack(search.outputs)  # (steps, beams)
            search.outputs = list(own.to_words(outputs.view(1, -1)).view_as(outputs))
            search.partial_hyps = own.to_words(search.partial_hyps.to(device).view(1, -1)).view_as(
                search.partial_hyps
            )
        found = [search.get_rescored_finished() for search in searches]
        if hasattr(self, "_rerank_beams"):
            found = self._rerank_beams(batch, found)
        return [best[0] for best in found], searches

    def _searches(self, batch, vocabulary, device):
        """ParlAI's search for each input, and whether anything is blocked."""
        contexts = self._get_batch_context(batch)
        blocking = bool(self.beam_block_list) or contexts.size(1) > 0
        if contexts.size(1) > 0:
            contexts = vocabulary.to_columns(contexts)
        searches = []
        for row in range(batch.batchsize):
            search = self._treesearch_factory(device, verbose=self.show_token_details)
            search.set_batch_context(contexts, row, self.opt.get("gpu_beam_blocking", False))
            if self.beam_block_list:
                search.set_block_list(LocalBlockList(self.beam_block_list, vocabulary, row, device))
            if hasattr(search, "full_stop_list"):  # ids of . ? ! in factual nucleus sampling
                stops = search.full_stop_list.to(device)
                columns = vocabulary.select(row).to_columns(stops.view(1, -1))
                search.full_stop_list = columns.view_as(stops)
            searches.append(search)
        return searches, blocking
