"""Where Mephisto 1.1.1 and ParlAI's crowdsourcing code disagree with newer Pythons and each other.

Call :func:`import_mephisto` before anything of Mephisto is imported. Each mend tests for the fault
itself, never for a version, and does nothing where the fault is gone.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import importlib.util
import logging
import sys

from persona_agents.errors import PersonaAgentsError

HOW_TO_INSTALL = (
    "This step runs on Mephisto, which is not installed. Its versions of other libraries are old, "
    "so give it a virtual environment of its own (Python 3.9 to 3.11): "
    "pip install torch '.[crowdsourcing]' in the folder of persona_agents' setup.py"
)


class MissingMephistoError(PersonaAgentsError, ImportError):
    """Mephisto cannot be imported."""


def import_mephisto() -> None:
    """
    Import Mephisto and mend it; harmless when repeated.

    :raises MissingMephistoError: if it is not installed
    """
    if "mephisto" not in sys.modules and importlib.util.find_spec("mephisto") is None:
        raise MissingMephistoError(HOW_TO_INSTALL)
    with _unhashable_defaults():
        importlib.import_module("mephisto")
        importlib.import_module("parlai.crowdsourcing.utils.mturk")
    _add_missing_exception()
    _close_metrics_port()
    _quiet()


@contextlib.contextmanager
def _unhashable_defaults():
    """Let a dataclass have an instance of another dataclass as a field's default.

    Mephisto (three fields in ``operations/hydra_config.py``) and ParlAI (one in
    ``crowdsourcing/utils/mturk.py``) do so; since Python 3.11 that is "mutable default ... is not
    allowed". Can go when both write ``default_factory``.
    """
    original = dataclasses.dataclass

    def dataclass(cls=None, /, **options):
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        for name in vars(cls).get("__annotations__", {}):
            default = vars(cls).get(name)
            if dataclasses.is_dataclass(default) and type(default).__hash__ is None:
                factory = lambda default=default: copy.deepcopy(default)
                setattr(cls, name, dataclasses.field(default_factory=factory))
        return original(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


def _add_missing_exception() -> None:
    """ParlAI's test helpers import an exception that PyPI's Mephisto lacks."""
    metrics = importlib.import_module("mephisto.utils.metrics")
    if not hasattr(metrics, "InaccessiblePrometheusServer"):
        metrics.InaccessiblePrometheusServer = type(
            "InaccessiblePrometheusServer", (Exception,), {"__module__": metrics.__name__}
        )


def _close_metrics_port() -> None:
    """Every Operator opens port 3031 on all interfaces for Prometheus and never closes it."""
    operator = importlib.import_module("mephisto.operations.operator")
    if hasattr(operator, "start_metrics_server"):
        operator.start_metrics_server = lambda *arguments: None
    if hasattr(operator, "launch_prometheus_server"):
        operator.launch_prometheus_server = lambda *arguments: False


def _quiet() -> None:
    """Leave out lines by the hundred that tell the user nothing.

    Mock units print one address each, none of which is the one to open; two reviewers that ask in
    one moment make a line about a reservation.
    """
    for module in (
        "mephisto.abstractions.providers.mock.mock_unit",
        "mephisto.data_model.task_run",
    ):
        importlib.import_module(module).print = lambda *arguments, **options: None
    logging.getLogger("sh").setLevel(logging.WARNING)
