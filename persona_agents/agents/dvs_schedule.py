"""The optimiser of DVS2S, its running baseline, its phases, learning rate and end of training."""

from __future__ import annotations

import torch
from parlai.utils import logging
from parlai.utils.distributed import is_distributed, num_workers

from persona_agents.agents.schedule import LinearSchedule, count_examples

GRADIENT_SCALE = 20.0
ADADELTA_EPSILON = 4e-8
DROP = 0.5  # of the learning rate, at the first rise of the validation perplexity
RISES_TO_STOP = 2  # consecutive ones
EPSILON = 1e-9  # epochs are sums of fractions


class Adadelta(torch.optim.Adadelta):
    """
    Adadelta for gradients of a loss per word, which are small.

    Its usual epsilon (1e-6) lets every parameter take first steps of about 0.005, which would wipe
    out what the weights start with, and damps gradients below 1e-3, which those of single words'
    rows are. So epsilon is smaller, and gradients are multiplied after they were clipped: steps
    begin at 0.001, and gradients from 1e-5 are not damped.
    """

    def __init__(self, params, **settings):
        super().__init__(params, eps=ADADELTA_EPSILON, **settings)

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(GRADIENT_SCALE)
        return super().step(closure)


class Baseline:
    """
    b_k: b_{k+1} = 0.9 b_k + 0.1 x the mean over the batch and its samples; b_0 is the first mean.

    ``value`` is None before the first batch.
    """

    def __init__(self, value: float | None = None):
        self.value = value

    def __call__(self, values: torch.Tensor) -> float:
        """
        b_k for batch k; afterwards the baseline is that of the next batch.

        :param values: (B, n) R/m of the batch, or R; over all workers their mean counts.
        """
        total = torch.stack((values.double().sum(), values.new_tensor(values.numel()).double()))
        if is_distributed():
            torch.distributed.all_reduce(total)
        mean = (total[0] / total[1]).item()
        current = mean if self.value is None else self.value
        self.value = 0.9 * current + 0.1 * mean
        return current


class DVSSchedule(LinearSchedule):
    """
    Which phase a training is in, its learning rate and its end.

    Phase 2 begins after ``--dvs-pretrain-epochs``. From then on (in a training with one phase: from
    the start) the validation perplexity of each epoch is compared with that of the epoch before.
    At the first rise the rate is halved, once; two consecutive rises end the training, which
    happens at the next training step.
    """

    def __init__(self, optimizer, opt):
        super().__init__(optimizer, opt)
        self.pretrain_epochs = opt["dvs_pretrain_epochs"] if opt["dvs"] == "joint" else 0
        self.has_two_phases = opt["dvs"] == "joint"
        self.per_epoch = None  # training examples; None: unknown
        self.validations = 0
        self.previous = None  # validation perplexity
        self.rises = 0  # consecutive ones
        self.dropped = self.ended = False
        self.phase = 2 if self.has_two_phases and self.pretrain_epochs <= 0 else 1

    def begin(self):
        """Find out the length of an epoch, at the first batch."""
        self.begun = True
        if self.has_two_phases and self.pretrain_epochs > 0:
            self.per_epoch = count_examples(self.opt)
            if self.per_epoch is None:
                logging.warning(
                    "The task does not tell its number of examples: --dvs-pretrain-epochs counts "
                    "validations instead."
                )
        self._set_phase()

    def see(self, examples):
        """A batch is about to be trained on: say in which phase, then count its examples."""
        if not self.begun:
            self.begin()
        self._set_phase()
        self.examples += examples

    def _set_phase(self) -> None:
        if not self.has_two_phases:
            return
        done = self.validations
        if self.per_epoch:
            done = self.examples * num_workers() / self.per_epoch
        self.phase = 2 if done >= self.pretrain_epochs - EPSILON else 1

    @property
    def _rule_holds(self) -> bool:
        return self.phase == 2 or not self.has_two_phases

    def valid_step(self, metrics_dict):
        """Take note of a validation's perplexity, the ``ppl`` of its report."""
        perplexity = metrics_dict.get("ppl")
        if perplexity is None:
            return
        perplexity = float(getattr(perplexity, "value", lambda: perplexity)())
        self.validations += 1
        rose = self.previous is not None and not perplexity <= self.previous  # NaN is a rise
        self.previous = perplexity
        if not self._rule_holds:
            return
        self.rises = self.rises + 1 if rose else 0
        if rose and not self.dropped:
            self.dropped = True
            self._set_rates()
            logging.info(f"The validation perplexity rose: learning rate {self.get_last_lr():g}.")
        if self.rises >= RISES_TO_STOP:
            self.ended = True

    def step(self, num_steps):
        self._number_training_updates = num_steps
        self._set_rates()

    def _set_rates(self) -> None:
        for group, peak in zip(self.optimizer.param_groups, self.peaks):
            group["lr"] = peak * (DROP if self.dropped else 1.0)

    _SAVED = ("validations", "previous", "rises", "dropped", "ended", "phase")

    def get_state_dict(self):
        return {**super().get_state_dict(), **{name: getattr(self, name) for name in self._SAVED}}

    def load_state(self, states):
        super().load_state(states)
        for name, value in (states.get("lr_scheduler") or {}).items():
            if name in self._SAVED:
                setattr(self, name, value)
        self._set_rates()
