"""A small HCM, trained on ``personachat_single_turn:mini``; comes with the package."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("hcm_mini_en", datapath)
