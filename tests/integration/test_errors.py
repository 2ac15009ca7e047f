"""Mistakes at the `parlai` command: one clear message, exit status 1, nothing half-written."""

from __future__ import annotations

import json

import pytest
import tiny
from parlai.scripts.train_model import TrainModel

HCM = ("train_model", "-m", "persona_agents:hcm")
DIALOGUE = {
    "p1_persona": ["我 喜欢 猫"],
    "p2_persona": ["我 喜欢 狗"],
    "conversation": ["p1 : 你 喜欢 什么 ？", "p2 : 我 喜欢 狗 。"],
}


@pytest.fixture
def fails(run_parlai, tmp_path):
    """Runs a command that must fail; returns its message.

    Whatever lies in the model file's folder must be there unchanged, and nothing else.
    """
    folder = tmp_path / "models"
    folder.mkdir()

    def contents():
        return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}

    def run(*arguments, **settings):
        before = contents()
        done = run_parlai(*arguments, "-mf", folder / "model", **settings)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert contents() == before, "something was written"
        assert not list((tmp_path / "empty").iterdir()), "nor in the folder it was started in"
        message = done.stderr.strip().splitlines()[-1]
        assert len(message) > 40, "a whole sentence"
        return message

    run.folder = folder
    return run


def test_cpc_is_not_there(fails, tmp_path):
    message = fails(*HCM, "-t", "cpc", "--datapath", tmp_path / "data", "--bert-model", "none")
    assert str(tmp_path / "data" / "CPC") in message
    assert "--cpc-path" in message and "cpc:mini" in message


def test_cpc_with_a_truncated_line(fails, tmp_path):
    line = json.dumps(DIALOGUE, ensure_ascii=False)
    path = tmp_path / "cpc" / "Persona_train.json"
    path.parent.mkdir()
    path.write_text(f"{line}\n{line}\n{line[:60]}\n", encoding="utf-8")
    (path.parent / "Persona_dev.json").write_text(line, encoding="utf-8")
    message = fails(*HCM, "-t", "cpc:raw", "--cpc-path", path.parent, "--bert-model", "none")
    assert str(path) in message and "line 3" in message


def test_hub_that_cannot_be_reached(fails):
    # Nobody listens there. The time limit is far below the minutes that the library would retry.
    env = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    message = fails(*HCM, "-t", "personachat_single_turn:mini", env=env, timeout=100)
    assert "bert-base-uncased" in message and "http://127.0.0.1:9" in message
    assert "--bert-model none" in message


def test_folder_that_holds_no_bert(fails, tmp_path):
    (tmp_path / "nothing").mkdir()
    message = fails(*HCM, "-t", "cpc:mini", "--bert-model", tmp_path / "nothing")
    assert str(tmp_path / "nothing") in message and "config.json" in message


def test_size_that_the_heads_do_not_divide(fails):
    sizes = ("--bert-model", "none", "--embedding-size", "30", "--n-heads", "4")
    message = fails(*HCM, "-t", "cpc:mini", *sizes)
    assert "--embedding-size 30" in message and "--n-heads 4" in message


class TestCheckpoints:
    @pytest.fixture
    def trained(self, fails, tmp_path):
        """Trains one step of an agent into the folder of `fails`; returns the task's options."""

        def train(**settings):
            corpus = tiny.write_corpus(tmp_path / "corpus", tiny.samples("en")[:4])
            model_file = str(fails.folder / "model")
            TrainModel.main(
                model_file=model_file, **corpus, **tiny.QUIET, **settings, batchsize=4,
                num_epochs=1, validation_metric="ppl", skip_generation=True,
            )  # fmt: skip
            return "-t", corpus["task"], "--personachat-path", corpus["personachat_path"]

        return train

    def test_of_another_agent(self, fails, trained):
        task = trained(
            model="transformer/generator", embedding_size=8, ffn_size=8, n_layers=1, n_heads=1
        )
        message = fails(*HCM, *task, "--bert-model", "none")
        assert str(fails.folder / "model") in message and "'transformer/generator'" in message
        assert "--model-file" in message

    def test_of_another_copy_mechanism(self, fails, trained):
        task = trained(model="persona_agents:hcm", **tiny.SIZES)
        message = fails(*HCM, *task, "--copy", "none", "--num-epochs", "2")
        assert str(fails.folder / "model") in message and "--copy" in message
