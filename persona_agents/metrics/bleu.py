"""Corpus BLEU (the paper's eq. 17)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from persona_agents.metrics.base import Metric, Reply
from persona_agents.metrics.tokens import BASIC, basic

ORDERS = 4


@cache
def _sacrebleu():
    from sacrebleu.metrics import BLEU

    # force: the texts are tokenized already, on purpose
    return BLEU(tokenize="none", smooth_method="none", max_ngram_order=ORDERS, force=True)


class CorpusBleu(Metric):
    """
    BLEU of the whole set of replies, from 0 to 100, for the cumulative orders 1 to 4.

    sacrebleu counts: per reply the clipped n-gram matches (4), the n-grams (4), the reply's length
    and that of the reference closest to it. There is no smoothing: without any common 4-gram in
    the whole set, BLEU-4 is 0.
    """

    key = "corpus_bleu"
    outputs = tuple(f"corpus_bleu_{order}" for order in range(1, ORDERS + 1))

    @property
    def signature(self) -> str:
        import sacrebleu

        return f"tok:{BASIC}|level:corpus|smooth:none|eff:no|sacrebleu:{sacrebleu.__version__}"

    def applies(self, reply: Reply) -> bool:
        return bool(reply.references)

    def statistics(self, replies: Sequence[Reply]) -> list:
        found = []
        for reply in replies:
            references = [[" ".join(basic(text))] for text in reply.references]
            score = _sacrebleu().corpus_score([" ".join(basic(reply.text))], references)
            found.append((*score.counts, *score.totals, score.sys_len, score.ref_len))
        return found

    @classmethod
    def values(cls, total) -> tuple[float, ...]:
        counts = [int(number) for number in total]
        matches, ngrams, (length, reference_length) = counts[:4], counts[4:8], counts[8:]
        return tuple(
            _sacrebleu()
            .compute_bleu(
                matches[:order],
                ngrams[:order],
                length,
                reference_length,
                smooth_method="none",
                max_ngram_order=order,
            )
            .score
            for order in range(1, ORDERS + 1)
        )
