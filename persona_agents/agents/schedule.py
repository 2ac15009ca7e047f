"""The paper's learning-rate schedule: linear warm-up, then linear decay to zero."""

from __future__ import annotations

import copy

from parlai.core.teachers import create_task_agent_from_taskname
from parlai.nn.lr_scheduler import ParlAILRScheduler
from parlai.utils import logging
from parlai.utils.distributed import num_workers


def linear_factor(progress: float, warmup: float) -> float:
    """
    The rate at a point of training, as a share of its peak.

    :param progress: share of training that is done, 0 to 1.
    :param warmup: share of training in which the rate rises (the paper's 1/10).
    """
    if progress < warmup:
        return progress / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup)) if warmup < 1.0 else 1.0


def count_examples(opt) -> int | None:
    """Training examples of the task in one epoch over all workers; None when it cannot tell."""
    teachers = create_task_agent_from_taskname(copy.deepcopy(opt))
    counts = [teacher.num_examples() for teacher in teachers]
    for teacher in teachers:
        teacher.shutdown()
    return sum(counts) if all(counts) else None


class LinearSchedule(ParlAILRScheduler):
    """
    Sets the rate of every parameter group after each update, each from its own peak.

    Unlike ParlAI's own ``linear`` it needs no ``--max-train-steps`` and never ends the training.
    Progress is the share of ``--max-train-steps`` in updates or the share of epochs x examples of
    the task in examples seen, whichever limit is nearer: this holds for dynamic batching, gradient
    accumulation and several workers alike. Without a limit the rate stays at its peak.
    """

    def __init__(self, optimizer, opt):
        super().__init__(warmup_updates=0, warmup_rate=0)
        self.scheduler = self  # ParlAI asks whether there is one
        self.optimizer = optimizer
        self.peaks = [group["lr"] for group in optimizer.param_groups]
        self.warmup = opt["warmup_ratio"]
        self.examples = 0  # seen by this worker
        self.total_updates = self.total_examples = None
        self.opt, self.begun = opt, False

    def begin(self) -> None:
        """
        Find out how long the training is, and set the rates of its next update.

        Done at the first batch: a model that is loaded only to answer needs no training data.
        """
        self.begun = True
        opt = self.opt
        if (opt.get("max_train_steps") or -1) > 0:
            self.total_updates = opt["max_train_steps"]
        if (opt.get("num_epochs") or -1) > 0:
            per_epoch = count_examples(opt)
            self.total_examples = opt["num_epochs"] * per_epoch if per_epoch else None
        if not (self.total_updates or self.total_examples):
            logging.warning(
                "The length of training is unknown (neither --num-epochs nor --max-train-steps), so "
                "the learning rate stays at its peak, without warm-up or decay."
            )
        self.step(self._number_training_updates)

    def progress(self) -> float | None:
        """Share of training that is done, None if its length is unknown."""
        shares = []
        if self.total_updates:
            shares.append(self._number_training_updates / self.total_updates)
        if self.total_examples:
            shares.append(self.examples * num_workers() / self.total_examples)
        return max(shares, default=None)

    def see(self, examples: int) -> None:
        """Count the examples of a batch that is about to be trained on."""
        if not self.begun:
            self.begin()
        self.examples += examples

    def step(self, num_steps):
        """Set all rates after update number ``num_steps``."""
        self._number_training_updates = num_steps
        progress = self.progress()
        factor = 1.0 if progress is None else linear_factor(progress, self.warmup)
        for group, peak in zip(self.optimizer.param_groups, self.peaks):
            group["lr"] = peak * factor

    def train_step(self, scheduler_steps):
        """Part of ParlAI's interface; all is done in :meth:`step`."""

    def valid_step(self, metrics_dict):
        """Validation changes nothing."""

    def get_last_lr(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def get_state_dict(self):
        return {"examples": self.examples}

    def load_state(self, states):
        """Go on where a saved training stopped; :meth:`begin` sets the rates."""
        self.examples = (states.get("lr_scheduler") or {}).get("examples", 0)
        self._number_training_updates = states.get("number_training_updates", 0)
