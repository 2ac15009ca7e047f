"""
What do the metrics cost? All five of them against bert-score and a P-EM that keeps nothing.

Scores the valid and test samples of Persona-Chat, shuffled gold replies against gold, and prints
the time of `persona_agents.metrics` and that of the plain way: one call of bert-score's scorer, and
a batched P-EM that embeds each pair of reply and persona sentence anew. Same model, same batch size,
models loaded beforehand, runs in turn. With a model file it tells the time of generating the
replies as well.

    PERSONA_AGENTS_DATA=… python benchmarks/metrics.py --bert-model FOLDER [--model-file MODEL]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file
    sys.path[0] += "/.."

import argparse
import contextlib
import io
import os
import random
import statistics
import time
from pathlib import Path

import torch
from bert_score import BERTScorer
from parlai.core.agents import create_agent_from_model_file
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname

from benchmarks.common import print_results, replies, result
from persona_agents.metrics import Reply, Settings, score
from persona_agents.metrics.encoder import BATCH_SIZE, encoder_for
from persona_agents.metrics.tokens import basic, words


def task_samples(task: str, datatypes=("valid", "test"), **options) -> list:
    """Samples (persona, query, response) of one of this package's tasks."""
    found = []
    for datatype in datatypes:
        parser = ParlaiParser(True, False)
        opt = parser.parse_kwargs(task=task, datatype=datatype, loglevel="warn", **options)
        (teacher,) = create_task_agent_from_taskname(opt)
        found += list(teacher.samples)
    return found


def persona_chat(datatypes=("valid", "test")) -> list:
    """Real Persona-Chat samples from $PERSONA_AGENTS_DATA, else the bundled ones."""
    data = os.environ.get("PERSONA_AGENTS_DATA")
    if not data:
        print("PERSONA_AGENTS_DATA names no folder: the bundled corpus is taken.")
        return task_samples("personachat_single_turn:mini", datatypes)
    path = str(Path(data) / "personachat")
    return task_samples("personachat_single_turn", datatypes, personachat_path=path)


def shuffled(samples: list) -> list[str]:
    """The gold replies in another order."""
    texts = [sample.response for sample in samples]
    random.Random(1).shuffle(texts)
    return texts


class Plain:
    """bert-score and P-EM without anything kept from one text to the next."""

    def __init__(self, model: str, layer: int):
        from transformers import AutoModel, AutoTokenizer

        self.scorer = BERTScorer(model_type=model, num_layers=layer, device="cpu")
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.model = AutoModel.from_pretrained(model).eval()

    def bert_score(self, texts: list[str], samples: list) -> None:
        """One call for all samples."""
        gold = [sample.response for sample in samples]
        with contextlib.redirect_stderr(io.StringIO()):
            self.scorer.score(texts, gold, batch_size=BATCH_SIZE)

    @torch.no_grad()
    def embed(self, texts: list[str]) -> torch.Tensor:
        """Means over the last layer's word pieces, (texts, d)."""
        inputs = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        states = self.model(**inputs).last_hidden_state  # (B, T, d)
        ids = inputs["input_ids"]
        special = torch.tensor([self.tokenizer.cls_token_id, self.tokenizer.sep_token_id])
        pieces = inputs["attention_mask"].bool() & ~torch.isin(ids, special)
        weights = pieces.unsqueeze(-1).float()  # (B, T, 1)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)

    def p_em(self, texts: list[str], samples: list) -> float:
        """Each pair of reply and persona sentence in batches, like lengths together."""
        pairs = [
            (i, text, sentence)
            for i, (text, sample) in enumerate(zip(texts, samples))
            for sentence in sample.persona
        ]
        pairs.sort(key=lambda pair: len(pair[1]) + len(pair[2]))
        best = [-1.0] * len(texts)
        for begin in range(0, len(pairs), BATCH_SIZE):
            rows, said, sentences = zip(*pairs[begin : begin + BATCH_SIZE])
            cosines = torch.cosine_similarity(self.embed(list(said)), self.embed(list(sentences)))
            for row, cosine in zip(rows, cosines.tolist()):
                best[row] = max(best[row], cosine)
        return statistics.mean(best)

    def p_em_by_sample(self, texts: list[str], samples: list) -> None:
        """A more thrifty one: each reply is embedded once, its persona anew."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for begin in range(0, len(order), BATCH_SIZE):
            rows = order[begin : begin + BATCH_SIZE]
            self.embed([texts[i] for i in rows])
        sentences = sorted((s for sample in samples for s in sample.persona), key=len)
        for begin in range(0, len(sentences), BATCH_SIZE):
            self.embed(sentences[begin : begin + BATCH_SIZE])


def seconds(function, *arguments) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bert-model", required=True, help="folder or hub name of a BERT")
    parser.add_argument("--layer", type=int, default=5, help="bert_score's layer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model-file", default=None, help="a trained agent, to generate with")
    args = parser.parse_args()
    samples = persona_chat()
    texts = shuffled(samples)
    model = os.path.expanduser(args.bert_model)
    settings = Settings(
        bert_score_model=model,
        bert_score_layer=args.layer,
        bert_score_rescale=False,
        p_em_model=model,
    )
    plain = Plain(model, args.layer)
    encoder = encoder_for(model, "p_em_model", "cpu")

    def ours() -> dict:
        encoder.forget()
        basic.cache_clear()
        words.cache_clear()
        batch = [
            Reply(text, [sample.response], sample.persona, sample.query)
            for text, sample in zip(texts, samples)
        ]
        return score(batch, "persona", settings).values

    warm, agreed = ours(), plain.p_em(texts[:64], samples[:64])  # both sides once, unmeasured
    plain.bert_score(texts[:64], samples[:64])
    times: dict[str, list[float]] = {}
    for number in range(args.rounds):
        runs = [
            ("ours", ours),
            ("bert_score", lambda: plain.bert_score(texts, samples)),
            ("p_em", lambda: plain.p_em(texts, samples)),
            ("p_em_by_sample", lambda: plain.p_em_by_sample(texts, samples)),
        ]
        for name, run in runs if number % 2 == 0 else reversed(runs):
            times.setdefault(name, []).append(seconds(run))
        last = ", ".join(f"{name} {found[-1]:.2f} s" for name, found in times.items())
        print(f"round {number + 1}: {last}", flush=True)
    medians = {name: statistics.median(found) for name, found in times.items()}
    whole = medians["bert_score"] + medians["p_em"]
    thrifty = medians["bert_score"] + medians["p_em_by_sample"]
    print(f"{len(samples)} samples, {args.rounds} rounds, medians; p_em {warm['p_em']:.4f}")
    print(f"all five metrics, persona_agents      {medians['ours']:8.2f} s")
    print(f"bert_score.score()                    {medians['bert_score']:8.2f} s")
    print(f"P-EM, each pair anew                  {medians['p_em']:8.2f} s")
    print(f"P-EM, each reply once, personas anew  {medians['p_em_by_sample']:8.2f} s")
    assert 0 < agreed < 1
    if args.model_file:
        agent = create_agent_from_model_file(args.model_file, {"datatype": "valid"})
        taken = seconds(replies, agent, samples)
        print(f"generating the replies, batch 32      {taken:8.2f} s")
        print(f"scoring, as a share of it             {medians['ours'] / taken:8.2f}")
    print_results(
        [
            result("time of all metrics / bert_score and P-EM", medians["ours"] / whole, "<= 0.7"),
            result("the same, P-EM with each reply once", medians["ours"] / thrifty, "<= 0.7"),
        ]
    )


if __name__ == "__main__":
    main()
