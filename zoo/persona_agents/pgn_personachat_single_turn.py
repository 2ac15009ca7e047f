"""PGN, trained on ``personachat_single_turn``."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("pgn_personachat_single_turn", datapath)
