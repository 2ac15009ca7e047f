"""Agreement and tests against published worked examples."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("krippendorff", reason="needs persona_agents[crowdsourcing]")
pytest.importorskip("statsmodels", reason="needs persona_agents[crowdsourcing]")

from persona_agents.crowdsourcing.persona_rating.analysis.statistics import (
    agreement,
    compare,
    fleiss_kappa,
    holm,
    krippendorff_alpha,
    mean_interval,
    signed_rank,
)

# K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), part C: four observers, twelve
# units, missing data. The paper gives alpha = .743 (nominal), .815 (ordinal), .849 (interval).
KRIPPENDORFF = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""

# The worked example of the article "Fleiss' kappa" in Wikipedia: ten subjects, fourteen raters,
# five categories; kappa = .210.
FLEISS = """
0 0 0 0 14
0 2 6 4 2
0 0 3 5 6
0 3 9 2 0
2 2 8 1 1
7 7 0 0 0
3 2 6 3 0
2 5 3 2 2
6 5 2 1 0
0 2 2 3 7
"""


def units(text):
    rows = [line.split() for line in text.strip().splitlines()]
    return [
        {f"observer {row}": float(value) for row, value in enumerate(unit) if value != "."}
        for unit in zip(*rows)
    ]


def subjects(text):
    items = []
    for line in text.strip().splitlines():
        values = [v for v, count in enumerate(map(int, line.split()), 1) for _ in range(count)]
        items.append({f"rater {n}": value for n, value in enumerate(values)})
    return items


def random_ratings(items=2000, reviewers=3, seed=0):
    draws = np.random.default_rng(seed).integers(0, 3, (items, reviewers))
    return [{f"R{r}": int(value) for r, value in enumerate(row)} for row in draws]


def test_alpha_of_the_published_example():
    assert krippendorff_alpha(units(KRIPPENDORFF)) == pytest.approx(0.815, abs=0.0005)


def test_kappa_of_the_published_example():
    kappa, items = fleiss_kappa(subjects(FLEISS))
    assert kappa == pytest.approx(0.210, abs=0.0005)
    assert items == 10


def test_random_ratings_do_not_agree():
    values = agreement(random_ratings())
    assert abs(values["alpha"]) < 0.04
    assert abs(values["kappa"]) < 0.04
    assert values["same"] == pytest.approx(1 / 3, abs=0.02)


def test_identical_ratings_agree_fully():
    values = agreement([{"R1": n % 3, "R2": n % 3, "R3": n % 3} for n in range(30)])
    assert (values["alpha"], values["kappa"], values["same"]) == (1.0, 1.0, 1.0)


def test_alpha_is_ordinal():
    """Being two apart is worse than being one apart."""
    near = [{"R1": 0, "R2": 1}, {"R1": 2, "R2": 2}, {"R1": 0, "R2": 0}, {"R1": 1, "R2": 1}]
    far = [{"R1": 0, "R2": 2}, *near[1:]]
    assert krippendorff_alpha(near) > krippendorff_alpha(far)


@pytest.mark.parametrize("ratings", [[], [{}], [{"R1": 1}], [{"R1": 2, "R2": 2}] * 5])
def test_undefined_agreement_is_none(ratings):
    assert krippendorff_alpha(ratings) is None
    assert fleiss_kappa(ratings)[0] is None


def test_kappa_takes_the_items_that_are_complete():
    complete = random_ratings(50)
    assert fleiss_kappa([*complete, {"R1": 1}, {}]) == fleiss_kappa(complete)


def test_reviewers_may_differ_from_item_to_item():
    """Which three of many rated an item changes neither number of the published kind."""
    ratings = random_ratings(40)
    renamed = [{f"{r}-{n % 4}": v for r, v in item.items()} for n, item in enumerate(ratings)]
    assert krippendorff_alpha(renamed) == pytest.approx(krippendorff_alpha(ratings))
    assert fleiss_kappa(renamed) == fleiss_kappa(ratings)


def test_interval_of_a_worked_example():
    # Student (1908), The probable error of a mean: hours of sleep gained by ten patients with
    # laevo-hyoscyamine; mean 2.33, and with t(9) = 2.262 and s = 2.002 the interval 0.90 to 3.76
    sleep = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    values = mean_interval([{"R1": hours} for hours in sleep])
    assert values["mean"] == pytest.approx(2.33)
    assert (values["low"], values["high"]) == pytest.approx((0.90, 3.76), abs=0.005)
    assert (values["items"], values["ratings"]) == (10, 10)


def test_interval_counts_items_not_ratings():
    """Three identical ratings of an item are one observation."""
    once = mean_interval([{"R1": n % 3} for n in range(30)])
    thrice = mean_interval([dict.fromkeys(["R1", "R2", "R3"], n % 3) for n in range(30)])
    assert (once["low"], once["high"]) == (thrice["low"], thrice["high"])
    assert (once["ratings"], thrice["ratings"]) == (30, 90)


def test_interval_of_little():
    assert mean_interval([])["mean"] is None
    assert mean_interval([{}, {"R1": 2, "R2": 1}]) == {
        "mean": 1.5,
        "low": None,
        "high": None,
        "items": 1,
        "ratings": 2,
    }


def test_signed_rank_of_the_published_example():
    # F. Wilcoxon, Individual comparisons by ranking methods (1945), table II: cross- and
    # self-fertilised plants (Darwin); the smaller rank sum is 24 of 120, p about .04
    differences = [6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75]
    assert signed_rank(differences) == pytest.approx(0.041, abs=0.001)
    assert signed_rank([]) is None
    assert signed_rank([0, 0, 0]) == 1.0


def test_compare_takes_samples_of_both():
    result = compare({1: 2.0, 2: 1.0, 3: 2.0}, {1: 1.0, 2: 1.0, 4: 0.0})
    assert result["samples"] == 2
    assert result["difference"] == 0.5


def test_holm_of_a_worked_example():
    # by hand: 0.01 * 3, 0.03 * 2, and 0.04 * 1 raised to what stands before it
    assert [round(p, 3) for p in holm([0.04, 0.01, 0.03])] == [0.06, 0.03, 0.06]
    assert holm([None, 0.9, 0.8]) == [None, 1.0, 1.0]
