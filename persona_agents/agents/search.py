"""
ParlAI's search, faster: same replies, same scores.

ParlAI computes every sample of a batch until the last one is finished, and goes through them one by
one at each step. Here samples whose search has ended leave the batch, and greedy search takes a
step of all samples at once. What these do not cover (given prefixes, token details, re-ranking) is
left to ParlAI.
"""

from __future__ import annotations

import math

import torch
from parlai.core.torch_generator_agent import GreedySearch

# Leaving copies encoder states and caches of those that stay: done when this share has finished.
LEAVE = 0.2


class FinishedGreedy(GreedySearch):
    """A search that has ended, as ParlAI asks it for its hypotheses."""

    hypothesis = None  # (tokens, score, no details)

    def get_rescored_finished(self, n_best=None):
        return [self.hypothesis]


def is_covered(agent, batch, prefix_tokens) -> bool:
    """Whether the search may run here."""
    return (
        prefix_tokens is None
        and batch.text_vec is not None
        and not agent.show_token_details
        and not hasattr(agent, "_rerank_beams")
    )


def is_plain_greedy(agent, beam_size: int) -> bool:
    """Whether a step is nothing but an argmax."""
    return (
        agent.opt.get("inference", "greedy") == "greedy"
        and beam_size == 1
        and agent.beam_block_ngram <= 0
        and agent.beam_context_block_ngram <= 0
        and not agent.beam_block_list
    )


def next_scores(agent, words, encoded, state):
    """Log-probabilities (R, V) of the next words after ``words`` (R, t), and the new state."""
    scores, state = agent.module.decoder(words, encoded, state)
    scores = agent.module.output(scores[:, -1:, :]).squeeze(1)
    if agent.temperature != 1.0:
        scores = scores / agent.temperature
    return agent._generation_activation(scores), state


def greedy(agent, batch, max_ts: int):
    """
    One greedy reply to each sample of the batch. Like ParlAI's it knows no least length.

    :return: as ParlAI's ``_generate``, a list of (ids from [CLS] to [SEP], score, None), and the
        searches.
    """
    model, end, device = agent.module, agent.END_IDX, batch.text_vec.device
    n = batch.batchsize
    encoded, state = model.encoder(*agent._encoder_input(batch)), None
    words = agent._get_initial_decoder_input(n, 1, device)  # (R, 1)
    rows = torch.arange(n, device=device)  # (R,) samples still in the batch
    unfinished = torch.ones(n, dtype=torch.bool, device=device)  # (n,)
    replies = torch.full((n, max_ts + 1), end, device=device)
    replies[:, :1] = words
    totals = torch.zeros(n, device=device)
    for step in range(max_ts):
        log_probs, state = next_scores(agent, words, encoded, state)  # (R, V)
        best, word = log_probs.max(dim=1)  # (R,)
        going = unfinished[rows]
        totals[rows] += best * going
        replies[rows, step + 1] = torch.where(going, word, replies[rows, step + 1])
        unfinished[rows] = going = going & word.ne(end)
        left = int(going.sum())
        if left == 0:
            break
        kept = torch.arange(len(rows), device=device)
        if left <= (1 - LEAVE) * len(rows):
            kept = going.nonzero().squeeze(1)
            encoded = model.reorder_encoder_states(encoded, kept)
            state = model.reorder_decoder_incremental_state(state, kept)
            rows = rows[kept]
        words = agent._get_next_decoder_input(words, word[kept].unsqueeze(1), kept)
    replies[:, -1] = end  # ParlAI, too, ends what is too long so
    searches = []
    for reply, total in zip(replies, totals):
        length = int(reply[1:].eq(end).nonzero()[0]) + 2
        search = FinishedGreedy(1, length_penalty=agent.opt.get("beam_length_penalty", 0.65))
        # the length penalty of Wu et al. (2016), as ParlAI takes it
        penalty = math.pow((1 + length) / 6, search.length_penalty)
        search.hypothesis = (reply[:length], total / penalty, None)
        searches.append(search)
    return [search.hypothesis for search in searches], searches


def by_sample(agent, batch, beam_size: int, max_ts: int):
    """
    ParlAI's search of each sample: beams, sampling, blocking.

    :return: as :func:`greedy`.
    """
    model, device = agent.module, batch.text_vec.device
    context = agent._get_batch_context(batch)
    on_gpu = agent.opt.get("gpu_beam_blocking", False)
    searches = [
        agent._treesearch_factory(device)
        .set_batch_context(context, i, on_gpu)
        .set_block_list(agent.beam_block_list)
        for i in range(batch.batchsize)
    ]
    running = list(searches)
    encoded = model.encoder(*agent._encoder_input(batch))
    # rows of what is encoded, for each input
    width = 1 if getattr(model, "beams_share_input", False) else beam_size
    if width > 1:
        beams = torch.arange(batch.batchsize, device=device).repeat_interleave(width)
        encoded = model.reorder_encoder_states(encoded, beams)
    state = None
    words = agent._get_initial_decoder_input(batch.batchsize, beam_size, device)  # (R k, 1)
    for step in range(max_ts):
        log_probs, state = next_scores(agent, words, encoded, state)
        scores = log_probs.unflatten(0, (-1, beam_size))  # (R, k, V)
        for i, search in enumerate(running):
            if not search.is_done():
                search.advance(scores[i], step)
        kept = [i for i, search in enumerate(running) if not search.is_done()]
        if not kept:
            break
        if len(kept) > (1 - LEAVE) * len(running):
            kept = range(len(running))
        else:
            rows = torch.tensor(kept, device=device).unsqueeze(1) * width
            rows = (rows + torch.arange(width, device=device)).flatten()
            encoded = model.reorder_encoder_states(encoded, rows)
        parents = torch.cat(
            [beam_size * i + running[i].get_backtrack_from_current_step() for i in kept]
        )
        chosen = torch.cat([running[i].get_output_from_current_step() for i in kept])
        state = model.reorder_decoder_incremental_state(state, parents)
        words = agent._get_next_decoder_input(words, chosen.unsqueeze(-1), parents)
        running = [running[i] for i in kept]
    return [search.get_rescored_finished()[0] for search in searches], searches
