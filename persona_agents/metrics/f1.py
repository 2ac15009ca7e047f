"""F1 over characters (the paper's eq. 18), and over words beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from persona_agents.metrics.base import Ratio, Reply
from persona_agents.metrics.tokens import characters, words, words_signature


def overlap(reply: Sequence, references: Sequence[Sequence]) -> tuple[int, int]:
    """
    (numerator, denominator) of F1 as a fraction: 2 × the common elements, by all elements.

    Elements are counted as often as they occur. Of several references the one of highest F1 counts.
    """
    said, best = Counter(reply), (0, 0)
    for reference in references:
        common = sum((said & Counter(reference)).values())
        pair = (2 * common, len(reply) + len(reference))
        if best[1] == 0 or pair[0] * best[1] > best[0] * pair[1]:
            best = pair
    return best


def f1(reply: Sequence, references: Sequence[Sequence]) -> float:
    """Eq. 18, 2 P R / (P + R), from 0 to 1; 0 for an empty reply."""
    numerator, denominator = overlap(reply, references)
    return numerator / denominator if numerator else 0.0


class CharF1(Ratio):
    """
    F1 over characters without spaces, per reply and then averaged; word F1 likewise.

    In English any two sentences share most of their letters, so word F1 stands beside it.
    """

    key = "char_f1"
    outputs = ("char_f1", "word_f1")

    def __init__(self, language: str):
        self.language = language

    @property
    def signature(self) -> str:
        return (
            f"chars:nfkc,lower,no-spaces|words:{words_signature(self.language)}"
            "|overlap:multiset|average:reply"
        )

    def applies(self, reply: Reply) -> bool:
        return bool(reply.references)

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [
            (
                *(
                    f1(split(reply.text), [split(text) for text in reply.references])
                    for split in (characters, words)
                ),
                1,
            )
            for reply in replies
        ]


class MicroCharF1(CharF1):
    """The same with matches and lengths summed over all replies first."""

    key = "char_f1_micro"

    @property
    def signature(self) -> str:
        return super().signature.replace("average:reply", "average:micro")

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [
            tuple(
                number
                for split in (characters, words)
                for number in overlap(split(reply.text), [split(t) for t in reply.references])
            )
            for reply in replies
        ]

    @classmethod
    def values(cls, total) -> tuple[float, ...]:
        return tuple(float(total[i] / total[i + 1]) if total[i + 1] else 0.0 for i in (0, 2))
