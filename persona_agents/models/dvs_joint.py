"""
Learning to choose the vocabulary: the two phases of training, and what evaluation reports.

Shapes as in ``dvs2s.py``; n is the number of sampled vocabularies S of the paper. A reply's own
words are written words(Y), its length with the end token m.

Phase 1 minimises the reply's negative log-likelihood on the full vocabulary plus the predictor's
binary cross-entropy. Phase 2 maximises L = E_T[R(T)] with

    R(T) = sum_j [ log p(y_j | T + words(Y)) - kappa 1(y_j not in T) ]

by the estimator, for each reply,

    1/n sum_s [ dR_s + (R_s / m - b_k) d log p(T_s | X) ]

(b_k the running baseline; without length normalisation R_s stands in place of R_s / m).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import linear, softplus

from persona_agents.models.attention import at_least_float32
from persona_agents.models.dvs_vocabulary import FORBIDDEN, as_sets, choose_content


class Measured(NamedTuple):
    """A batch of replies under their vocabularies."""

    loss: torch.Tensor | None  # (B,) what training minimises, of the whole reply
    log_prob: torch.Tensor  # (B, n, T) log p(y_j | T_s + words(Y)); 0 at padding
    best: torch.Tensor  # (B, T) most probable words, under the first of the vocabularies
    reward: torch.Tensor | None  # (B, n) R(T_s)
    sizes: torch.Tensor  # (B, n) number of words in T_s
    found: torch.Tensor  # (B, n) distinct content words of the reply that are in T_s
    gold: torch.Tensor  # (B,) distinct content words of the reply
    predictor_loss: torch.Tensor | None = None  # (B,) binary cross-entropy, summed over words
    full_log_prob: torch.Tensor | None = None  # (B, T) log p(y_j) on the full vocabulary
    scores: torch.Tensor | None = None  # (B, T, V) s(w) of all words
    allowed: torch.Tensor | None = None  # (B, C) content words of T + words(Y)
    missed: torch.Tensor | None = None  # (B, C) content words of the reply that are not in T


def content_of(ys: torch.Tensor, n_function: int, n_content: int) -> torch.Tensor:
    """words(Y) among the content words: (B, T) -> bool (B, C)."""
    held = torch.zeros(ys.size(0), n_content + 1, dtype=torch.bool, device=ys.device)
    # function words and padding go to a first column, which is dropped
    return held.scatter_(1, (ys - n_function + 1).clamp_min(0), True)[:, 1:]


def predictor_loss(logits: torch.Tensor, held: torch.Tensor, negatives=None) -> torch.Tensor:
    """
    Binary cross-entropy of beta, summed over words: (B,).

    :param logits: (B, C); ``held`` bool (B, C), the reply's content words.
    :param negatives: (B, N) sampled words to take in place of all other words; those that the reply
        holds do not count.
    """
    positive = (softplus(-logits) * held).sum(dim=1)
    if negatives is None:
        return positive + (softplus(logits) * ~held).sum(dim=1)
    absent = ~held.gather(1, negatives)
    return positive + (softplus(logits.gather(1, negatives)) * absent).sum(dim=1)


def log_prob_of_sets(logits: torch.Tensor, sets: torch.Tensor) -> torch.Tensor:
    """log p(T|X) of independent choices: logits (B, C), sets (B, n, C) -> (B, n)."""
    with torch.autocast(logits.device.type, enabled=False):  # a sum over many words
        chosen = torch.bmm(sets.to(logits.dtype), logits.unsqueeze(2)).squeeze(2)
    return chosen - softplus(logits).sum(dim=1, keepdim=True)


def estimator(
    reward: torch.Tensor,
    log_p: torch.Tensor,
    lengths: torch.Tensor,
    baseline: float | torch.Tensor,
    length_norm: bool,
) -> torch.Tensor:
    """
    A quantity (B,) whose gradient is the estimator of dL for each reply.

    :param reward: (B, n) R(T_s); ``log_p`` (B, n) log p(T_s|X).
    :param lengths: (B,) m.
    """
    value = normalised(reward, lengths, length_norm)
    return (reward + (value - baseline).detach() * log_p).mean(dim=1)


def normalised(reward: torch.Tensor, lengths: torch.Tensor, length_norm: bool) -> torch.Tensor:
    """R/m (B, n), or R without length normalisation: what the baseline averages."""
    return reward / lengths.unsqueeze(1) if length_norm else reward


def vocabulary_log_prob(model, features, ys, allowed):
    """
    log p(y_j) within vocabularies, computed on those columns only that some of them hold.

    :param features: (B, T, D); ``ys`` (B, T).
    :param allowed: bool (B, n, C), content words of each vocabulary; must hold words(Y).
    :return: (B, n, T), and the best words (B, T) under the first vocabulary.
    """
    n_function = model.sizes.function_words
    weight, bias = model.projection.weight, model.projection.bias
    used = allowed.flatten(0, 1).any(dim=0).nonzero().squeeze(1)  # (U,)
    function = at_least_float32(linear(features, weight[:n_function], bias[:n_function]))
    rows = used + n_function
    content = at_least_float32(linear(features, weight[rows], bias[rows]))  # (B, T, U)
    column = torch.zeros(model.sizes.vocabulary, dtype=torch.long, device=ys.device)
    column[rows] = torch.arange(n_function, n_function + len(used), device=ys.device)
    column[:n_function] = torch.arange(n_function, device=ys.device)
    scores = torch.cat((function, content), dim=-1)
    gold = scores.gather(2, column[ys].unsqueeze(2)).squeeze(2)  # (B, T)
    # One log-sum-exp of the function words serves all vocabularies.
    of_function = function.logsumexp(dim=-1)
    lowest = torch.finfo(content.dtype).min  # finite: a vocabulary may hold no content word
    log_probs = []
    for s in range(allowed.size(1)):
        masked = content.masked_fill(~allowed[:, s, used].unsqueeze(1), lowest)
        if len(used) == 0:
            total = of_function
        else:
            total = torch.logaddexp(of_function, masked.logsumexp(dim=-1))
        log_probs.append(gold - total)
        if s == 0:
            with torch.no_grad():
                best = torch.cat((function, masked), dim=-1).argmax(dim=-1)
                best = torch.cat((torch.arange(n_function, device=ys.device), rows))[best]
    return torch.stack(log_probs, dim=1), best


def _reward(log_prob, ys, sets, real, n_function: int, kappa: float) -> torch.Tensor:
    """R(T_s) (B, n) of log p (B, n, T), of which padding is 0 already."""
    content = (ys - n_function).clamp_min(0).unsqueeze(1).expand(-1, sets.size(1), -1)
    missed = ~sets.gather(2, content) & (real & (ys >= n_function)).unsqueeze(1)  # (B, n, T)
    return (log_prob - kappa * missed).sum(dim=2)


def joint(
    model,
    encoded,
    ys,
    *,
    kappa: float,
    samples: int = 1,
    sets=None,
    baseline=None,
    length_norm: bool = True,
    measure_full: bool = False,
) -> Measured:
    """
    Phase 2.

    :param samples: n, number of sampled vocabularies for each input.
    :param sets: bool (B, n, C), vocabularies to take in place of sampled ones.
    :param baseline: a function of the batch's mean of R/m that returns b_k.
    :param measure_full: compute ``full_log_prob`` too.
    """
    n_function = model.sizes.function_words
    logits, features = model.word_logits(encoded), model.features(encoded, ys)
    if sets is None:
        with torch.no_grad():
            beta = logits.sigmoid().unsqueeze(1).expand(-1, samples, -1)
            sets = torch.bernoulli(beta).bool()
    real, held = ys.ne(model.pad), content_of(ys, n_function, logits.size(1))
    log_prob, best = vocabulary_log_prob(model, features, ys, sets | held.unsqueeze(1))
    log_prob = log_prob * real.unsqueeze(1)
    reward = _reward(log_prob, ys, sets, real, n_function, kappa)
    lengths = real.sum(dim=1)
    with torch.no_grad():
        b = baseline(normalised(reward, lengths, length_norm)) if baseline else 0.0
    log_p = log_prob_of_sets(logits, sets)
    with torch.no_grad():
        full = full_log_prob(model, features, ys) if measure_full else None
        measured_loss = predictor_loss(logits, held)
    return Measured(
        -estimator(reward, log_p, lengths, b, length_norm),
        log_prob,
        best,
        reward,
        n_function + sets.sum(dim=2),
        (sets & held.unsqueeze(1)).sum(dim=2),
        held.sum(dim=1),
        measured_loss,
        full,
    )


def full_log_prob(model, features, ys) -> torch.Tensor:
    """log p(y_j) on the full vocabulary (B, T), 0 at padding."""
    return _of_target(model.scores(features), ys, model.pad)


def _of_target(scores, ys, pad) -> torch.Tensor:
    log_prob = scores.gather(2, ys.unsqueeze(2)).squeeze(2) - scores.logsumexp(dim=-1)
    return log_prob * ys.ne(pad)


def by_rule(
    model, encoded, ys, *, kappa: float, top_k: int, threshold=None, draw_negatives=None
) -> Measured:
    """
    Replies under the test-time vocabulary; ``loss`` is that of phase 1.

    :param draw_negatives: a function of the batch size for :func:`predictor_loss`, or None.
    """
    n_function = model.sizes.function_words
    features = model.features(encoded, ys)
    scores = model.scores(features)  # (B, T, V)
    full = _of_target(scores, ys, model.pad)
    real = ys.ne(model.pad)
    if model.predictor is None:  # nothing to choose
        everything = torch.full((len(ys), 1), model.sizes.vocabulary, device=ys.device)
        zero = torch.zeros(len(ys), dtype=torch.long, device=ys.device)
        return Measured(
            loss=-full.sum(dim=1),
            log_prob=full.unsqueeze(1),
            best=scores.argmax(dim=-1),
            reward=None,
            sizes=everything,
            found=zero.unsqueeze(1),
            gold=zero,
            full_log_prob=full,
            scores=scores,
        )
    logits = model.word_logits(encoded)
    held = content_of(ys, n_function, logits.size(1))
    negatives = draw_negatives(len(ys)) if draw_negatives else None
    cross_entropy = predictor_loss(logits, held, negatives)
    with torch.no_grad():
        content, mask = choose_content(logits, top_k, threshold)
        chosen = as_sets(content, mask, logits.size(1))
        missed = held & ~chosen
        log_prob, best = _within_rule(scores, ys, content, mask, missed, n_function)
        log_prob = (log_prob * real).unsqueeze(1)
        sets = chosen.unsqueeze(1)
        reward = _reward(log_prob, ys, sets, real, n_function, kappa)
    return Measured(
        -full.sum(dim=1) + cross_entropy,
        log_prob,
        best,
        reward,
        n_function + sets.sum(dim=2),
        (sets & held.unsqueeze(1)).sum(dim=2),
        held.sum(dim=1),
        predictor_loss(logits, held) if negatives is not None else cross_entropy,
        full,
        scores.detach(),
        chosen | held,
        missed,
    )


def _within_rule(scores, ys, content, mask, missed, n_function: int):
    """
    log p(y_j) (B, T) within T + words(Y), and the best words (B, T), on those columns alone.

    :param scores: (B, T, V); ``content`` and ``mask`` (B, K), the content words of T.
    :param missed: (B, C) content words of the reply that are not among them.
    """
    length = ys.size(1)
    repeats = (ys.unsqueeze(2) == ys.unsqueeze(1)).tril(-1).any(dim=2)
    further = missed.gather(1, (ys - n_function).clamp_min(0)) & (ys >= n_function) & ~repeats
    if mask is None:
        mask = torch.ones_like(content, dtype=torch.bool)
    words = torch.cat((content + n_function, ys), dim=1)  # (B, K + T)
    real = torch.cat((mask, further), dim=1)
    own = scores.gather(2, words.unsqueeze(1).expand(-1, length, -1))  # (B, T, K + T)
    own = own.masked_fill(~real.unsqueeze(1), FORBIDDEN)
    columns = torch.cat((scores[..., :n_function], own), dim=-1)
    gold = scores.gather(2, ys.unsqueeze(2)).squeeze(2)
    best = columns.argmax(dim=-1)
    own_best = words.gather(1, (best - n_function).clamp_min(0))
    best = torch.where(best < n_function, best, own_best)
    return gold - columns.logsumexp(dim=-1), best
