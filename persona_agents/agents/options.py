"""What must be true of the options, asked before anything is built or written."""

from __future__ import annotations

import math
import os

from parlai.core.build_data import modelzoo_path
from parlai.core.loader import load_agent_module

from persona_agents.agents.workers import refuse_sharding
from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics.scorer import OUTPUTS

# ParlAI's options that would take the persona apart or change BERT's vocabulary.
UNUSABLE = (
    "person_tokens",
    "split_lines",
    "history_reversed",
    "history_add_global_end_token",
    "special_tok_lst",
)
WITHOUT_REPLIES = {
    *("ppl", "char_ppl", "loss", "token_acc", "token_em"),
    *("ppl_full", "t_recall", "t_size", "predictor_loss", "reward"),  # dvs2s
}


def check(opt, optimizers=("adamw",)) -> None:
    """
    Raise PersonaAgentsError for the first option that this package's agents cannot honour.

    :param optimizers: values of ``--optimizer`` that the agent can train with.
    """
    refuse_sharding(opt)
    for name in UNUSABLE:
        if opt.get(name):
            _refuse(name, "does not work with this agent: leave it out.")
    if opt.get("optimizer", optimizers[0]) not in optimizers:
        _refuse(
            "optimizer",
            f"{opt['optimizer']}: this agent trains its groups of parameters with "
            f"{' or '.join(optimizers)}; leave the option out.",
        )
    for name in ("warmup_ratio", "dropout"):
        if not 0 <= opt.get(name, 0) <= 1:
            _refuse(name, f"{opt[name]}: must be between 0 and 1.")
    if opt.get("update_freq", 1) < 1:
        _refuse("update_freq", f"{opt['update_freq']}: must be at least 1.")
    for name in ("learningrate", "pretrained_lr"):
        if not 0 <= (opt.get(name) or 0) < math.inf:
            _refuse(name, f"{opt[name]}: must be a number that is not negative.")
    _check_validation_metric(opt)
    _check_files(opt)


def _check_validation_metric(opt) -> None:
    metric = opt.get("validation_metric", "ppl")
    name = metric.rsplit("/", 1)[-1]  # of several tasks: TASK/ppl
    outputs = OUTPUTS.get(name, (name,))
    if name not in outputs:
        _refuse("validation_metric", f"{metric}: name one of its values, {', '.join(outputs)}.")
    if name not in WITHOUT_REPLIES and opt.get("validation_generate") is False:
        _refuse(
            "validation_metric",
            f"{metric} may need replies, which validation does not generate by default: add "
            "--validation-generate true, or use --validation-metric ppl.",
        )


def check_sizes(opt, *names) -> None:
    """Raise PersonaAgentsError for one of these size options that is less than 1."""
    for name in names:
        if opt.get(name, 1) < 1:
            _refuse(name, f"{opt[name]}: must be at least 1.")


def check_for_agent(opt) -> None:
    """The same by the agent that the options name: a dictionary is built before its agent is."""
    agent = load_agent_module(opt["model"]) if opt.get("model") else None
    getattr(agent, "check_options", check)(opt)


def _check_files(opt) -> None:
    model_file, init_model = opt.get("model_file"), opt.get("init_model")
    if model_file and os.path.isdir(model_file):
        _refuse("model_file", f"{model_file} is a folder: name a file in it, {model_file}/model.")
    # A model that exists is loaded from its own file; only a new one starts from --init-model.
    starts_anew = not (model_file and os.path.exists(model_file))
    if not (init_model and starts_anew):
        return
    if not os.path.exists(modelzoo_path(opt.get("datapath"), init_model)):
        _refuse("init_model", f"{init_model}: there is no such file.")


def _refuse(name: str, why: str) -> None:
    raise PersonaAgentsError(f"--{name.replace('_', '-')} {why}")
