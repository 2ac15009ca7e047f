"""The ``parlai`` command imports every module of this folder; this one registers our plug-in."""

import persona_agents

persona_agents.register()
