"""Several workers, and several batches for one update, give the gradient of the joint batch."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from parlai.scripts.train_model import TrainLoop

from persona_agents.agents import workers
from persona_agents.errors import PersonaAgentsError
from tests.conftest import ROOT
from tests.gloo import run_workers
from tests.systems import SYSTEMS
from tests.tiny import SIZES, new_agent, options, samples, train_steps, write_corpus

# Ragged on purpose: batches of different sizes, responses of 1 to many tokens.
SAMPLES = [
    (persona[: 1 + i % 3], query[: 3 + 2 * i], response[: 1 + 3 * i])
    for i, (persona, query, response) in enumerate(samples("zh")[:10])
]


@pytest.fixture
def settings(tmp_path):
    made = {
        "model_file": str(tmp_path / "model"),
        "dropout": 0.0,
        "seed": 1,
        "gradient_clip": -1.0,
        "datatype": "train",
        "learningrate": 0.01,
        **write_corpus(tmp_path / "data", SAMPLES),
    }
    new_agent(**made)  # builds the dictionary, which all workers then read
    return made


def gradients(rank: int, settings: dict, batches: list) -> dict:
    """Gradients of one update: worker `rank` trains on `batches[rank]`, a list of batches."""
    mine = batches[rank]
    agent = new_agent(**settings, update_freq=len(mine))
    train_steps(agent, mine)
    assert agent._number_training_updates == 1
    return {name: p.grad for name, p in agent.module.named_parameters() if p.requires_grad}


def assert_equal_gradients(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    greatest = max(grad.abs().max() for grad in one.values())
    assert greatest > 1e-2
    for name, grad in one.items():
        assert torch.allclose(grad, other[name], rtol=0, atol=1e-6), name


@pytest.fixture
def joint(settings) -> dict:
    return gradients(0, settings, [[SAMPLES]])


def test_two_workers(settings, joint):
    """In ParlAI's own way each worker counts the same, however few tokens it has."""
    for own in run_workers(gradients, settings, [[SAMPLES[:3]], [SAMPLES[3:]]]):
        assert_equal_gradients(joint, own)


def test_update_freq(settings, joint):
    batches = [SAMPLES[:2], SAMPLES[2:7], SAMPLES[7:]]
    assert_equal_gradients(joint, gradients(0, settings, [batches]))


def test_two_workers_with_update_freq(settings, joint):
    batches = [[SAMPLES[:1], SAMPLES[1:5]], [SAMPLES[5:9], SAMPLES[9:]]]
    for own in run_workers(gradients, settings, batches):
        assert_equal_gradients(joint, own)


@pytest.mark.parametrize("name", ["s2sa", "pgn --coverage true", "transformer"])
def test_two_workers_of_a_baseline(tmp_path, name):
    """ParlAI's models too, and what is added to the loss."""
    more = {"label_smoothing": 0.1} if name == "transformer" else {}
    settings = SYSTEMS[name].options(
        model_file=str(tmp_path / "model"),
        dropout=0.0,
        seed=1,
        gradient_clip=-1.0,
        datatype="train",
        **write_corpus(tmp_path / "data", SAMPLES),
        **more,
    )
    new_agent(**settings)  # builds the dictionary
    joint = gradients(0, settings, [[SAMPLES]])
    for own in run_workers(gradients, settings, [[SAMPLES[:3]], [SAMPLES[3:]]]):
        assert_equal_gradients(joint, own)


def test_without_the_weights_it_is_another_gradient(settings, joint, monkeypatch):
    monkeypatch.setattr(workers.TokenWeights, "see", lambda self, batch, *_: batch.batchsize)
    two = run_workers(gradients, settings, [[SAMPLES[:3]], [SAMPLES[3:]]])
    with pytest.raises(AssertionError):
        assert_equal_gradients(joint, two[0])


@pytest.mark.parametrize("copy", ["hierarchical", "flat", "none"])
def test_every_parameter_is_used(settings, copy):
    """Otherwise workers wait for gradients that never come."""
    grads = gradients(0, {**settings, "copy": copy}, [[SAMPLES[:2]]])
    assert [name for name, grad in grads.items() if grad is None] == []


def _train(rank, opt_settings, stop_after):
    """ParlAI's own loop in one of two workers; what it has shown, its weights, its rates."""
    opt = options(**opt_settings)
    opt["dict_file"] = opt["model_file"] + ".dict"
    loop = TrainLoop(opt)
    agent, shown, rates = loop.agent, [], []
    train_step = agent.train_step

    def watch(batch):
        shown.extend(agent.dict.vec2txt(row.tolist()) for row in batch.text_vec)
        output = train_step(batch)
        rates.append(agent.optimizer.param_groups[0]["lr"])
        if stop_after and len(rates) == stop_after:
            raise KeyboardInterrupt
        return output

    agent.train_step = watch
    try:
        for _ in loop.train_steps():
            pass
    except KeyboardInterrupt:
        pass
    weights = {name: w.clone() for name, w in agent.module.state_dict().items()}
    return {"shown": shown, "weights": weights, "rates": rates}


class TestTraining:
    def settings(self, settings, **more):
        return {
            **settings,
            "batchsize": 1,
            "num_epochs": 2,
            "validation_every_n_steps": 5,
            "dropout": 0.3,
            "validation_every_n_epochs": -1,
            "save_after_valid": True,
            "validation_max_exs": 2,
            **more,
        }

    def test_workers_share_data_rates_and_weights(self, settings):
        one, two = run_workers(_train, self.settings(settings), None)
        together = [text for step in zip(one["shown"], two["shown"]) for text in step]
        assert len(together) == 2 * len(SAMPLES)
        assert len(set(together[: len(SAMPLES)])) == len(SAMPLES), "an epoch shows each once"
        assert one["rates"] == two["rates"] and one["rates"][-1] == 0
        for name, weight in one["weights"].items():
            assert torch.equal(weight, two["weights"][name])

    def test_two_workers_resume(self, settings, tmp_path):
        """Each gets its own random states back."""
        whole = run_workers(_train, self.settings(settings), None)
        model_file = str(tmp_path / "other")
        Path(f"{model_file}.dict").write_bytes(Path(settings["model_file"] + ".dict").read_bytes())
        parts = self.settings(settings, model_file=model_file)
        run_workers(_train, parts, 7)
        saved = torch.load(f"{model_file}.checkpoint")["train_progress"]
        assert json.loads(saved["stats"])["train_steps"] == 5
        states = [state["torch"] for state in saved["random"]]
        assert len(states) == 2 and not torch.equal(*states), "dropout differs among workers"
        resumed = run_workers(_train, parts, None)
        for before, after in zip(whole, resumed):
            assert before["shown"][5:] == after["shown"]
            for name, weight in before["weights"].items():
                assert torch.equal(weight, after["weights"][name])


WITHOUT_GPUS = {
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "gloo_site"), str(ROOT)]),
    "OMP_NUM_THREADS": "1",
}
TWO_EPOCHS_OF_TWO_WORKERS = [
    *("--num_epochs", "2", "--batchsize", "4"),
    *("--distributed_world_size", "2", "--skip-generation", "true"),
]


def on_command_line(corpus: dict) -> list[str]:
    """A tiny model and its data."""
    given = {**SIZES, **corpus, "model": "persona_agents:hcm", "loglevel": "info"}
    return [part for name, value in given.items() for part in (f"--{name}", str(value))]


def assert_trained(model_file) -> None:
    """To the end, and validated."""
    stats = json.loads(Path(f"{model_file}.trainstats").read_text(encoding="utf-8"))
    assert stats["total_epochs"] >= 2 and stats["valid_reports"]


@pytest.mark.slow
def test_the_command_spawns_workers_that_know_the_tasks_and_mends(run_parlai, tmp_path):
    """Each worker is a new process; the dictionary is not there yet."""
    command = on_command_line(write_corpus(tmp_path / "data", SAMPLES))
    model_file = tmp_path / "model"
    ended = run_parlai(
        *("multiprocessing_train", *command, "--model_file", model_file),
        *TWO_EPOCHS_OF_TWO_WORKERS,
        env=WITHOUT_GPUS,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert_trained(model_file)
    assert model_file.is_file() and Path(f"{model_file}.dict").is_file()


def test_the_clusters_command_finds_the_tasks(run_parlai, tmp_path):
    command = on_command_line(write_corpus(tmp_path / "data", SAMPLES))
    ended = run_parlai("distributed_train", *command, "--model_file", tmp_path / "model")
    assert ended.returncode == 1
    assert "SLURM environment" in ended.stderr, "all was found but the cluster"


@pytest.mark.slow
def test_two_tasks_of_a_cluster(run_parlai, tmp_path):
    """SLURM's part: an environment, and a program that names the hosts."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho localhost\n", encoding="utf-8")
    program.chmod(0o755)
    model_file = tmp_path / "model"
    command = on_command_line(write_corpus(tmp_path / "data", SAMPLES))
    command += ["--model_file", str(model_file)]
    built = run_parlai("build_dict", *command, "--dict-file", f"{model_file}.dict")
    assert built.returncode == 0, built.stderr[-2000:]
    command += TWO_EPOCHS_OF_TWO_WORKERS
    cluster = {
        **WITHOUT_GPUS,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "localhost",
    }
    with ThreadPoolExecutor() as pool:
        ended = pool.map(
            lambda rank: run_parlai(
                "distributed_train",
                *command,
                env={**cluster, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            ),
            range(2),
        )
    assert [one.returncode for one in ended] == [0, 0]
    assert_trained(model_file)


@pytest.mark.parametrize("backend", ["zero2", "zero3"])
def test_sharding_is_refused(backend):
    with pytest.raises(PersonaAgentsError, match=f"{backend}.*two learning rates.*ddp"):
        workers.refuse_sharding({"ddp_backend": backend})


def test_sharding_is_refused_before_anything_is_built(settings):
    opt = options(**settings)
    opt["ddp_backend"] = "zero2"
    from parlai.core.agents import create_agent

    with pytest.raises(PersonaAgentsError, match="zero2"):
        create_agent(opt)
