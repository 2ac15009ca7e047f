"""Mends of what breaks between ParlAI 1.7.2 and today's libraries, and of bugs in its train loop.

ParlAI 1.7.2 is its last release. Each mend is one function that takes the freshly imported ParlAI
module, tests for the feature it is about (never for a version number) and says why it is there and
when it can go. Mends run right after their module is imported, so registering imports nothing.
"""

from __future__ import annotations

import importlib.abc
import inspect
import sys


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


# ParlAI's module -> the mends to run once it is imported
MENDS = {
    "parlai.nn.lr_scheduler": [mend_reduce_on_plateau],
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
