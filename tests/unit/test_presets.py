"""Presets: `-o persona_agents/SYSTEM_TASK` is what the paper says, and nothing of this machine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import subprocess_environment
from parlai.core.opt import Opt
from parlai.scripts.train_model import setup_args
from persona_agents.zoo.model_list import SYSTEMS, TASKS

import persona_agents
from persona_agents import compat_presets, packing
from persona_agents.errors import PersonaAgentsError

NAMES = [f"{system}_{task}" for system in SYSTEMS for task in TASKS]
BERT = {"cpc": "bert-base-chinese", "personachat_single_turn": "bert-base-uncased"}
GPT = {"cpc": "uer/gpt2-chinese-cluecorpussmall", "personachat_single_turn": "openai-gpt"}

# What the paper says of every system but two.
RECIPE = {
    "optimizer": "adamw",
    "learningrate": 5e-5,
    "lr_scheduler": "linear",
    "warmup_ratio": 0.1,
    "batchsize": 16,
}
PRETRAINED = {**RECIPE, "pretrained_lr": 7e-6}
LOOP = {
    "num_epochs": 20,
    "validation_every_n_epochs": 1,
    "validation_metric": "ppl",
    "validation_patience": 0,
    "dropout": 0.1,
    "history_size": 1,
    "inference": "greedy",
}
EXPECTED = {
    "hcm": {**PRETRAINED, "bert_init": "all", "copy": "hierarchical", "n_decoder_layers": None},
    "hcm_without_bert": {**PRETRAINED, "bert_init": "embeddings", "copy": "hierarchical"},
    "hcm_without_copy": {**PRETRAINED, "bert_init": "all", "copy": "none"},
    "s2sa": {**RECIPE, "numlayers": 2, "hiddensize": 512, "embeddingsize": 512},
    "pgn": {**RECIPE, "numlayers": 2, "hiddensize": 512, "embeddingsize": 512, "coverage": False},
    "transformer": {
        "optimizer": "adamw",
        "weight_decay": 0.0,  # Adam
        "betas": (0.9, 0.98),
        "adam_eps": 1e-9,
        "lr_scheduler": "invsqrt",
        "warmup_updates": 4000,
        "learningrate": 512**-0.5 * 4000**-0.5,
        "label_smoothing": 0.1,
        "batchsize": 16,
        "embedding_size": 512,
        "n_layers": 6,
        "n_heads": 8,
        "ffn_size": 2048,
    },
    "transfertransfo": {**PRETRAINED, "n_candidates": 2, "lm_weight": 1.0, "choice_weight": 1.0},
    "lic": PRETRAINED,
    "bert2bert": PRETRAINED,
    "dvs2s": {
        "optimizer": "adadelta",
        "learningrate": 1.0,
        "dvs": "joint",
        "dvs_top_k": 1000,
        "dvs_samples": 5,
        "dvs_kappa": 5.0,
        "dvs_length_norm": True,
        "dvs_pretrain_epochs": 5,
        "dict_maxtokens": 30000,
    },
}
# What a preset sets though it is not the default of agent and task: everything else is pinned only.
ABLATIONS = {"hcm_without_bert": {"bert_init"}, "hcm_without_copy": {"copy"}}
ARE_DEFAULTS_BY_TASK = {"bert_model", "gpt_model"}


def preset(name: str) -> dict:
    path = compat_presets.FOLDER / "persona_agents" / f"{name}.opt"
    return json.loads(path.read_text(encoding="utf-8"))


def parsed(*arguments) -> Opt:
    """The options that `parlai train_model` ends up with."""
    return setup_args().parse_args([*arguments])


def plain(value):
    return list(value) if isinstance(value, tuple) else value


def test_there_is_one_for_each_system_and_task():
    assert compat_presets.names() == sorted(f"persona_agents/{name}" for name in NAMES)
    agents = {agent for agent, *_ in SYSTEMS.values()}
    assert agents == set(persona_agents.AGENTS)


@pytest.mark.parametrize("name", NAMES)
def test_options(name):
    opt = parsed("-o", f"persona_agents/{name}")
    task = next(task for task in TASKS if name.endswith(task))
    system = name[: -len(task) - 1]
    print(name, json.dumps({key: opt[key] for key in sorted(preset(name))}))  # pytest -s shows it
    assert opt["model"] == f"persona_agents:{SYSTEMS[system][0]}"
    assert opt["task"] == task
    if system in ("lic", "transfertransfo"):
        assert opt["gpt_model"] == GPT[task]
    elif system == "dvs2s":
        assert opt["bert_model"] is None
    else:
        assert opt["bert_model"] == BERT[task]
    for key, value in {**LOOP, **EXPECTED[system]}.items():
        assert (
            opt[key] == pytest.approx(value)
            if isinstance(value, float)
            else value == (tuple(opt[key]) if isinstance(value, tuple) else opt[key])
        ), key


@pytest.mark.parametrize("name", NAMES)
def test_the_bare_command_is_the_same(name):
    """A preset pins the defaults of agent and task; only an ablation differs from them."""
    ours = preset(name)
    bare = parsed("-m", ours["model"], "-t", ours["task"])
    different = {key for key, value in ours.items() if plain(bare[key]) != value}
    ablation = ABLATIONS.get(name.replace(f"_{ours['task']}", ""), set())
    assert ablation <= different <= ablation | ARE_DEFAULTS_BY_TASK


@pytest.mark.parametrize("name", NAMES)
def test_nothing_private(name):
    assert packing.private_options(preset(name)) == []
    assert preset(name)["task"] in TASKS and "seed" not in preset(name)


def test_the_users_options_win():
    opt = parsed("-o", "persona_agents/hcm_cpc", "--bert-model", "none", "-lr", "1e-3")
    assert (opt["bert_model"], opt["learningrate"], opt["batchsize"]) == ("none", 1e-3, 16)


@pytest.mark.parametrize("name", NAMES)
def test_other_forms_of_the_task(name):
    """Which filter a task has is the task's affair, so that a preset serves its variants too."""
    task = preset(name)["task"]
    variants = {
        "cpc": ("raw", "mini", "multi_turn"),
        "personachat_single_turn": ("mini", "revised"),
    }
    for variant in variants[task]:
        opt = parsed("-o", f"persona_agents/{name}", "-t", f"{task}:{variant}")
        assert opt["task"] == f"{task}:{variant}"


def test_a_name_that_there_is_not():
    with pytest.raises(
        PersonaAgentsError, match="hcm_cbc: there is no such.*persona_agents/hcm_cpc"
    ):
        parsed("-o", "persona_agents/hcm_cbc")
    with pytest.raises(FileNotFoundError):
        Opt.load_init("somebody/elses")


@pytest.mark.parametrize("init", ["", "from pkgutil import extend_path\n"])
def test_beside_a_parlai_internal_that_comes_first(tmp_path, init):
    """Also one that does not extend its path and imports this package, as the README says."""
    package = tmp_path / "parlai_internal"
    package.mkdir()
    text = init + ("__path__ = extend_path(__path__, __name__)\n" if init else "")
    (package / "__init__.py").write_text(text, encoding="utf-8")
    code = (
        "import parlai_internal, persona_agents\nfrom parlai.core.opt import Opt\n"
        "print(parlai_internal.__file__, Opt.load_init('persona_agents/dvs2s_cpc')['dvs'])"
    )
    environment = subprocess_environment()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [str(package / "__init__.py"), "joint"], done.stderr
