"""HCM without the hierarchical copy mechanism, trained on ``personachat_single_turn``."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("hcm_without_copy_personachat_single_turn", datapath)
