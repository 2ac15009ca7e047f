"""
Does it copy? Share of right replies on the mini corpora's test splits.

A reply is right when it holds the asked word and none of the persona's other ones. No such word of
the test split occurs in training, so a model without a copy mechanism can only guess. Trains HCM
and the same model with ``--copy none`` on the same budget and prints the shares of right greedy
replies, for the trained HCM also with p_gen forced to 1.

    python benchmarks/copy.py [--seeds N] [--epochs N] [--language zh|en]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from parlai.core.agents import create_agent_from_model_file
from parlai.scripts.train_model import TrainModel
from persona_agents.tasks.mini import is_right

from benchmarks.common import print_results, replies, result, samples

TASKS = {"zh": "cpc:mini", "en": "personachat_single_turn:mini"}
SIZES = {
    "embedding_size": 128,
    "n_heads": 4,
    "ffn_size": 512,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
}


def train(task: str, model_file: str, **options) -> None:
    """Train HCM on a mini corpus."""
    TrainModel.main(
        model="persona_agents:hcm",
        task=task,
        model_file=model_file,
        bert_model="none",
        learningrate=1e-3,
        log_every_n_secs=30,
        **{**SIZES, **options},
    )


def share_right(agent, task: str) -> float:
    """Share of right greedy replies on the test split."""
    test = samples(agent, task, "test")
    right = [
        is_right(reply, sample.response, sample.persona, sample.query)
        for reply, sample in zip(replies(agent, test), test)
    ]
    return sum(right) / len(right)


def run(language: str, seed: int, epochs: float) -> dict[str, float]:
    """Both models of one language and seed: share of right replies by variant."""
    task, shares = TASKS[language], {}
    with tempfile.TemporaryDirectory() as folder:
        for copy in ("hierarchical", "none"):
            model_file, start = str(Path(folder) / copy), time.time()
            train(task, model_file, copy=copy, num_epochs=epochs, seed=seed)
            agent = create_agent_from_model_file(model_file)
            shares[copy] = share_right(agent, task)
            print(f"{task} seed {seed} --copy {copy}: {shares[copy]:.3f} right, ", end="")
            print(f"{time.time() - start:.0f} s", flush=True)
            if copy == "hierarchical":
                agent.model.copy = None  # p_gen = 1: the decoder's own distribution alone
                shares["p_gen=1"] = share_right(agent, task)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--language", choices=tuple(TASKS), action="append")
    args = parser.parse_args()
    targets = {"hierarchical": ">= 0.9", "none": "<= 0.2", "p_gen=1": "<= 0.1"}
    results = []
    for language in args.language or tuple(TASKS):
        runs = [run(language, seed, args.epochs) for seed in range(1, args.seeds + 1)]
        for variant, target in targets.items():
            values = [shares[variant] for shares in runs]
            print(f"{TASKS[language]} {variant}: mean {statistics.mean(values):.3f}, {values}")
            results.append(result(f"right {language} {variant}", statistics.mean(values), target))
    print_results(results)


if __name__ == "__main__":
    main()
