"""The web chat: `parlai persona_web` (see :mod:`persona_agents.scripts.persona_web`)."""
