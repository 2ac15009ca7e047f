"""Reading a batch without its padding."""

from __future__ import annotations

from typing import Callable

import torch

ROWS = 8  # in a group: enough for products of matrices to run at full speed on a CPU


def by_length(read: Callable, ids: torch.Tensor, pad: int) -> torch.Tensor:
    """
    An encoder's states of inputs of different lengths, computed in groups of about equal length.

    For replying and evaluating on a CPU, where time goes with the number of positions. A GPU is faster with one
    large batch, and training has batches of equal length (``--bucket-by-length``).

    :param read: inputs (B', S') -> states (B', S', d).
    :param ids: (B, S), padded on the right with ``pad``.
    :return: (B, S, d); zero in columns that a group had no need for.
    """
    if torch.is_grad_enabled() or ids.is_cuda or len(ids) <= ROWS:
        return read(ids)
    lengths = ids.ne(pad).sum(dim=1)  # (B,)
    states = None
    for rows in lengths.argsort(stable=True).split(ROWS):
        longest = max(1, int(lengths[rows[-1]]))
        found = read(ids[rows, :longest])  # (B', S', d)
        if states is None:
            states = found.new_zeros(*ids.shape, found.size(-1))
        states[rows, :longest] = found
    return states
