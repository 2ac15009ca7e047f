"""Every agent's model, packed and loaded where nothing else of it is."""

from __future__ import annotations

import os

import pytest
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file

import persona_agents
from persona_agents import packing
from tests.unit.test_packing import CHOSEN, card, content, empty, saved_agent

NO_SIZES = dict.fromkeys(tiny.SIZES)  # those that only some agents have
LSTM = {**NO_SIZES, "bert_model": "none", "hiddensize": 16, "embeddingsize": 16}
GPT = {**tiny.SIZES, "bert_model": None, "n_encoder_layers": None, "gpt_model": "none"}
TRANSFORMER = {**tiny.SIZES, "n_encoder_layers": None, "n_decoder_layers": None, "n_layers": 1}
SETTINGS = {
    "hcm": {},
    "s2sa": LSTM,
    "pgn": LSTM,
    "transformer": TRANSFORMER,
    "transfertransfo": GPT,
    "lic": GPT,
    "bert2bert": {},
    "dvs2s": {**NO_SIZES, "embedding_size": 16, "hidden_size": 16, "dvs_pretrain_epochs": 0},
}


@pytest.mark.parametrize("agent", persona_agents.AGENTS)
def test_every_agent_answers_elsewhere(agent, tmp_path):
    """Packed, moved and loaded where its corpus and its files are not: the same model."""
    answers_elsewhere(tmp_path, model=f"persona_agents:{agent}", **SETTINGS[agent])


@pytest.mark.parametrize("agent", ["hcm", "s2sa", "bert2bert"])
def test_berts_folder_is_not_needed_again(agent, tmp_path, minilm, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    tiny.make_bert(str(tmp_path / "trained" / "bert"), minilm)
    settings = {**NO_SIZES, "bert_model": str(tmp_path / "trained" / "bert")}
    if agent == "s2sa":
        settings.update(hiddensize=16, embeddingsize=16)
    answers_elsewhere(tmp_path, model=f"persona_agents:{agent}", **settings)


def answers_elsewhere(tmp_path, **settings):
    folder = tmp_path / "trained"
    agent = saved_agent(folder, **settings)
    expected = tiny.replies(agent, CHOSEN[:2])
    packing.pack(str(folder / "model"), str(tmp_path / "x.zip"), card())
    os.rename(folder, tmp_path / "elsewhere")
    assert str(tmp_path).encode() not in b"".join(content(tmp_path / "x.zip").values())
    new = empty(tmp_path / "new")
    packing.unpack(str(tmp_path / "x.zip"), str(new))
    loaded = create_agent_from_model_file(str(new / "model"))
    for one, other in zip(agent.model.parameters(), loaded.model.parameters()):
        assert torch.equal(one, other)
    assert tiny.replies(loaded, CHOSEN[:2]) == expected
