"""What the benchmarks share: replies of a trained agent, and the result line."""

from __future__ import annotations

import json
import math
import operator

import torch
from parlai.core.agents import create_agent_from_shared
from parlai.core.message import Message
from parlai.core.teachers import create_task_agent_from_taskname

from persona_agents.persona import format_turn

COMPARE = {"<=": operator.le, ">=": operator.ge}


def samples(agent, task: str, datatype: str) -> list:
    """Samples (persona, query, response) of one of this package's tasks."""
    (teacher,) = create_task_agent_from_taskname({**agent.opt, "task": task, "datatype": datatype})
    return list(teacher.samples)


def replies(agent, inputs: list, batchsize: int = 32) -> list[str]:
    """The agent's replies to (persona, query, …) inputs."""
    return [act["text"] for act in acts(agent, inputs, batchsize)]


def acts(agent, inputs: list, batchsize: int = 32) -> list[Message]:
    """The agent's messages in answer to (persona, query, …) inputs."""
    clones = [create_agent_from_shared(agent.share()) for _ in range(batchsize)]
    answers = []
    for begin in range(0, len(inputs), batchsize):
        batch = inputs[begin : begin + batchsize]
        for clone, (persona, query, *_) in zip(clones, batch):
            text = format_turn(persona, query)
            clone.observe(Message({"id": "user", "text": text, "episode_done": True}))
        found = agent.batch_act([clone.observation for clone in clones[: len(batch)]])
        for clone, act in zip(clones, found):
            clone.self_observe(act)
        answers += found
    return answers


def result(name: str, value: float, target: str) -> dict:
    """One line of a benchmark's result; the target reads like '>= 0.9'."""
    sign, bound = target.split()
    ok = bool(COMPARE[sign](value, float(bound)))
    return {"name": name, "value": round(value, 4), "target": target, "ok": ok}


def print_results(results: list[dict]) -> None:
    """The last line of a benchmark's output: JSON for programs."""
    print(json.dumps(results, ensure_ascii=False))


def perplexity(agent, inputs: list, batchsize: int = 32) -> float:
    """Perplexity per token, end token included, of (persona, query, response) samples."""

    agent.model.eval()
    loss = tokens = 0.0
    clone = create_agent_from_shared(agent.share())
    for begin in range(0, len(inputs), batchsize):
        observations = []
        for persona, query, response in inputs[begin : begin + batchsize]:
            text = format_turn(persona, query)
            message = {"text": text, "eval_labels": [response], "episode_done": True}
            observations.append(clone.observe(Message(message)))
            clone.reset()
        batch = agent.batchify(observations)
        with torch.no_grad():
            log_prob, *_ = agent.model(batch.text_vec, batch.label_vec)  # (B, T, 1)
        real = batch.label_vec.ne(agent.NULL_IDX)
        loss -= (log_prob.squeeze(-1) * real).sum().item()
        tokens += real.sum().item()
    return math.exp(loss / tokens)
