"""Broken and hostile files in place of each file of a checkpoint, for our agent and ParlAI's own."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy
import pytest
import torch
from parlai.core.agents import create_agent_from_model_file
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainModel

from persona_agents.errors import PersonaAgentsError
from tests.tiny import SIZES, samples, write_corpus

MODELS = {
    "persona_agents:hcm": {**SIZES, "label_truncate": 8},
    "transformer/generator": {
        "embedding_size": 8,
        "ffn_size": 8,
        "n_layers": 1,
        "n_heads": 2,
        "optimizer": "adam",
        "skip_generation": True,
        "validation_metric": "ppl",
    },
}
FILES = ["", ".opt", ".dict", ".trainstats"]


def train(model, model_file, folder, **more):
    task = write_corpus(folder / "data", samples("zh")[:8], samples("zh", "valid")[:4])
    settings = {
        "batchsize": 4,
        "num_epochs": 1,
        "save_after_valid": True,
        "loglevel": "error",
        "validation_every_n_epochs": 0.5,
        "validation_max_exs": 4,
        "short_final_eval": True,
        **task,
        **MODELS[model],
        **more,
    }
    TrainModel.main(model=model, model_file=str(model_file), **settings)


@pytest.fixture(scope="module", params=list(MODELS))
def trained(request, tmp_path_factory):
    """(agent, folder of a finished run with its files `model…` and `model.checkpoint…`)."""
    folder = tmp_path_factory.mktemp("trained")
    train(request.param, folder / "model", folder)
    return request.param, folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that run: (agent, its model file)."""
    model, folder = trained
    for path in folder.glob("model*"):
        text = path.read_bytes()
        if path.suffix == ".opt":  # the options name their files by path
            text = text.replace(str(folder).encode(), str(tmp_path).encode())
        (tmp_path / path.name).write_bytes(text)
    return model, tmp_path / "model"


def break_file(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.write_bytes(b"" if how == "empty" else content[: len(content) // 2])


def message_of(function, *args, **kwargs) -> str:
    with pytest.raises(PersonaAgentsError) as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 or "size mismatch" in message
    return message


@pytest.mark.parametrize("how", ["empty", "cut off"])
class TestBrokenFile:
    @pytest.mark.parametrize("suffix", ["", ".opt", ".dict"])
    def test_loading(self, run, suffix, how):
        _, model_file = run
        broken = Path(f"{model_file}{suffix}")
        break_file(broken, how)
        message = message_of(create_agent_from_model_file, str(model_file))
        assert str(broken) in message

    @pytest.mark.parametrize("suffix", FILES)
    @pytest.mark.parametrize("point", ["", ".checkpoint"])
    def test_resuming(self, run, suffix, how, point):
        model, model_file = run
        broken = Path(f"{model_file}{point}{suffix}")
        whole = broken.read_bytes()
        break_file(broken, how)
        if (model, point + suffix) == ("persona_agents:hcm", ".dict"):
            # Not read where a .checkpoint is resumed, and written with the next best model.
            train(model, model_file, model_file.parent, num_epochs=2)
            assert broken.read_bytes() == whole
            return
        message = message_of(train, model, model_file, model_file.parent, num_epochs=2)
        assert str(broken) in message


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["torch.save", "torch.save of before 1.6", "pickle"])
@pytest.mark.parametrize("command", ["load", "resume", "evaluate"])
def test_code_in_weights_is_refused(run, tmp_path, form, command):
    model, model_file = run
    states = {**torch.load(model_file), "extra": Attack(tmp_path / "attacked")}
    targets = (
        [model_file, Path(f"{model_file}.checkpoint")] if command == "resume" else [model_file]
    )
    for target in targets:
        if form == "pickle":
            target.write_bytes(pickle.dumps(states["extra"]))
        else:
            torch.save(states, target, _use_new_zipfile_serialization=form == "torch.save")
    if command == "load":
        message = message_of(create_agent_from_model_file, str(model_file))
    elif command == "resume":
        message = message_of(train, model, model_file, tmp_path, num_epochs=2)
    else:
        message = message_of(EvalModel.main, model_file=str(model_file), task="cpc:mini")
    assert str(model_file) in message
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("protocol", [0, 2])
def test_code_in_options_is_refused(run, tmp_path, protocol):
    """ParlAI unpickles an .opt that is no text."""
    _, model_file = run
    content = pickle.dumps(Attack(tmp_path / "attacked\u4e2d"), protocol)
    Path(f"{model_file}.opt").write_bytes(content)
    assert f"{model_file}.opt" in message_of(create_agent_from_model_file, str(model_file))
    assert not list(tmp_path.glob("attacked*"))


class TestOldCheckpointsOfParlAI:
    """Beside tensors, ParlAI's own checkpoints have held plain data of several kinds."""

    def load(self, path, content, legacy):
        import parlai.utils.pickle

        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
        with open(path, "rb") as file:
            return torch.load(file, pickle_module=parlai.utils.pickle, weights_only=False)

    @pytest.mark.parametrize("legacy", [True, False])
    def test_plain_data(self, tmp_path, legacy):
        content = {
            "opt": Opt({"task": "cpc"}),
            "model": OrderedDict(a=torch.ones(2), b=torch.nn.Parameter(torch.zeros(3).half())),
            "numbers": numpy.arange(3.0),
            "number": numpy.float64(0.5),
            "names": {"a", "b"},
            "size": torch.Size([1, 2]),
            "type": torch.float16,
            "longs": torch.arange(4),
        }
        loaded = self.load(tmp_path / "old", content, legacy)
        assert loaded["opt"] == {"task": "cpc"} and isinstance(loaded["opt"], Opt)
        assert torch.equal(loaded["model"]["b"], content["model"]["b"])
        assert loaded["numbers"].tolist() == [0, 1, 2] and loaded["number"] == 0.5
        assert loaded["names"] == {"a", "b"} and loaded["size"] == (1, 2)
        assert loaded["type"] is torch.float16 and loaded["longs"].tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("legacy", [True, False])
    def test_training_goes_on(self, run, legacy):
        model, model_file = run
        if model == "persona_agents:hcm":
            pytest.skip("our own are never that old")
        for path in (model_file, f"{model_file}.checkpoint"):
            states = torch.load(path)
            del states["train_progress"]
            states = {**states, "opt": Opt({"task": "cpc"})}
            torch.save(states, path, _use_new_zipfile_serialization=not legacy)
        train(model, model_file, model_file.parent, num_epochs=2)
        assert torch.load(f"{model_file}.checkpoint")["number_training_updates"] == 4

    def test_without_apex(self, tmp_path):
        """The loss scaler of checkpoints that were trained with apex."""
        import sys
        import types

        module = types.ModuleType("apex.scaler")
        scaler = type("LossScaler", (), {"__module__": "apex.scaler"})
        module.LossScaler = scaler
        sys.modules.update({"apex": types.ModuleType("apex"), "apex.scaler": module})
        try:
            torch.save({"scaler": scaler()}, tmp_path / "old")
        finally:
            del sys.modules["apex.scaler"], sys.modules["apex"]
        import parlai.utils.pickle

        with open(tmp_path / "old", "rb") as file:
            loaded = torch.load(file, pickle_module=parlai.utils.pickle, weights_only=False)
        assert type(loaded["scaler"]).__name__ == "FakeAPEXClass"

    def test_pickled_options(self, tmp_path):
        path = tmp_path / "old.opt"
        path.write_bytes(pickle.dumps({"task": "cpc", "note": "\u4e2d"}, 2))
        assert Opt.load(str(path)) == {"task": "cpc", "note": "\u4e2d"}


def test_weights_of_another_size(run):
    _, model_file = run
    states = torch.load(model_file)
    name = next(n for n, w in states["model"].items() if w.dim() == 2)
    states["model"][name] = torch.zeros(3, 3)
    torch.save(states, model_file)
    assert str(model_file) in message_of(create_agent_from_model_file, str(model_file))


def test_a_file_that_is_no_dictionary_of_states(run):
    _, model_file = run
    torch.save([1, 2], model_file)
    assert str(model_file) in message_of(create_agent_from_model_file, str(model_file))


def test_statistics_that_are_no_object(run):
    model, model_file = run
    Path(f"{model_file}.trainstats").write_text(json.dumps([1]), encoding="utf-8")
    message = message_of(train, model, model_file, model_file.parent, num_epochs=2)
    assert f"{model_file}.trainstats" in message


class TestDictionaryOfParlAI:
    def load(self, path, content: bytes):
        path.write_bytes(content)
        return DictionaryAgent(Opt({"dict_tokenizer": "space", "dict_file": str(path)}))

    @pytest.mark.parametrize("content", [b"", b"one\t2\ntwo\t", b"one\t2\ntw", b"one\t2\ntwo\tx\n"])
    def test_broken(self, tmp_path, content):
        path = tmp_path / "model.dict"
        assert str(path) in message_of(self.load, path, content)

    @pytest.mark.parametrize("content", [b"one\t2\ntwo\t1\n", b"one\ntwo", b"one\t2\ntwo\t1"])
    def test_whole(self, tmp_path, content):
        """Also one made by hand, without counts or without a last line break."""
        dictionary = self.load(tmp_path / "model.dict", content)
        assert "one" in dictionary and "two" in dictionary
