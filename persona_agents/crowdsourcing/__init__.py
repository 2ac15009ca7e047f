"""Human evaluation of persona dialogue: reviewers rate replies, on Mephisto as in ParlAI's own tasks.

Only :mod:`persona_rating` needs Mephisto (extra ``crowdsourcing``); drawing
the sample and the statistics do not.
"""
