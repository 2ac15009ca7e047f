"""Everything that tells ParlAI 1.7.2 about this package.

ParlAI knows no entry points. Its loaders look for tasks in the package ``parlai.tasks`` and for
models in ``parlai.zoo``, so our folders are appended to the search paths of those two packages.
``-t cpc``, the task's own worlds and ``-mf zoo:persona_agents/...`` are then found by ParlAI's own
loaders. Agents need no registration: ``-m persona_agents:hcm`` is a Python path to ParlAI.

The ``parlai`` command gets here through ``parlai_internal/scripts/persona_agents_hook.py``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from pathlib import Path

import persona_agents
from persona_agents import compat
from persona_agents.errors import PersonaAgentsError

HOW_TO_INSTALL_PARLAI = (
    "persona_agents needs ParlAI, which is not installed. On Python 3.9 to 3.11: "
    "pip install parlai==1.7.2. On newer Pythons, or for current versions of its dependencies: "
    "pip install --no-deps parlai==1.7.2"
)


MISSING_MODEL = "WARNING: Model file does not exist"  # ParlAI's own words


class MissingParlAIError(PersonaAgentsError, ImportError):
    """ParlAI cannot be imported."""


def _parlai_is_installed() -> bool:
    return "parlai" in sys.modules or importlib.util.find_spec("parlai") is not None


def require_parlai() -> None:
    """Raise one message that says what to install when ParlAI is missing."""
    if not _parlai_is_installed():
        raise MissingParlAIError(HOW_TO_INSTALL_PARLAI)


def register() -> bool:
    """Make ParlAI find our tasks and models, and mend what breaks; harmless when repeated.

    Returns:
        False when ParlAI is not installed.
    """
    if not _parlai_is_installed():
        return False
    import parlai.tasks
    import parlai.zoo

    root = persona_agents.SOURCE_TREE or Path(persona_agents.__file__).resolve().parent
    for package, folder in ((parlai.tasks, root / "tasks"), (parlai.zoo, root / "zoo")):
        if str(folder) not in package.__path__:
            package.__path__.append(str(folder))
    compat.install()
    _choose_datapath(Path(parlai.tasks.__file__).resolve().parents[2])
    _silence_warnings()
    if not isinstance(sys.excepthook, _MessageOnly):
        sys.excepthook = _MessageOnly(sys.excepthook)
    return True


def _choose_datapath(parlai_home: Path) -> None:
    """Where users may not write beside ParlAI, have data in ``~/.parlai/data``.

    ParlAI keeps data and models in ``data`` beside itself, in site-packages as a rule. A folder that
    is there, ``--datapath`` and the environment variable are left as they are.
    """
    if (parlai_home / "data").exists() or os.access(parlai_home, os.W_OK):
        return
    os.environ.setdefault("PARLAI_DATAPATH", str(Path.home() / ".parlai" / "data"))


def _silence_warnings() -> None:
    """Keep out of every report what ParlAI, jieba and transformers 4 say of their own old code."""
    warnings.filterwarnings("ignore", message="The previous implementation of stack is deprecated")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    warnings.filterwarnings("ignore", message=".*_register_pytree_node. is deprecated")


class _MessageOnly:
    """An exception hook: a user's mistake ends the ``parlai`` command with its message alone.

    Python itself then exits with status 1. Other errors, and ours in a program that is not the
    ``parlai`` command, are shown with their traceback as before.
    """

    def __init__(self, previous):
        self.previous = previous

    def __call__(self, error_type, error, traceback):
        if _is_mistake(error) and _in_parlai_command(traceback):
            print(error, file=sys.stderr)
        else:
            self.previous(error_type, error, traceback)


def _is_mistake(error) -> bool:
    """Whether it is the user's: an error of ours, or ParlAI's for a model that is not there."""
    return isinstance(error, PersonaAgentsError) or (
        isinstance(error, RuntimeError) and str(error).startswith(MISSING_MODEL)
    )


def _in_parlai_command(traceback) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "superscript_main":
            return True
        traceback = traceback.tb_next
    return False
