"""Loading the metrics' own models: encoders, and classifiers of text pairs."""

from __future__ import annotations

import hashlib
import os

import torch

from persona_agents.bert import BERT
from persona_agents.errors import PersonaAgentsError
from persona_agents.pretrained import Family

# options that name a metric's model, and the metric
METRIC_OF = {
    "bert_score_model": "bert_score",
    "p_em_model": "p_em",
    "c_score_model": "c_score",
}


def _family(option: str) -> Family:
    metric = METRIC_OF[option]
    return Family(
        name="model for c_score" if metric == "c_score" else "BERT",
        option=option,
        by_language=BERT.by_language,
        model_types=(),  # other encoders are compared with as well
        files="config.json, vocabulary",
        sizes={},
        config_keys={},
        without=f"leave {metric} out of --metrics",
    )


def default_encoder(language: str) -> str:
    """The hub name of the paper's BERT for a language."""
    return BERT.by_language[language]


def load_encoder(name: str, option: str):
    """(tokenizer, model) of a hub name or folder; raises PersonaAgentsError naming the option."""
    return _load(name, option, "AutoModel", use_fast=False)  # as the bert-score library does


def load_classifier(name: str, option: str):
    """(tokenizer, model) of a text classifier; raises PersonaAgentsError naming the option."""
    return _load(name, option, "AutoModelForSequenceClassification")


def _load(name: str, option: str, model_class: str, **tokenizer_options):
    family = _family(option)
    tokenizer = family.load(
        name,
        "vocabulary",
        lambda transformers, **keywords: transformers.AutoTokenizer.from_pretrained(
            name, **tokenizer_options, **keywords
        ),
    )
    model = family.load(
        name,
        "weights",
        lambda transformers, **keywords: getattr(transformers, model_class).from_pretrained(
            name, **keywords
        ),
    )
    longest = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    return tokenizer, model.float().eval()


def describe(name: str, model: torch.nn.Module) -> str:
    """
    The model's name for a signature, with the version of transformers.

    A folder is named by its last part and a digest of the weights, since its path says nothing to
    others.
    """
    from transformers import __version__

    if os.path.isdir(name):
        digest = hashlib.sha256()
        for key, weight in sorted(model.state_dict().items()):
            if weight.is_floating_point() and "pooler" not in key:
                digest.update(weight.detach().float().cpu().numpy().tobytes())
        folder = os.path.basename(os.path.abspath(name))
        name = f"{folder}-sha256-{digest.hexdigest()[:8]}"
    return f"{name}|transformers:{__version__}"


def reject_labels(name: str, labels) -> None:
    """Raise for a classifier whose labels do not say which is entailment."""
    raise PersonaAgentsError(
        f"--c-score-model {name}: its labels are {', '.join(map(str, labels))}; c_score needs one "
        "with 'entail' and one with 'contradict' in its name (or 蕴含 and 矛盾). Correct id2label "
        "in the model's config.json, or give another model."
    )
