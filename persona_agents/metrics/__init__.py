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

from persona_agents.metrics.base import Reply
from persona_agents.metrics.bootstrap import Difference, compare
from persona_agents.metrics.scorer import GROUPS, NAMES, Scores, Settings, score

__all__ = ["GROUPS", "NAMES", "Difference", "Reply", "Scores", "Settings", "compare", "score"]
