"""What a study costs on a platform, worked out from its settings."""

from __future__ import annotations

# Mechanical Turk's fee, as published: 20 % of the reward for tasks with fewer than ten assignments
# (Mephisto's have one), at least one cent each.
MTURK_FEE = 0.20
MTURK_LEAST_FEE = 0.01


def mturk_costs(ratings: int, reward: float) -> dict[str, float]:
    """
    Dollars for a number of ratings.

    >>> mturk_costs(1500, 0.08)["total"]
    144.0
    """
    fee = max(MTURK_FEE * reward, MTURK_LEAST_FEE)
    return {
        "rewards": round(ratings * reward, 2),
        "fees": round(ratings * fee, 2),
        "total": round(ratings * (reward + fee), 2),
    }


def costs_of(ratings: int, reward: float, provider) -> str:
    """One line about what the missing ratings will cost."""
    kind = provider._provider_type
    if kind == "mock":
        return f"{ratings} ratings to come, at no cost"
    dollars = mturk_costs(ratings, reward)
    line = (
        f"{ratings} ratings to come at ${reward:.2f}: ${dollars['rewards']:.2f} for reviewers + "
        f"${dollars['fees']:.2f} fees = ${dollars['total']:.2f}"
    )
    return line if kind == "mturk" else f"{line} (nothing in the sandbox)"
