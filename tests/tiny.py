"""Tiny agents, and tiny corpora cut from the bundled ones, for tests that need a whole agent."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from parlai.core.agents import create_agent, create_agent_from_shared
from parlai.core.message import Message
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.scripts.train_model import setup_args

from persona_agents.persona import format_turn, parse_turn

SIZES = {
    "bert_model": "none",
    "embedding_size": 32,
    "n_heads": 2,
    "ffn_size": 64,
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
}
QUIET = {"loglevel": "error", "log_every_n_secs": -1}


class Sample(NamedTuple):
    """One question and one answer."""

    persona: tuple[str, ...]
    query: str
    response: str


@functools.cache
def samples(language: str, split: str = "train") -> list[Sample]:
    """The bundled corpus in Chinese or English."""
    task = {"zh": "cpc:mini", "en": "personachat_single_turn:mini"}[language]
    datatype = split if split != "train" else "train:ordered"
    opt = setup_args().parse_kwargs(task=task, datatype=datatype, **QUIET)
    (teacher,) = create_task_agent_from_taskname(opt)
    turns = [teacher.get(index) for index in range(teacher.num_examples())]
    parsed = [parse_turn(turn["text"]) for turn in turns]
    return [Sample(p.persona, p.query, turn["labels"][0]) for p, turn in zip(parsed, turns)]


def write_corpus(folder: Path, train, valid=None, test=None) -> dict:
    """A task of (persona, query, response) samples: returns the options that name it.

    The samples are written in Persona-Chat's format, Chinese ones too; without ``valid`` and
    ``test`` the training samples serve there as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, chosen in (("train", train), ("valid", valid or train), ("test", test or train)):
        lines = []
        for persona, query, response in chosen:
            turns = [f"your persona: {sentence}" for sentence in persona] + [f"{query}\t{response}"]
            lines += [f"{number} {turn}\n" for number, turn in enumerate(turns, 1)]
        (folder / f"{split}_self_original.txt").write_text("".join(lines), encoding="utf-8")
    return {"task": "personachat_single_turn", "personachat_path": str(folder)}


def options(**settings):
    """Options of `parlai train_model -m persona_agents:hcm`, as the command would parse them."""
    given = {"model": "persona_agents:hcm", **QUIET, **SIZES, **settings}
    # ParlAI turns True and False into flags; None means: leave the option out
    return setup_args().parse_kwargs(**{k: v for k, v in given.items() if v is not None})


def with_bert(folder: str) -> dict:
    """Settings that replace :data:`SIZES` by the BERT in a folder and one decoder layer."""
    return {**dict.fromkeys(SIZES), "bert_model": folder, "n_decoder_layers": 1}


def make_bert(folder: str, vocabulary_from: str) -> dict:
    """Save a BERT of one layer of 32 with another BERT's vocabulary; returns its weights."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    model = BertModel(config)
    with torch.no_grad():  # biases and norms of their own, so that loading them shows
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(vocabulary_from) / name, folder)
    return model.state_dict()


def new_agent(**settings):
    """An agent as `parlai train_model` creates it: the dictionary is built first."""
    from parlai.scripts.build_dict import build_dict

    opt = options(**settings)
    if opt.get("dict_file") is None:
        opt["dict_file"] = opt["model_file"] + ".dict"
    build_dict(opt, skip_if_built=True)
    return create_agent(opt)


def observe(agent, chosen, labels="labels") -> tuple[list, list]:
    """Clones of the agent, one for each sample, and what each has observed."""
    clones = [create_agent_from_shared(agent.share()) for _ in chosen]
    observations = []
    for clone, (persona, query, *response) in zip(clones, chosen):
        message = {"text": format_turn(persona, query), "episode_done": True}
        if response and labels:
            message[labels] = list(response)
        observations.append(clone.observe(Message(message)))
    return clones, observations


def act(agent, chosen, labels=None) -> list[Message]:
    """The agent's answers to the samples, all in one batch; with "labels" it trains on them."""
    clones, observations = observe(agent, chosen, labels)
    answers = agent.batch_act(observations)
    for clone, answer in zip(clones, answers):
        clone.self_observe(answer)
    return answers


def replies(agent, chosen) -> list[str]:
    """The agent's replies to the samples, generated in one batch."""
    return [answer["text"] for answer in act(agent, chosen)]


def train_steps(agent, batches) -> list[float]:
    """Train on batches of samples; the loss of each."""
    losses = []
    for batch in batches:
        agent.reset_metrics()
        answers = act(agent, batch, "labels")
        metrics = [answer["metrics"]["loss"] for answer in answers]
        losses.append(sum(m.value() * m._denom for m in metrics) / sum(m._denom for m in metrics))
    return losses
