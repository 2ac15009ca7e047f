"""
The copy arithmetic of the paper's eqs. 10-16, in logarithms.

A word can come from three places: the decoder's own vocabulary distribution, the query and the
persona. ``Modes`` holds the log-probability of each; ``Sources`` says how likely each place is to
give each source position. Because query and persona are parts of one input sequence, both copy
distributions live on the same S positions, and no one-hot matrix is built: a word's copy
probability is the sum over the positions that hold it. The functions that mix take any number of
such places: other tuples will do that begin like these two and name their places in equal order.

Everything here is float32 (or float64 when the model is), whatever the model runs in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from persona_agents.models.attention import at_least_float32

NO_MASS = float("-inf")


class Modes(NamedTuple):
    """Log-probabilities (B, T) that the next word is generated or copied; they sum to one."""

    generate: torch.Tensor  # log p_gen
    query: torch.Tensor  # log (1 - p_gen) + log beta
    persona: torch.Tensor  # log (1 - p_gen) + log gamma


class Sources(NamedTuple):
    """Where a copied word can come from: probabilities over the S positions of the input."""

    ids: torch.Tensor  # (B, S) word at each position
    query: torch.Tensor  # (B, T, S) each row sums to one, or to zero when nothing can be copied
    persona: torch.Tensor  # (B, T, S)


class Explanation(NamedTuple):
    """
    How a model came to each word of a given reply: the parts of eq. 16, as probabilities.

    ``generated`` and the sum of ``copied`` over the positions add up to ``probability``. Every model
    that copies from one input sequence can be explained so, whatever its gates are: where there is
    a single copy distribution, beta and gamma are its shares on the query and on the persona.
    """

    probability: torch.Tensor  # (B, T) of the reply's word, by the path that scores and decodes
    generated: torch.Tensor  # (B, T) p_gen p_decode(word)
    copied: torch.Tensor  # (B, T, S) from each input position, zero where another word stands
    p_gen: torch.Tensor  # (B, T)
    beta: torch.Tensor  # (B, T) share of the query in what is copied; beta + gamma = 1, or both 0
    gamma: torch.Tensor  # (B, T) share of the persona
    attention: torch.Tensor  # (B, T, S) copy distribution; sums to one over query and over persona
    query: torch.Tensor  # (B, S) bool: positions of the query's words
    persona: torch.Tensor  # (B, S) bool: positions of the persona's words


def _safe_log(mass: torch.Tensor) -> torch.Tensor:
    """log(mass), with -inf and a gradient of zero (not NaN) where there is no mass."""
    empty = mass < torch.finfo(mass.dtype).tiny  # the reciprocal of a denormal is infinite
    return mass.masked_fill(empty, 1.0).log().masked_fill(empty, NO_MASS)


def copy_distribution(attention: torch.Tensor, copyable: torch.Tensor) -> torch.Tensor:
    """
    Attention (B, T, S) restricted to the copyable positions (B, S) and made to sum to one again.

    [UNK] is attended to but cannot be copied; its mass is shared out here, evenly where it has
    taken all there was. A row with nothing to copy is zero.
    """
    copyable = copyable.unsqueeze(1)  # (B, 1, S)
    kept = at_least_float32(attention) * copyable
    total = kept.sum(dim=-1, keepdim=True)
    lost = total < torch.finfo(total.dtype).tiny
    kept = torch.where(lost, copyable.to(kept.dtype), kept)
    return kept / kept.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(total.dtype).tiny)


class CopyGate(nn.Module):
    """
    Chooses between generating, copying from the query and copying from the persona.

    :param d: hidden size.
    :param hierarchical: True for the paper's two levels (eqs. 14 and 15); False for one gate over
        the mean of both copy distributions (``--copy flat``).
    """

    def __init__(self, d: int, hierarchical: bool):
        super().__init__()
        self.gate = nn.Linear(4 * d, 1)  # W_B, b_B
        self.source = nn.Linear(d, d, bias=False) if hierarchical else None  # W_C

    def generate_logit(self, c_query, c_persona, h, e) -> torch.Tensor:
        """Eq. 14 before the sigmoid: [C_q; C_p; h; e] W_B + b_B, all (B, T, d) -> (B, T)."""
        return self.gate(torch.cat((c_query, c_persona, h, e), dim=-1)).squeeze(-1)

    def source_scores(self, c_query, c_persona, e) -> torch.Tensor:
        """Eq. 15 before the softmax: (C_q W_C e, C_p W_C e), (B, T, d) -> (B, T, 2)."""
        if self.source is None:
            return c_query.new_zeros(*c_query.shape[:-1], 2)
        projected = self.source(e)  # (B, T, d)
        return torch.stack(((c_query * projected).sum(-1), (c_persona * projected).sum(-1)), dim=-1)

    def forward(self, c_query, c_persona, h, e, has_query, has_persona) -> Modes:
        """
        Eqs. 14 and 15 in logarithms.

        :param has_query: bool (B,), whether the query holds a word that can be copied. Without one
            beta = 0, without a persona gamma = 0, with neither p_gen = 1.
        """
        logit = at_least_float32(self.generate_logit(c_query, c_persona, h, e))
        scores = at_least_float32(self.source_scores(c_query, c_persona, e))
        has_source = torch.stack((has_query, has_persona), dim=-1)  # (B, 2)
        nothing = ~has_source.any(dim=-1, keepdim=True)  # (B, 1)
        # With nothing to copy both scores stay, so that the softmax is defined; it goes unused.
        scores = scores.masked_fill(~(has_source | nothing).unsqueeze(1), NO_MASS)
        log_beta, log_gamma = scores.log_softmax(dim=-1).unbind(dim=-1)
        log_copy = F.logsigmoid(-logit).masked_fill(nothing, NO_MASS)
        return Modes(
            F.logsigmoid(logit).masked_fill(nothing, 0.0),
            log_copy + log_beta,
            log_copy + log_gamma,
        )


def log_decode(logits: torch.Tensor) -> torch.Tensor:
    """Eq. 9 in logarithms: log p_decode, (B, T, V)."""
    return at_least_float32(logits).log_softmax(dim=-1)


def target_log_prob(
    log_p: torch.Tensor,
    target: torch.Tensor,
    modes: Modes | None = None,
    sources: Sources | None = None,
) -> torch.Tensor:
    """
    Eq. 16 at one word for each step: log p_response(target), without building the mixture.

    :param log_p: (B, T, V) of :func:`log_decode`.
    :param target: (B, T) word ids.
    :return: (B, T) log-probabilities.
    """
    # the fastest way to the value at one word, backward pass included
    log_p = -F.nll_loss(log_p.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
    if modes is None:
        return log_p
    holds = target.unsqueeze(-1) == sources.ids.unsqueeze(1)  # (B, T, S)
    copied = [mode + _safe_log((a * holds).sum(-1)) for mode, a in _places(modes, sources)]
    return torch.stack((modes.generate + log_p, *copied)).logsumexp(dim=0)


def _places(modes, sources):
    """Where words are copied from: pairs of log-probability (B, T) and distribution (B, T, S)."""
    return zip(modes[1:], sources[1:])


def explain(
    logits: torch.Tensor,
    target: torch.Tensor,
    modes: Modes,
    sources: Sources,
    query: torch.Tensor,
    persona: torch.Tensor,
) -> Explanation:
    """
    The parts of eq. 16 for one word at each step.

    :param logits: (B, T, V) scores of eq. 9.
    :param target: (B, T) word ids.
    :param query: bool (B, S), the positions of the query's words; ``persona`` likewise.
    """
    log_decoded = log_decode(logits)  # (B, T, V)
    log_p = target_log_prob(log_decoded, target)  # (B, T) log p_decode
    log_copy = torch.stack(modes[1:]).logsumexp(dim=0)  # (B, T) log (1 - p_gen)
    # The copy distribution by itself, so that a p_gen of nearly 1 does not swallow it.
    nothing = log_copy == NO_MASS
    weights = sum(  # (B, T, S)
        (mode - log_copy).masked_fill(nothing, NO_MASS).exp().unsqueeze(-1) * a
        for mode, a in _places(modes, sources)
    )
    of_query, of_persona = weights * query.unsqueeze(1), weights * persona.unsqueeze(1)
    beta, gamma = of_query.sum(-1), of_persona.sum(-1)  # (B, T)
    tiny = torch.finfo(weights.dtype).tiny
    holds = target.unsqueeze(-1) == sources.ids.unsqueeze(1)  # (B, T, S)
    return Explanation(
        target_log_prob(log_decoded, target, modes, sources).exp(),
        (modes.generate + log_p).exp(),
        log_copy.exp().unsqueeze(-1) * weights * holds,
        modes.generate.exp(),
        beta,
        gamma,
        of_query / beta.clamp_min(tiny).unsqueeze(-1)
        + of_persona / gamma.clamp_min(tiny).unsqueeze(-1),
        query,
        persona,
    )


def _at_source_words(log_generated: torch.Tensor, modes: Modes, sources: Sources) -> torch.Tensor:
    """
    Eq. 16 at the word of each source position, (B, T, S).

    :param log_generated: (B, T, S) log p_gen p_decode of those words.
    """
    same = sources.ids.unsqueeze(1) == sources.ids.unsqueeze(2)  # (B, S, S)
    same = same.to(sources[1].dtype)
    with torch.autocast(same.device.type, enabled=False):  # it would shorten the products
        copied = [mode.unsqueeze(-1) + _safe_log(a @ same) for mode, a in _places(modes, sources)]
    return torch.stack((log_generated, *copied)).logsumexp(dim=0)


def mixture(
    logits: torch.Tensor, modes: Modes | None = None, sources: Sources | None = None
) -> torch.Tensor:
    """
    Eq. 16 for the whole vocabulary: log p_response, (B, T, V); each row sums to one.

    For search and evaluation. Its gradient counts a word once for each position that holds it, so
    training goes through :func:`target_log_prob`.
    """
    log_p = log_decode(logits)
    if modes is None:
        return log_p
    log_p = log_p + modes.generate.unsqueeze(-1)
    ids = sources.ids.unsqueeze(1).expand_as(sources[1])  # (B, T, S)
    mixed = _at_source_words(log_p.gather(-1, ids), modes, sources)
    return log_p.scatter(-1, ids, mixed)  # a word at several positions is written equal each time


def best_word(
    log_p: torch.Tensor, modes: Modes | None = None, sources: Sources | None = None
) -> torch.Tensor:
    """
    The argmax of eq. 16, (B, T), without the (B, T, V) mixture: for token accuracy.

    :param log_p: (B, T, V) of :func:`log_decode`.
    """
    top, word = log_p.max(dim=-1)  # (B, T)
    if modes is None:
        return word
    ids = sources.ids.unsqueeze(1).expand_as(sources[1])  # (B, T, S)
    log_generated = log_p.gather(-1, ids) + modes.generate.unsqueeze(-1)
    copied, position = _at_source_words(log_generated, modes, sources).max(dim=-1)  # (B, T)
    # A word that stands in no source scores as generated; one that does scores at least that.
    return torch.where(copied > top + modes.generate, sources.ids.gather(1, position), word)
