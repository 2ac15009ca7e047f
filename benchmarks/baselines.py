"""
The systems side by side: share of right replies on a mini corpus, each trained for as long.

A reply is right when it holds the asked word and none of the persona's other ones; no such word of
the test split occurs in training, so it has to be copied. Every system gets the same time for its
training steps (3 minutes of one core) at comparable sizes, without pretrained weights, and the
same schedule and learning rate; of four validations the best is kept. Time is the processor's, so
that other work on the machine does not matter.

    python benchmarks/baselines.py [--language en|zh] [--seeds N] [--minutes M] [--system NAME]...
                                   [--results FILE]

With --results, runs that stand in FILE are not repeated, and new ones are added to it.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from parlai.core.agents import create_agent, create_agent_from_model_file, create_agent_from_shared
from parlai.core.message import Message
from parlai.scripts.build_dict import build_dict
from parlai.scripts.train_model import TrainModel, setup_args

from benchmarks.common import print_results, result, samples
from benchmarks.copy import SIZES, TASKS, share_right
from persona_agents.persona import format_turn

LSTM = {"bert_model": "none", "hiddensize": 128, "embeddingsize": 128}
BERT = {"bert_model": "none", **SIZES}
GPT = {"gpt_model": "none", "embedding_size": 128, "n_heads": 4, "ffn_size": 512}
TRANSFORMER = {"embedding_size": 128, "n_heads": 4, "ffn_size": 512, "n_layers": 2}
SYSTEMS = {
    "hcm": BERT,
    "hcm --copy flat": {**BERT, "copy": "flat"},
    "hcm --copy none": {**BERT, "copy": "none"},
    "pgn": LSTM,
    "pgn --coverage true": {**LSTM, "coverage": True},
    "s2sa": LSTM,
    "transformer": {"bert_model": "none", **TRANSFORMER, "lr_scheduler": "linear"},
    "transfertransfo": {**GPT, "n_decoder_layers": 4},
    "lic": {**GPT, "n_decoder_layers": 2},
    "bert2bert": BERT,
}
COPYING = ("hcm", "pgn")
MEASURED_STEPS = 15


def options(system: str, task: str, model_file: str, seed: int) -> dict:
    """What `parlai train_model` is given."""
    return {
        "model": f"persona_agents:{system.split()[0]}",
        "task": task,
        "model_file": model_file,
        "learningrate": 1e-3,
        "num_epochs": -1,
        "skip_generation": True,
        "seed": seed,
        "log_every_n_secs": 60,
        **SYSTEMS[system],
    }


def seconds_per_step(system: str, task: str, seed: int) -> float:
    """Median processor time of a training step."""
    with tempfile.TemporaryDirectory() as folder:
        opt = setup_args().parse_kwargs(**options(system, task, f"{folder}/model", seed))
        opt["dict_file"] = f"{folder}/model.dict"
        build_dict(opt, skip_if_built=True)
        agent = create_agent(opt)
        size, times = opt["batchsize"], []
        clones = [create_agent_from_shared(agent.share()) for _ in range(size)]
        chosen = samples(agent, task, "train:ordered")
        for begin in range(0, MEASURED_STEPS * size, size):
            start = time.process_time()
            observations = [
                clone.observe(
                    Message(
                        text=format_turn(sample.persona, sample.query),
                        labels=[sample.response],
                        episode_done=True,
                    )
                )
                for clone, sample in zip(clones, chosen[begin : begin + size])
            ]
            agent.batch_act(observations)
            times.append(time.process_time() - start)
            for clone in clones:
                clone.reset()
    return statistics.median(times[3:])


def run(system: str, language: str, seed: int, minutes: float) -> dict:
    """Train and judge one system."""
    task = TASKS[language]
    steps = max(4, int(60 * minutes / seconds_per_step(system, task, seed)))
    with tempfile.TemporaryDirectory() as folder:
        model_file, start = str(Path(folder) / "model"), time.process_time()
        valid, _ = TrainModel.main(
            **options(system, task, model_file, seed),
            max_train_steps=steps,
            validation_every_n_steps=-(-steps // 4),
            validation_every_n_epochs=-1,
        )
        seconds = time.process_time() - start
        agent = create_agent_from_model_file(model_file, {"skip_generation": False})
        share = share_right(agent, task)
    return {
        "system": system,
        "language": language,
        "seed": seed,
        "minutes": minutes,
        "right": share,
        "steps": steps,
        "valid_ppl": valid["ppl"].value(),
        "parameters": sum(p.numel() for p in agent.model.parameters() if p.requires_grad),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--language", choices=tuple(TASKS), default="en")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--system", choices=tuple(SYSTEMS), action="append")
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    done = {}
    if args.results and args.results.exists():
        for line in args.results.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            done[row["system"], row["language"], row["seed"], row["minutes"]] = row
    rows = {}
    for system in args.system or SYSTEMS:
        for seed in range(1, args.seeds + 1):
            key = (system, args.language, seed, args.minutes)
            row = done.get(key) or run(*key)
            if args.results and key not in done:
                with args.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            rows.setdefault(system, []).append(row)

    print(f"\n{TASKS[args.language]}, {args.minutes:g} minutes a system, {args.seeds} seed(s)\n")
    print("| system | right | steps | perplexity (valid) | parameters |\n|---|---|---|---|---|")
    means = {}
    for system, found in rows.items():
        means[system] = statistics.mean(row["right"] for row in found)
        spread = f" ± {statistics.stdev(r['right'] for r in found):.3f}" if args.seeds > 1 else ""
        ppl = statistics.mean(row["valid_ppl"] for row in found)
        steps, parameters = found[0]["steps"], found[0]["parameters"]
        print(f"| {system} | {means[system]:.3f}{spread} | {steps} | {ppl:.2f} | {parameters:,} |")
    others = [s for s in means if s.split()[0] not in COPYING or s == "hcm --copy none"]
    best = max((means[system] for system in others), default=0.0)
    print_results(
        [
            result(f"lead of {system} in {args.language}", means[system] - best, ">= 0.5")
            for system in COPYING
            if system in means
        ]
    )


if __name__ == "__main__":
    main()
