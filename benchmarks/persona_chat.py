"""
Does it learn, and does it use the persona? HCM and ``--copy none`` on real Persona-Chat dialogues.

Trains from a BERT on the ``*_self_original.txt`` files in $PERSONA_AGENTS_DATA/personachat and
prints, on the valid split: perplexity, P-Cover over words and over word pieces, sample replies, and
what changes when every query is given another sample's persona.

    PERSONA_AGENTS_DATA=… python benchmarks/persona_chat.py --bert-model FOLDER [--copy none]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from parlai.core.agents import create_agent_from_model_file
from parlai.scripts.train_model import TrainModel

from benchmarks.common import perplexity, print_results, replies, result, samples
from persona_agents.metrics.persona import p_cover

TASK = "personachat_single_turn"


def swapped(inputs: list) -> list:
    """Each sample with the persona of another dialogue's sample, half the list away."""
    half = len(inputs) // 2
    others = inputs[half:] + inputs[:half]
    return [sample._replace(persona=other.persona) for sample, other in zip(inputs, others)]


def cover(texts: list[str], inputs: list, agent=None) -> float:
    """Mean P-Cover; over word pieces of the agent's dictionary if one is given."""

    def pieces(text):
        return " ".join(map(str, agent.dict.txt2vec(text))) if agent else text

    scores = [
        p_cover(pieces(text), [pieces(sentence) for sentence in sample.persona])
        for text, sample in zip(texts, inputs)
    ]
    return statistics.mean(score for score in scores if score is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bert-model", required=True)
    parser.add_argument("--copy", choices=("hierarchical", "flat", "none"), default="hierarchical")
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model-file", default=None, help="where the model is kept; default: not")
    args = parser.parse_args()
    data = os.environ.get("PERSONA_AGENTS_DATA")
    if not data:
        sys.exit("Set PERSONA_AGENTS_DATA to the folder that holds personachat/.")
    data = str(Path(data) / "personachat")

    with tempfile.TemporaryDirectory() as folder:
        model_file, start = args.model_file or str(Path(folder) / "model"), time.time()
        TrainModel.main(
            model="persona_agents:hcm",
            task=TASK,
            personachat_path=data,
            model_file=model_file,
            bert_model=args.bert_model,
            n_decoder_layers=3,
            learningrate=4e-4,
            pretrained_lr=5e-5,
            num_epochs=args.epochs,
            seed=args.seed,
            copy=args.copy,
            log_every_n_secs=60,
        )
        minutes = (time.time() - start) / 60
        agent = create_agent_from_model_file(model_file)
        valid = samples(agent, TASK, "valid")
        texts, others = replies(agent, valid), swapped(valid)
        other_texts = replies(agent, others)
        ppl, other_ppl = perplexity(agent, valid), perplexity(agent, others)
    changed = statistics.mean(a != b for a, b in zip(texts, other_texts))
    print(
        f"--copy {args.copy}: {args.epochs:g} epochs in {minutes:.0f} minutes; {len(valid)} samples"
    )
    print(f"perplexity {ppl:.2f}; with another persona {other_ppl:.2f}")
    print(
        f"P-Cover over words {cover(texts, valid):.4f}, over pieces {cover(texts, valid, agent):.4f}"
    )
    print(f"replies that change with another persona: {changed:.4f}")
    for i in (0, len(valid) // 3, 2 * len(valid) // 3):
        print(f"persona: {' '.join(valid[i].persona)}\nquery:   {valid[i].query}")
        print(f"reply:   {texts[i]}\nreply to another persona ({' '.join(others[i].persona)}):")
        print(f"         {other_texts[i]}")
    print_results(
        [
            result("perplexity with another persona / own", other_ppl / ppl, ">= 1.05"),
            result("share of replies changed", changed, ">= 0.5"),
        ]
    )


if __name__ == "__main__":
    main()
