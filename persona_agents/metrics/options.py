"""The metrics' options, for tasks and for `parlai persona_score`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from persona_agents.errors import PersonaAgentsError

if TYPE_CHECKING:  # else loaded when metrics are computed, not at every start of `parlai`
    from persona_agents.metrics.scorer import Settings


def add_cmdline_args(parser) -> None:
    """Options of what `--metrics corpus_bleu,char_f1,bert_score,…` compute."""
    group = parser.add_argument_group("Persona metrics")
    group.add_argument(
        "--bert-score-model",
        default=None,
        help="encoder of bert_score, a hub name or folder; default: bert-base-chinese or "
        "bert-base-uncased by the task's language",
    )
    group.add_argument(
        "--bert-score-layer",
        type=int,
        default=None,
        help="layer that bert_score compares; default: what bert-score knows as the model's best, "
        "8 and 9 for the two defaults; a folder needs it",
    )
    group.add_argument(
        "--bert-score-baseline",
        default=None,
        metavar="FILE",
        help="file to rescale bert_score with, columns LAYER,P,R,F; default: the one that "
        "bert-score has for the model; a folder needs it",
    )
    group.add_argument(
        "--bert-score-rescale",
        type="bool",
        default=True,
        help="rescale bert_score by the baseline; false: raw scores",
    )
    group.add_argument(
        "--p-em-model",
        default=None,
        help="encoder of p_em, a hub name or folder; default: by the task's language; one that "
        "--bert-score-model names too is loaded once",
    )
    group.add_argument(
        "--c-score-model",
        default=None,
        help="text-classification model of c_score, whose labels name entailment and contradiction",
    )
    group.add_argument(
        "--f1-average",
        default="reply",
        choices=["reply", "micro"],
        help="char_f1 and word_f1: mean over replies, or of all matches together",
    )


def settings_of(opt, language: str) -> Settings:
    """
    The settings that options ask for; what options lack has its default.

    :raises PersonaAgentsError: for a layer that cannot be
    """
    import torch

    from persona_agents.metrics.scorer import Settings

    layer = opt.get("bert_score_layer")
    if layer is not None and layer < 0:
        raise PersonaAgentsError(f"--bert-score-layer {layer}: must be at least 0.")
    cuda = torch.cuda.is_available() and not opt.get("no_cuda")
    rescale = opt.get("bert_score_rescale")
    return Settings(
        language=language,
        bert_score_model=opt.get("bert_score_model"),
        bert_score_layer=layer,
        bert_score_baseline=opt.get("bert_score_baseline"),
        bert_score_rescale=True if rescale is None else rescale,
        p_em_model=opt.get("p_em_model"),
        c_score_model=opt.get("c_score_model"),
        f1_average=opt.get("f1_average") or "reply",
        device="cuda" if cuda else "cpu",
    )
