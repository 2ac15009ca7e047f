"""
Does the shown source tell the truth? Entities of replies traced to where persona or query say them.

Trains HCM on each mini corpus as `benchmarks/copy.py` does, lets it answer the test split and takes
the right replies. No entity of the test split occurs in training, so the model can have each only
from its input, and each stands in one persona sentence or in the query. A case counts when every
token of the entity has most of its probability from that sentence. Prints the shares, for entities
of the persona and of the query.

    python benchmarks/provenance.py [--language zh|en] [--epochs N] [--model-file FILE]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import tempfile
from pathlib import Path

from parlai.core.agents import create_agent_from_model_file
from persona_agents.tasks.mini import asked_entity, entities, is_right

from benchmarks.common import acts, print_results, result, samples
from benchmarks.copy import TASKS, train


def source_of(entity: str, sample) -> tuple[str, int]:
    """Where the input says an entity: ("persona", sentence) or ("query", 0)."""
    for number, sentence in enumerate(sample.persona):
        if entity in entities(sentence):
            return "persona", number
    return "query", 0


def is_traced(reply: str, provenance: dict, entity: str, part: str, sentence: int) -> bool:
    """Whether each token of the entity comes mostly from that sentence."""
    begin = reply.index(entity)
    for token in provenance["tokens"]:
        if token["end"] <= begin or token["start"] >= begin + len(entity) or not token["text"]:
            continue
        mass = sum(
            source["probability"]
            for source in token["sources"]
            if (source["from"], source["sentence"]) == (part, sentence)
        )
        if mass <= 0.5 * token["probability"]:
            return False
    return True


def shares_traced(agent, task: str) -> dict[str, list[bool]]:
    """For each right reply on the test split, whether its entity is traced, by part."""
    agent.opt["provenance"] = True
    traced = {"persona": [], "query": []}
    test = samples(agent, task, "test")
    for sample, act in zip(test, acts(agent, test)):
        if not is_right(act["text"], sample.response, sample.persona, sample.query):
            continue
        entity = asked_entity(sample.response, sample.persona, sample.query)
        part, sentence = source_of(entity, sample)
        traced[part].append(is_traced(act["text"], act["provenance"], entity, part, sentence))
    return traced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--language", choices=tuple(TASKS), action="append")
    parser.add_argument("--model-file", help="a trained model, for one --language")
    args = parser.parse_args()
    if args.model_file and len(args.language or ()) != 1:
        parser.error("--model-file needs one --language")
    results = []
    for language in args.language or tuple(TASKS):
        with tempfile.TemporaryDirectory() as folder:
            model_file = args.model_file or str(Path(folder) / "model")
            if not args.model_file:
                train(TASKS[language], model_file, num_epochs=args.epochs, seed=1)
            traced = shares_traced(create_agent_from_model_file(model_file), TASKS[language])
        for part, cases in traced.items():
            share = sum(cases) / len(cases)
            print(f"{TASKS[language]} {part}: {sum(cases)} of {len(cases)} traced, {share:.3f}")
            if part == "persona":
                results.append(result(f"traced {language}", share, ">= 0.95"))
    print_results(results)


if __name__ == "__main__":
    main()
