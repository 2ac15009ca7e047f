"""Whether two systems differ: paired bootstrap over the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics.scorer import Scores

RESAMPLES = 1000
_AT_A_TIME = 100  # resamples whose weights are held at once


@dataclass(frozen=True)
class Difference:
    """
    How the second system differs from the first in one output.

    Attributes:
        first, second: the two values, over the samples that both were judged on.
        difference: second less first.
        low, high: 95% interval of the difference, by the percentiles of the resamples.
        p_value: how often a difference as great would come about if there were none (two-sided):
            the share of resamples whose difference is at least that far from the resamples' mean,
            as sacrebleu computes it.
        samples: how many samples were compared.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    samples: int


def compare(
    first: Scores, second: Scores, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Difference]:
    """
    Paired bootstrap (Koehn 2004) between two systems' replies to the same samples, in one order.

    Samples are drawn with replacement, the same ones for both systems, and every value is computed
    anew from the statistics of those drawn; corpus BLEU thus from their summed counts.

    :return: a Difference for each output that both have
    :raises PersonaAgentsError: if the numbers of replies differ, or the metrics were computed in
        different ways
    """
    if resamples < 1:
        raise PersonaAgentsError(f"--resamples {resamples}: must be at least 1.")
    for name, signature in first.signatures.items():
        if second.signatures.get(name, signature) != signature:
            raise PersonaAgentsError(
                f"{name} was not computed in the same way for both: {signature} and "
                f"{second.signatures[name]}."
            )
    if first.counts["replies"] != second.counts["replies"]:
        raise PersonaAgentsError(
            f"Two systems are compared on the same samples, but there are "
            f"{first.counts['replies']} and {second.counts['replies']} replies."
        )
    found = {}
    for metric, ours in first.statistics.items():
        theirs = second.statistics.get(metric, [])
        pairs = [pair for pair in zip(ours, theirs) if None not in pair]
        if pairs:
            found.update(_compare(metric, *zip(*pairs), resamples, seed))
    return found


def _compare(metric, ours, theirs, resamples: int, seed: int) -> dict[str, Difference]:
    count = len(ours)
    firsts = metric.values(metric.total(ours))
    seconds = metric.values(metric.total(theirs))
    random = np.random.default_rng(seed)
    drawn = []
    for begin in range(0, resamples, _AT_A_TIME):
        size = min(_AT_A_TIME, resamples - begin)
        weights = random.multinomial(count, np.full(count, 1 / count), size=size)  # (B, N)
        drawn.append(metric.resample(theirs, weights) - metric.resample(ours, weights))
    differences = np.concatenate(drawn)  # (resamples, outputs)
    low, high = np.percentile(differences, [2.5, 97.5], axis=0)
    result = {}
    for i, output in enumerate(metric.outputs):
        difference = seconds[i] - firsts[i]
        deviations = np.abs(differences[:, i] - differences[:, i].mean())
        # a tie counts as reached; the margin is for sums in another order
        reached = int(np.count_nonzero(deviations >= abs(difference) - 1e-12))
        result[output] = Difference(
            firsts[i],
            seconds[i],
            difference,
            float(low[i]),
            float(high[i]),
            (reached + 1) / (resamples + 1),
            count,
        )
    return result
