"""Where ParlAI looks for a model that has no module of its own: there is none of that name."""

from persona_agents import zoo_models
from persona_agents.errors import PersonaAgentsError


def download(datapath):
    """Name the models that there are."""
    known = ", ".join(map(zoo_models.path_of, zoo_models.names()))
    raise PersonaAgentsError(f"There is no such model among those of persona_agents: {known}.")
