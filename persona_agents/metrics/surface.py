"""What the main metrics do not see: variety, copying, length, and perplexity per character."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from persona_agents.metrics.base import Metric, Ratio, Reply
from persona_agents.metrics.tokens import BASIC, basic, basic_words, characters


class CorpusDistinct(Metric):
    """Distinct n-grams of all replies together, as a share of all their n-grams (n = 1, 2)."""

    key = "corpus_distinct"
    outputs = ("corpus_distinct_1", "corpus_distinct_2")

    @property
    def signature(self) -> str:
        return f"tok:{BASIC}|level:corpus"

    def applies(self, reply: Reply) -> bool:
        return True

    def statistics(self, replies: Sequence[Reply]) -> list:
        """The n-grams of each reply: a pair of tuples."""
        tokens = [basic(reply.text) for reply in replies]
        return [(tuple((t,) for t in text), tuple(zip(text, text[1:]))) for text in tokens]

    @classmethod
    def total(cls, statistics: Sequence):
        """For each n: (the set of n-grams, how many there were)."""
        columns = list(zip(*statistics))
        return tuple(
            (frozenset(ngram for ngrams in column for ngram in ngrams), sum(map(len, column)))
            for column in columns
        )

    @classmethod
    def add(cls, one, other):
        return tuple((a | c, b + d) for (a, b), (c, d) in zip(one, other))

    @classmethod
    def values(cls, total) -> tuple[float, ...]:
        return tuple(len(ngrams) / count if count else 0.0 for ngrams, count in total)

    @classmethod
    def resample(cls, statistics: Sequence, weights: np.ndarray) -> np.ndarray:
        from scipy.sparse import csr_matrix

        columns = []
        for ngrams in zip(*statistics):
            numbers: dict[tuple, int] = {}
            rows = [i for i, row in enumerate(ngrams) for _ in row]
            ids = [numbers.setdefault(ngram, len(numbers)) for row in ngrams for ngram in row]
            shape = (len(ngrams), max(len(numbers), 1))
            holds = csr_matrix((np.ones(len(ids)), (rows, ids)), shape=shape)  # (N, n-grams)
            distinct = np.array([np.count_nonzero(holds.T @ chosen) for chosen in weights])  # (B,)
            counts = weights @ np.array([len(row) for row in ngrams])  # (B,)
            columns.append(distinct / np.maximum(counts, 1))
        return np.stack(columns, axis=1)


def verbatim(reply: Sequence[str], sources: Sequence[Sequence[str]]) -> float:
    """
    The longest run of words that the reply shares with a source, by the reply's number of words.

    :return: 1 if all of the reply stands in a source as it is, 0 for an empty reply
    """
    if not reply:
        return 0.0
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(reply)
    longest = 0
    for source in sources:
        matcher.set_seq1(source)
        longest = max(longest, matcher.find_longest_match(0, len(source), 0, len(reply)).size)
    return longest / len(reply)


class Verbatim(Ratio):
    """How much of a reply is one piece of a persona sentence; sub-classed for the query."""

    key = "verbatim_persona"
    outputs = ("verbatim_persona",)

    @property
    def signature(self) -> str:
        return f"words:{BASIC},no-punctuation|longest-common-run/reply-length|average:reply"

    def sources(self, reply: Reply) -> Sequence[str]:
        """The texts that may have been copied."""
        return reply.persona

    def applies(self, reply: Reply) -> bool:
        return any(self.sources(reply))

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [
            (verbatim(basic_words(reply.text), [*map(basic_words, self.sources(reply))]), 1)
            for reply in replies
        ]


class VerbatimQuery(Verbatim):
    """How much of a reply is one piece of the query."""

    key = "verbatim_query"
    outputs = ("verbatim_query",)

    def sources(self, reply: Reply) -> Sequence[str]:
        return reply.query.splitlines()


class Length(Ratio):
    """Mean number of tokens of a reply."""

    key = "length"
    outputs = ("length",)

    @property
    def signature(self) -> str:
        return f"tok:{BASIC}|average:reply"

    def applies(self, reply: Reply) -> bool:
        return True

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [(len(basic(reply.text)), 1) for reply in replies]


class CharPpl(Ratio):
    """
    Perplexity per character: exp of all references' losses by the number of their characters.

    Perplexities per token do not compare between vocabularies; this one does. The loss of the end
    token is part of it, the end is no character.
    """

    key = "char_ppl"
    outputs = ("char_ppl",)
    judges_text = False

    @property
    def signature(self) -> str:
        return "chars:nfkc,lower,no-spaces|loss:with-end-token|level:corpus"

    def applies(self, reply: Reply) -> bool:
        return reply.nll is not None and len(reply.references) == 1

    def statistics(self, replies: Sequence[Reply]) -> list:
        return [(reply.nll, len(characters(reply.references[0]))) for reply in replies]

    @classmethod
    def values(cls, total) -> tuple[float, ...]:
        (loss,) = super().values(total)
        return (math.exp(loss) if loss < 700 else math.inf,)
