"""What a metric is: per-reply statistics that add up, and the values that follow from their sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np


class Reply:
    """
    One reply and all that it is judged by.

    Attributes:
        text: the reply; "" is an empty reply, which is scored (with 0) and counted; None if none
            was made, so that only `nll` can be judged.
        references: gold replies; () if there is none.
        persona: the sentences about the one who replies; () if there is none.
        query: what is answered; may be empty.
        nll: negative log-likelihood of the reference under the model that replied, its end token
            included, in nats; None if unknown.
        statistics: what each metric has found so far, by the metric's key.
    """

    __slots__ = ("__weakref__", "nll", "persona", "query", "references", "statistics", "text")

    def __init__(
        self,
        text: str | None,
        references: Iterable[str] = (),
        persona: Iterable[str] = (),
        query: str = "",
        nll: float | None = None,
    ):
        self.text = text
        self.references = tuple(references)
        self.persona = tuple(persona)
        self.query = query
        self.nll = nll
        self.statistics: dict[str, object] = {}


class Metric(ABC):
    """
    A metric of a set of replies.

    A reply's statistics are whatever adds up over replies (clipped n-gram counts, a score and the
    number 1); values are computed from the sum alone. So it does not matter how the replies were
    spread over batches, tasks and workers, and a bootstrap sample costs a weighted sum. Everything
    that works on sums is a class method: sums travel between processes, models do not.

    Attributes:
        key: the metric's own name, unique.
        outputs: names under which values are reported.
        judges_text: whether it needs a reply's text.
    """

    key: str
    outputs: tuple[str, ...]
    judges_text = True

    @property
    @abstractmethod
    def signature(self) -> str:
        """All that must be known to reproduce a value: tokens, model, layer, versions."""

    def fits(self, reply: Reply) -> bool:
        """Whether the reply has what this metric needs; else it is left out (and counted)."""
        return not (self.judges_text and reply.text is None) and self.applies(reply)

    @abstractmethod
    def applies(self, reply: Reply) -> bool:
        """The same, apart from the reply's text."""

    @abstractmethod
    def statistics(self, replies: Sequence[Reply]) -> list:
        """Statistics of each of the replies, all of which the metric applies to."""

    @classmethod
    def total(cls, statistics: Sequence):
        """The sum of some replies' statistics; at least one."""
        return np.sum(np.asarray(statistics, dtype=np.float64), axis=0)

    @classmethod
    def add(cls, one, other):
        """The sum of two sums; both stay as they are."""
        return one + other

    @classmethod
    @abstractmethod
    def values(cls, total) -> tuple[float, ...]:
        """The values of `outputs` that follow from a sum."""

    @classmethod
    def resample(cls, statistics: Sequence, weights: np.ndarray) -> np.ndarray:
        """
        Values of resampled sets of replies.

        :param statistics: of N replies
        :param weights: (B, N), how often each reply is in each of B sets
        :return: (B, outputs)
        """
        totals = weights @ np.asarray(statistics, dtype=np.float64)  # (B, K)
        return np.array([cls.values(total) for total in totals])


class Ratio(Metric):
    """
    A metric whose statistics are one numerator for each output, then one denominator for all.

    With 1 as denominator it is the mean over replies.
    """

    @classmethod
    def values(cls, total) -> tuple[float, ...]:
        *numerators, denominator = (float(number) for number in total)
        return tuple(number / denominator if denominator else 0.0 for number in numerators)
