"""The model card of a packed model, in Markdown: what it is, how it was made, what it scored."""

from __future__ import annotations

import platform
import shlex

import parlai
import torch
from parlai.scripts import train_model

import persona_agents

# Options that change nothing about the model, or that the training sets itself.
_NOT_SHOWN = [
    "model",
    "task",
    "datatype",
    "dict_class",
    "loglevel",
    "log_every_n_secs",
    "log_every_n_steps",
    "tensorboard_log",
    "validation_metric_mode",
    "validation_cutoff",
]
# Private options that a reader has to give in his own way.
_FOLDERS = ("bert_model", "gpt_model", "cpc_path", "personachat_path")
# What eval_model reports of speed and batches rather than of the model.
_SPEED = ("exps", "tps", "ltps", "ctps", "tpb", "ltpb", "ctpb", "gpu_mem", "total_train_updates")


def write(
    name: str,
    opt: dict,
    left_out: list[str],
    parameters: int,
    report: dict | None = None,
    licence: str | None = None,
) -> str:
    """
    The text of the card.

    :param opt: options without private ones, see :func:`persona_agents.packing.public_options`
    :param left_out: names of the private ones
    :param report: what ``parlai eval_model --report-filename`` wrote; its metrics are shown
    """
    sizes = opt.get("bert_config") or opt.get("gpt_config") or {}
    what = (
        f"A model of the agent `{opt['model']}` with {parameters:,} parameters, packed by "
        f"persona_agents {persona_agents.__version__} for ParlAI {parlai.__version__} (torch "
        f"{torch.__version__}, Python {platform.python_version()})."
    )
    parts = [
        f"# {name}",
        what,
        _table(("size", "value"), sorted(sizes.items())) if sizes else "",
        "## Use",
        f"    unzip {name}.zip -d {name}\n    parlai interactive -mf {name}/model -t {opt.get('task')}",
        "## Results",
        _results(report),
        "## Training",
        f"Data: `-t {opt.get('task')}`.\n\n    {_command(opt, left_out)}",
        "## Licence",
        licence or "Not stated by whoever packed this model.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _results(report: dict | None) -> str:
    if not report:
        return "No report was given when this model was packed."
    settings = report.get("opt") or {}
    metrics = {name: v for name, v in report["report"].items() if name not in _SPEED}
    numbers = [(k, f"{v:.6g}") for k, v in sorted(metrics.items()) if isinstance(v, (int, float))]
    texts = [(k, v) for k, v in sorted(metrics.items()) if isinstance(v, str)]
    how = ", ".join(
        f"{option} `{settings[name]}`"
        for option, name in (("task", "task"), ("split", "datatype"), ("search", "inference"))
        if settings.get(name)
    )
    parts = [f"Evaluated on {how}." if how else "", _table(("metric", "value"), numbers)]
    if texts:
        parts += ["How they were measured:", _table(("metric", "signature"), texts)]
    return "\n\n".join(part for part in parts if part)


def _table(head: tuple[str, str], rows) -> str:
    rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---", "---"), *rows))


def _command(opt: dict, left_out: list[str]) -> str:
    """The training's command: agent, task and every option that is not the default."""
    command = ["parlai", "train_model", "-m", opt["model"], "-t", str(opt.get("task"))]
    parser = train_model.setup_args()
    defaults = parser.parse_args(command[2:])
    names = {action.dest: action.option_strings for action in parser._actions}
    for name in sorted({*opt, *left_out} & set(names) - set(_NOT_SHOWN)):
        value = "FOLDER" if name in left_out else opt[name]
        if name in left_out and name not in _FOLDERS or _text(value) == _text(defaults.get(name)):
            continue
        command += [next(n for n in names[name] if n.startswith("--")), _text(value)]
    return shlex.join(command)


def _text(value) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
