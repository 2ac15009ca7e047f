"""The baselines that start from a pretrained model's folder: what stays when the folder is gone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import gpt_models
import pytest
import systems
import tiny
import torch
from conftest import subprocess_environment
from gloo import run_workers
from parlai.core.agents import create_agent_from_model_file

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn

EIGHT = tiny.samples("en")[:80:10]
UNSEEN = tiny.samples("en", "test")[:40:20]
BATCHES = tuple([EIGHT[i % 8], EIGHT[(i * 3 + 1) % 8]] for i in range(6))
# system -> what its folder holds
SYSTEMS = {
    "transfertransfo, OpenAI GPT": ("transfertransfo", "bpe"),
    "transfertransfo, Chinese GPT-2": ("transfertransfo", "wordpiece"),
    "lic, OpenAI GPT": ("lic", "bpe"),
    "lic, GPT-2": ("lic", "bytes"),
    "bert2bert": ("bert2bert", None),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), EIGHT, EIGHT, UNSEEN)


def new_agent(system, folder, model_file, minilm, **settings):
    """An agent that starts from a folder of its own, which is made first where it is not there."""
    name, vocabulary = SYSTEMS[system]
    if vocabulary is None:
        own = tiny.with_bert(str(folder))
        if not folder.exists():
            tiny.make_bert(str(folder), minilm)
    else:
        own = gpt_models.settings(folder)
        if not folder.exists() and not model_file.exists():
            gpt_models.make_gpt(folder, vocabulary)
    given = {"model": f"persona_agents:{name}", **own, "learningrate": 1e-2, "seed": 1}
    given = {**given, "pretrained_lr": 1e-2, "max_train_steps": 6, "num_epochs": -1, **settings}
    return tiny.new_agent(**given, model_file=str(model_file))


@pytest.fixture(params=SYSTEMS)
def make(request, corpus, tmp_path, minilm):
    """A new agent of a system, which starts from tmp_path / "pretrained"."""

    def build(model_file="model", **settings):
        folder, path = tmp_path / "pretrained", tmp_path / model_file
        return new_agent(request.param, folder, path, minilm, **corpus, **settings)

    return build


def test_a_resumed_training_needs_no_folder(make, tmp_path):
    unbroken = make("unbroken", dropout=0.0)
    expected = tiny.train_steps(unbroken, BATCHES)
    first = make(dropout=0.0)
    found = tiny.train_steps(first, BATCHES[:3])
    first.save()
    groups = [[len(g["params"]), g["lr"]] for g in first.optimizer.param_groups]
    shutil.rmtree(tmp_path / "pretrained")

    again = make(dropout=0.0)
    again.scheduler.begin()
    assert [[len(g["params"]), g["lr"]] for g in again.optimizer.param_groups] == groups
    assert found + tiny.train_steps(again, BATCHES[3:]) == expected


def test_another_process_needs_the_models_files_alone(corpus, tmp_path, minilm):
    expected = {}
    for system in ("transfertransfo, Chinese GPT-2", "lic, OpenAI GPT", "bert2bert"):
        folder, model_file = tmp_path / "pretrained" / system, tmp_path / "models" / system
        agent = new_agent(system, folder, model_file, minilm, **corpus)
        tiny.train_steps(agent, BATCHES * 2)
        agent.save()
        expected[system] = tiny.replies(agent, UNSEEN)
        assert any(expected[system])
    shutil.rmtree(tmp_path / "pretrained")
    elsewhere = (tmp_path / "models").rename(tmp_path / "elsewhere")
    code = """
import json, sys, persona_agents
from parlai.core.agents import create_agent_from_model_file
replies = {}
for system in json.loads(sys.argv[1]):
    agent = create_agent_from_model_file(system)
    replies[system] = [agent.respond(text) for text in json.loads(sys.argv[2])]
print(json.dumps(replies))
"""
    texts = [format_turn(persona, query) for persona, query, _ in UNSEEN]
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(list(expected)), json.dumps(texts)],
        cwd=elsewhere,
        env={**subprocess_environment(), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_another_training_starts_from_the_saved_model(make, tmp_path):
    first = make(dropout=0.0)
    tiny.train_steps(first, BATCHES[:3])
    first.save()
    shutil.rmtree(tmp_path / "pretrained")
    second = make("second", init_model=str(tmp_path / "model"), dropout=0.0)
    assert second.dict.tok2ind == first.dict.tok2ind
    assert second._number_training_updates == 0 and not second.optimizer.state
    groups = ([len(g["params"]) for g in a.optimizer.param_groups] for a in (first, second))
    assert len(set(map(tuple, groups))) == 1
    assert tiny.replies(second, UNSEEN) == tiny.replies(first, UNSEEN)


def test_pretrained_parts_learn_at_their_own_rate(make):
    agent = make(learningrate=5e-5, pretrained_lr=7e-6)
    assert agent.scheduler.peaks == [5e-5, 7e-6]
    names = {id(p): name for name, p in agent.model.named_parameters()}
    new, old = ([names[id(p)] for p in g["params"]] for g in agent.optimizer.param_groups)
    assert sorted([*new, *old]) == sorted(names.values()) and old
    assert all(
        any(part in name for part in ("choice_head", "crossattention", "cls.predictions"))
        for name in new
    )


def test_a_saved_models_sizes_stay(make, tmp_path):
    agent = make()
    agent.save()
    with pytest.raises(PersonaAgentsError, match="--embedding-size"):
        create_agent_from_model_file(str(tmp_path / "model"), {"embedding_size": 64})


def gradients(rank: int, settings: dict, batches: list) -> dict:
    """Gradients of one update of a worker that trains on ``batches[rank]``."""
    agent = tiny.new_agent(**settings)
    tiny.train_steps(agent, [batches[rank]])
    return {name: p.grad for name, p in agent.module.named_parameters()}


@pytest.mark.parametrize(
    ("system", "reply_alone"),
    [
        ("transfertransfo", {"n_candidates": 1}),
        ("transfertransfo", {}),
        ("lic", {"source_lm_weight": 0.0}),
        ("lic", {}),
        ("bert2bert", {"n_decoder_layers": 1}),
    ],
)
def test_two_workers(system, reply_alone, corpus, tmp_path):
    """All parameters are used, or the workers would fail; the reply's gradient is the joint one."""
    given = {"dropout": 0.0, "seed": 1, "gradient_clip": -1.0, "learningrate": 0.01, **reply_alone}
    settings = systems.SYSTEMS[system].options(
        **corpus, **given, model_file=str(tmp_path / "model"), datatype="train"
    )
    tiny.new_agent(**settings)  # builds the dictionary, which both workers then read
    one, other = run_workers(gradients, settings, [EIGHT[:3], EIGHT[3:]])
    joint = gradients(0, settings, [EIGHT])
    for name, grad in one.items():
        assert torch.equal(grad, other[name]), name
        if reply_alone:
            assert torch.allclose(grad, joint[name], rtol=0, atol=1e-5), name


def test_the_commands(run_parlai_commands, tmp_path):
    """Train on one command, evaluate, chat."""
    commands = []
    for system, task in (
        ("transfertransfo", "personachat_single_turn:mini"),
        ("lic", "cpc:mini"),
        ("bert2bert", "cpc:mini"),
    ):
        sizes = gpt_models.settings() if system != "bert2bert" else tiny.SIZES
        sizes = [f"--{n.replace('_', '-')}={v}" for n, v in sizes.items() if v is not None]
        where = ["-mf", tmp_path / system, "-t", task]
        commands += [
            ["train_model", "-m", f"persona_agents:{system}", *where, *sizes, "-bs", "4",
             "--max-train-steps", "2", "-eps", "-1", "-vstep", "2", "-vme", "8",
             "--short-final-eval", "true", "--label-truncate", "12"],
            ["eval_model", *where, "--num-examples", "3", "-bs", "2",
             "--metrics", "corpus_bleu,p_cover"],
            ["interactive", *where, "--single-turn", "true", "--inference", "beam",
             "--beam-size", "2"],
        ]  # fmt: skip
    chat = "your persona: i have a cat .\\nhello\n[EXIT]\n" + "你好\n[EXIT]\n" * 2
    done = run_parlai_commands(*commands, input=chat)
    assert done.returncode == 0, done.stderr[-2000:]
    text = done.stdout + done.stderr
    assert text.count("corpus_bleu_4") >= 3
    # each has answered and asked for more
    assert text.count("Enter Your Message") == 2 and text.count("请输入") == 4
