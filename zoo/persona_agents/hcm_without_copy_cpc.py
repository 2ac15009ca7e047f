"""HCM without the hierarchical copy mechanism, trained on ``cpc``."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("hcm_without_copy_cpc", datapath)
