"""Persona dialogue agents, tasks and metrics for ParlAI.

Importing this package tells ParlAI about them (see :mod:`persona_agents.plugin`) and costs
milliseconds: torch and the agents are loaded when an agent's name is first used, as ParlAI does
for ``-m persona_agents:hcm``.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from persona_agents.errors import PersonaAgentsError

__version__ = "0.1.0"

# What may follow ``-m persona_agents:``, with the module and the class behind each name. No module
# of this package may carry one of these names: a sub-module would hide the agent.
AGENTS = {
    "hcm": ("persona_agents.agents.hcm", "HCMAgent"),
    "s2sa": ("persona_agents.agents.s2sa", "S2SAAgent"),
    "pgn": ("persona_agents.agents.pgn", "PGNAgent"),
    "transformer": ("persona_agents.agents.transformer", "TransformerAgent"),
    "transfertransfo": ("persona_agents.agents.transfertransfo", "TransferTransfoAgent"),
    "lic": ("persona_agents.agents.lic", "LICAgent"),
    "bert2bert": ("persona_agents.agents.bert2bert", "BERT2BERTAgent"),
    "dvs2s": ("persona_agents.agents.dvs2s", "DVS2SAgent"),
}
_CLASSES = {class_name: module for module, class_name in AGENTS.values()}

# An installed package holds the sub-packages tasks and zoo. In a source tree these two folders lie
# beside this one (setup.py maps them), so that tree is searched for sub-packages as well.
_HERE = Path(__file__).resolve().parent
SOURCE_TREE = None
if not (_HERE / "tasks").is_dir() and (_HERE.parent / "setup.py").is_file():
    SOURCE_TREE = _HERE.parent
    __path__.append(str(SOURCE_TREE))


class UnknownAgentError(PersonaAgentsError, AttributeError):
    """A name that this package does not have was asked for."""


def register() -> bool:
    """Tell ParlAI about the tasks, models and mends of this package; harmless when repeated.

    Returns:
        False when ParlAI is not installed, so that there was nothing to register with.
    """
    return importlib.import_module("persona_agents.plugin").register()


def __getattr__(name: str):
    """Serve agent classes by name (PEP 562), e.g. ``persona_agents.hcm`` is ``HCMAgent``."""
    if name in AGENTS:
        module_name, class_name = AGENTS[name]
    elif name in _CLASSES:
        module_name, class_name = _CLASSES[name], name
    elif name.startswith("__"):  # Python and its tools probe for special names
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        raise UnknownAgentError(
            f"persona_agents has no agent or attribute {name!r}. Agents: "
            + ", ".join(f"-m persona_agents:{agent}" for agent in AGENTS)
        )
    importlib.import_module("persona_agents.plugin").require_parlai()
    return getattr(importlib.import_module(module_name), class_name)


def __dir__():
    return sorted([*globals(), *AGENTS, *_CLASSES])


register()
