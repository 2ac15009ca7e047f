"""The published models, in the fields of ParlAI's own ``parlai/zoo/model_list.py``."""

model_list = []
