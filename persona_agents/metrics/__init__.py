"""
Metrics for persona dialogue, inside ParlAI's evaluations and without them.

    from persona_agents.metrics import Reply, Settings, compare, score

    ours = [Reply("i have two dogs", references=["yes, two dogs"], persona=["i own two dogs ."])]
    settings = Settings(language="en", bert_score_model="/models/bert", bert_score_layer=9, …)
    scores = score(ours, "persona,length", settings)
    scores.values["corpus_bleu_4"], scores.signatures["corpus_bleu"], scores.counts["p_cover"]
    compare(scores, score(theirs, "persona,length", settings))["p_em"].p_value

Both lists of replies are to the same samples in the same order. `Scores` says more.
"""

import importlib

# Loaded when first asked for: the `parlai` command imports this package at every start.
_HOMES = {
    "Reply": "base",
    "Difference": "bootstrap",
    "compare": "bootstrap",
    "GROUPS": "scorer",
    "NAMES": "scorer",
    "Scores": "scorer",
    "Settings": "scorer",
    "score": "scorer",
}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
