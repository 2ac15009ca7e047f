"""Mends of what breaks between ParlAI 1.7.2 and today's libraries, and of bugs in its train loop.

ParlAI 1.7.2 is its last release. Each mend is one function that takes the freshly imported ParlAI
module, tests for the feature it is about (never for a version number) and says why it is there and
when it can go. Mends run right after their module is imported, so registering imports nothing.
:mod:`persona_agents.compat_files`, :mod:`persona_agents.compat_presets`,
:mod:`persona_agents.compat_training` and :mod:`persona_agents.compat_workers` hold more of them.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import inspect
import os
import sys
import weakref

from persona_agents import compat_files, compat_presets, compat_training, compat_workers


def mend_reduce_on_plateau(lr_scheduler) -> None:
    """ParlAI's default scheduler passes ``verbose`` to torch, which torch 2.7 dropped.

    Without this no ParlAI agent trains with default options. Can go when ParlAI stops passing it.
    """
    torch_class = lr_scheduler.optim.lr_scheduler.ReduceLROnPlateau
    if "verbose" in inspect.signature(torch_class.__init__).parameters:
        return
    parlai_class = lr_scheduler.ReduceOnPlateauLRScheduler

    def __init__(self, optimizer, patience, decay, warmup_updates, warmup_rate):
        super(parlai_class, self).__init__(warmup_updates, warmup_rate)
        self.scheduler = torch_class(optimizer, "min", factor=decay, patience=patience)

    parlai_class.__init__ = __init__


def mend_inverse_square_root(lr_scheduler) -> None:
    """The rates of ``--lr-scheduler invsqrt`` are numpy's numbers, which torch, since 2.6, refuses
    to read from a checkpoint: no such training can be resumed, no such model loaded.

    Can go when ParlAI computes with Python's numbers.
    """
    scheduler_class = lr_scheduler.InvSqrtLRScheduler
    factor = scheduler_class._invsqrt_lr
    scheduler_class._invsqrt_lr = lambda self, step: float(factor(self, step))


def mend_last_validation(train_model) -> None:
    """ParlAI stops at ``--num-epochs``, ``--max-train-steps``, ``--max-train-time`` or the end of
    a schedule before it looks whether a validation is due, so the last weights are never compared.

    With one validation an epoch, the best of 20 epochs is thus the best of 19. Here the last
    weights are validated when a validation is due, or when there is an earlier best to compare
    them with. Can go when ParlAI's loop validates before it stops.
    """
    loop_class = train_model.TrainLoop
    train_steps, get_time = loop_class.train_steps, loop_class._get_time

    def validate_last_weights(loop):
        due = (
            loop.validate_time.time() > loop.val_every_n_secs
            or loop._total_epochs - loop.last_valid_epoch >= loop.val_every_n_epochs
            or loop._train_steps - loop._last_valid_steps >= loop.val_every_n_steps
        )
        due = train_model.sync_object(due)  # workers' clocks differ
        just_validated = loop._last_valid_steps == loop._train_steps
        if just_validated or not (due or loop.best_valid is not None):
            return
        if loop._last_log_steps:
            loop.log()
        loop.world.reset_metrics()
        loop.last_valid_epoch = loop._total_epochs
        loop._last_valid_steps = loop._train_steps
        with contextlib.suppress(train_model.StopTrainException):
            loop.validate()

    def _get_time(self, world):
        times = get_time(self, world)  # runs after each step, and counts the epochs
        if self._total_epochs < self.max_num_epochs and (
            times[0] > self.max_train_time or self._train_steps >= self.max_train_steps
        ):
            self._total_exs = round(self._total_epochs * world.num_examples())
            validate_last_weights(self)
        return times

    def mended_train_steps(self):
        # A learning rate schedule that is at its end raises in the middle of a step. The weak
        # reference lets ParlAI free the world, and with it the model, before it loads the best one.
        loop, parley = weakref.ref(self), type(self.world).parley

        def parley_until_schedule_ends():
            try:
                parley(loop().world)
            except train_model.StopTrainException:
                validate_last_weights(loop())
                raise

        self.world.parley = parley_until_schedule_ends
        for report in train_steps(self):
            yield report
            if self._total_epochs >= self.max_num_epochs:  # the loop is about to stop
                validate_last_weights(self)

    loop_class._get_time = _get_time
    loop_class.train_steps = mended_train_steps


def mend_plain_writes(module) -> None:
    """ParlAI writes weights atomically, but ``.trainstats``, ``.opt`` and ``.dict`` in place.

    A run that is killed meanwhile leaves half a file, which stops the next start with a
    JSONDecodeError. Can go when ParlAI writes them under another name first.
    """
    module.PathManager = _AtomicPathManager(module.PathManager)


class _AtomicPathManager:
    """ParlAI's PathManager, whose text files appear under their name only once complete."""

    def __init__(self, path_manager):
        self._path_manager = path_manager

    def __getattr__(self, name):
        return getattr(self._path_manager, name)

    def open(self, path, mode="r", *args, **kwargs):
        if mode != "w" or "://" in path:
            return self._path_manager.open(path, mode, *args, **kwargs)
        return self._open_atomically(path, mode, *args, **kwargs)

    @contextlib.contextmanager
    def _open_atomically(self, path, *args, **kwargs):
        partial = f"{path}.tmp"
        try:
            with self._path_manager.open(partial, *args, **kwargs) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(partial)
            raise


# ParlAI's module -> the mends to run once it is imported
MENDS = {
    "parlai.core.dict": [mend_plain_writes, compat_files.mend_dictionary_file],
    "parlai.core.opt": [
        mend_plain_writes,
        compat_files.mend_options_file,
        compat_presets.mend_presets,
    ],
    "parlai.core.torch_agent": [compat_files.mend_checkpoint_files, compat_training.mend_rates],
    "parlai.nn.lr_scheduler": [mend_reduce_on_plateau, mend_inverse_square_root],
    "parlai.scripts.multiprocessing_train": [compat_workers.mend_workers],
    "parlai.scripts.train_model": [
        mend_plain_writes,
        mend_last_validation,
        compat_training.mend_validation_metric,
        compat_training.mend_resume,  # a finished run has no last weights to validate
        compat_training.mend_seed,  # before random states are restored
    ],
    "parlai.utils.pickle": [compat_files.mend_unpickling],
}


class _MendAfterImport(importlib.abc.MetaPathFinder):
    """Runs the mends of a module at the end of its import."""

    def find_spec(self, name, path=None, target=None):
        if name not in MENDS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module = _then_mend(spec.loader.exec_module, name)
                return spec
        return None


def _then_mend(exec_module, name):
    def exec_and_mend(module):
        exec_module(module)
        for mend in MENDS[name]:
            mend(module)

    return exec_and_mend


def install() -> None:
    """Run every mend: now where ParlAI's module is loaded, else once it is; idempotent."""
    if any(isinstance(finder, _MendAfterImport) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _MendAfterImport())
    for name, mends in MENDS.items():
        module = sys.modules.get(name)
        if module is not None:
            for mend in mends:
                mend(module)
