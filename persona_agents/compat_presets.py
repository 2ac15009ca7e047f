"""A mend of how ParlAI 1.7.2 looks for presets (``-o NAME``).

Installed by :mod:`persona_agents.compat`, which says how mends work.
"""

from __future__ import annotations

from pathlib import Path

import persona_agents
from persona_agents.errors import PersonaAgentsError

# beside this package, in the source tree as when installed
FOLDER = Path(persona_agents.__file__).resolve().parent.parent / "parlai_internal" / "opt_presets"
PREFIX = "persona_agents/"


def names() -> list[str]:
    """The presets of this package, as ``-o`` takes them."""
    return sorted(f"{PREFIX}{path.stem}" for path in (FOLDER / PREFIX).glob("*.opt"))


def mend_presets(opt_module) -> None:
    """ParlAI looks for presets in the first ``parlai_internal`` on the path only.

    A user's own one hides ours, though scripts and agents of both are found. Here ours are found
    wherever they lie, and a name that there is not is told together with those that there are. Can
    go when ParlAI looks through the whole search path of that package.
    """
    load_init = opt_module.Opt.load_init.__func__

    def load_init_of_ours(cls, optfile):
        try:
            return load_init(cls, optfile)
        except FileNotFoundError:
            if not optfile.startswith(PREFIX) or "," in optfile:
                raise
            if optfile not in names():
                raise PersonaAgentsError(
                    f"-o {optfile}: there is no such preset. There are {', '.join(names())}."
                ) from None
            return cls.load(str(FOLDER / f"{optfile}.opt"))

    opt_module.Opt.load_init = classmethod(load_init_of_ours)
