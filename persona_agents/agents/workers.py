"""One update of several workers, or of several batches: every token counts the same."""

from __future__ import annotations

import torch
from parlai.utils.distributed import is_distributed, num_workers

from persona_agents.errors import PersonaAgentsError


class TokenWeights:
    """
    Makes the gradient of an update that of its joint batch.

    Each worker computes the mean loss of its own batch, distributed training averages gradients
    over workers, and ``--update-freq`` sums them over batches. With ragged batches that mean of
    means is not the mean over all tokens. So a batch of n tokens weighs n x workers / r, with r the
    tokens of all workers in the first batch of the update; in the end, when the tokens N of the
    whole update are known, its gradient is multiplied by r / N (1 without ``--update-freq``).
    """

    def __init__(self):
        self.reference = self.total = 1
        self.weight = 1.0

    def see(self, batch, pad_id: int, is_first: bool) -> float:
        """
        Count the tokens of a batch that is about to be trained on.

        :param is_first: whether it begins a new update.
        :return: examples of the batch, the mean over workers.
        """
        own = tokens = int(batch.label_vec.ne(pad_id).sum())
        examples, workers = batch.batchsize, num_workers()
        if is_distributed():
            counts = torch.tensor([tokens, examples], device=batch.label_vec.device)
            torch.distributed.all_reduce(counts)
            tokens, examples = counts.tolist()
        if is_first:
            self.reference, self.total = tokens, 0
        self.total += tokens
        self.weight = own * workers / self.reference
        return examples / workers

    def finish(self, parameters) -> None:
        """Scale the gradients of an update whose batches have all been seen."""
        if self.total == self.reference:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(self.reference / self.total)


def refuse_sharding(opt) -> None:
    """Raise for ParlAI's FSDP back ends."""
    backend = opt.get("ddp_backend")
    if backend in ("zero2", "zero3"):
        raise PersonaAgentsError(
            f"--ddp-backend {backend}: this agent trains two groups of parameters at two learning "
            "rates, and sharding flattens all parameters into one. Use --ddp-backend ddp."
        )
