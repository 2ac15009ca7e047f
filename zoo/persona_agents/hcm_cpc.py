"""HCM, trained on ``cpc``."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("hcm_cpc", datapath)
