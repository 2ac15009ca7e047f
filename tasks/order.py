"""The order in which training samples are shown: a permutation for each epoch, from its seed alone."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

# Word pieces are few more than these: CJK characters, other words, punctuation marks.
_PIECE = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
# Responses of nearly the same length go together, so that their inputs can be sorted too.
NEARLY = 3


def length(text: str) -> int:
    """About the number of tokens of a text, without a tokenizer."""
    return sum(1 for _ in _PIECE.finditer(text))


def sort_key(sample) -> tuple[int, int]:
    """Lengths of response and input, by which samples of one batch should agree."""
    asked = sum(map(length, sample.persona)) + length(sample.query)
    return length(sample.response) // NEARLY, asked


def permutation(n: int, seed: int, epoch: int) -> list[int]:
    """The numbers below n in the order of an epoch."""
    indices = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(indices)
    return indices


def bucketed(keys: Sequence, seed: int, epoch: int, batch_size: int) -> list[int]:
    """
    A permutation in which the samples of a batch have about equal keys.

    Batches come in random order; which samples are together changes with the epoch where keys are
    equal. Epochs follow each other without a gap, so that an epoch may begin within a batch.

    :param keys: the sort key of each sample.
    :param batch_size: samples of a batch, of all workers together.
    """
    n = len(keys)
    indices = sorted(permutation(n, seed, epoch), key=keys.__getitem__)
    first = min(-epoch * n % batch_size, n)  # these fill the batch that the last epoch began
    whole = first + (n - first) // batch_size * batch_size
    batches = [indices[i : i + batch_size] for i in range(first, whole, batch_size)]
    random.Random(f"{seed} {epoch} batches").shuffle(batches)
    return [*indices[:first], *(index for batch in batches for index in batch), *indices[whole:]]
