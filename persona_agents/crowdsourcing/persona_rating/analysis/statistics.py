"""Means with intervals, agreement between reviewers, and tests between systems.

Ratings come as one dictionary an item: reviewer -> number. The item is the unit of everything: the
ratings of one item are averaged first, as they are not independent of each other.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np

from persona_agents.errors import PersonaAgentsError

Ratings = "list[dict[str, float]]"
MISSING = (
    "{0} is not installed: pip install '.[crowdsourcing]' in the folder of persona_agents' setup.py"
)


def _finite(value) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None


def mean_interval(ratings: Ratings, confidence: float = 0.95) -> dict:
    """
    Mean over items and its interval by Student's t.

    :return: mean, low, high (None where undefined: the interval needs two items), items, ratings
    """
    from scipy import stats

    items = [item for item in ratings if item]
    result = {"items": len(items), "ratings": sum(map(len, items))}
    if not items:
        return {"mean": None, "low": None, "high": None, **result}
    means = np.array([np.mean(list(item.values())) for item in items])
    mean, low, high = means.mean(), None, None
    if len(means) > 1:
        half = stats.t.ppf((1 + confidence) / 2, len(means) - 1) * stats.sem(means)
        low, high = float(mean - half), float(mean + half)
    return {"mean": float(mean), "low": low, "high": high, **result}


def krippendorff_alpha(ratings: Ratings) -> float | None:
    """
    Krippendorff's alpha with ordinal distances; items may have any number of ratings.

    :return: None where it is undefined: no item with two ratings, or one value throughout
    """
    try:
        import krippendorff
    except ImportError as error:
        raise PersonaAgentsError(MISSING.format("krippendorff")) from error

    items = [item for item in ratings if len(item) > 1]
    if len({value for item in items for value in item.values()}) < 2:
        return None
    reviewers = sorted({reviewer for item in items for reviewer in item})
    data = np.array([[item.get(reviewer, np.nan) for item in items] for reviewer in reviewers])
    return _finite(krippendorff.alpha(data, level_of_measurement="ordinal"))


def fleiss_kappa(ratings: Ratings) -> tuple[float | None, int]:
    """
    Fleiss' kappa, over the items that have the largest number of ratings (it needs equal numbers).

    :return: kappa (None where it is undefined, as alpha is) and the number of those items
    """
    try:
        from statsmodels.stats.inter_rater import fleiss_kappa as kappa
    except ImportError as error:
        raise PersonaAgentsError(MISSING.format("statsmodels")) from error

    most = max(map(len, ratings), default=0)
    items = [item for item in ratings if len(item) == most]
    values = sorted({value for item in items for value in item.values()})
    if most < 2 or len(values) < 2:
        return None, len(items) if most > 1 else 0
    counts = [Counter(item.values()) for item in items]
    table = np.array([[count[value] for value in values] for count in counts])
    return _finite(kappa(table, method="fleiss")), len(items)


def agreement(ratings: Ratings) -> dict:
    """Both measures, and the share of pairs of reviewers that chose the same value."""
    kappa, items = fleiss_kappa(ratings)
    pairs = [a == b for item in ratings for a, b in itertools.combinations(list(item.values()), 2)]
    return {
        "alpha": krippendorff_alpha(ratings),
        "kappa": kappa,
        "kappa items": items,
        "same": float(np.mean(pairs)) if pairs else None,
    }


def signed_rank(differences) -> float | None:
    """
    Two-sided p of Wilcoxon's signed-rank test; zeros are split between both sides.

    :param differences: one a sample
    :return: None without samples, 1 if all are equal
    """
    from scipy import stats

    differences = np.asarray(differences, dtype=float)
    if not len(differences):
        return None
    if not differences.any():
        return 1.0
    return float(stats.wilcoxon(differences, zero_method="zsplit").pvalue)


def holm(values: list[float | None]) -> list[float | None]:
    """
    p-values corrected for their number (Holm 1979); None stays None.

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, p * (len(order) - rank)))
        corrected[i] = largest
    return corrected


def compare(first: dict, second: dict) -> dict:
    """
    Two systems on the samples that both have ratings for.

    :param first: sample -> mean rating; likewise `second`
    :return: difference (first - second) with its interval, samples, p
    """
    samples = sorted(set(first) & set(second))
    differences = [first[sample] - second[sample] for sample in samples]
    interval = mean_interval([{"difference": difference} for difference in differences])
    return {
        "difference": interval["mean"],
        "low": interval["low"],
        "high": interval["high"],
        "samples": len(samples),
        "p": signed_rank(differences),
    }
