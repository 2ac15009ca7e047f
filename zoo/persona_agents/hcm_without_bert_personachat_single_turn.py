"""HCM with a randomly initialised encoder, trained on ``personachat_single_turn``."""

from persona_agents import zoo_models


def download(datapath):
    """Make sure that the model lies below ``datapath``."""
    zoo_models.provide("hcm_without_bert_personachat_single_turn", datapath)
