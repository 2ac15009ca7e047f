"""
What decoding in a chosen vocabulary costs, against the same network on its full vocabulary.

|V| = 30,000 with 500 function words, |T| = 1,500, hidden size 1024, embeddings of 620, inputs of 15
words, replies of 10, 15 and 20 words; encoder, T's construction and search included. Both sides are
one agent with one set of (random) weights; no reply ends early. One thread; processor time is
taken, which a busy machine disturbs less than the clock; medians of alternating runs.

In a batch the cost depends on how much the inputs' vocabularies have in common. The predictor here
has the frequencies of Zipf's law, and its logits differ between inputs by a standard deviation of
--spread; ``--spread inf`` is the worst case, vocabularies that have nothing to do with each other.

    python benchmarks/dvs2s_decode.py [--picture-file curve.png]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import math
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

import torch
from parlai.core.agents import create_agent
from parlai.core.torch_agent import Batch
from parlai.scripts.eval_model import setup_args

from benchmarks.common import print_results, result
from persona_agents.models.dvs2s import DVS2S

V, F, K = 30000, 500, 1000
LENGTHS = (10, 15, 20)
SOURCE = 15
PARTS = ("single", "batch", "curve")
CURVE = (250, 500, 1000, 2000, 4000, 8000, 16000)


def write_dictionary(path: str) -> None:
    """A dictionary of made-up words, of which the first ones are function words."""
    special = ["__null__", "__start__", "__end__", "__unk__"]
    words = [f"w{i}" for i in range(V - len(special))]
    counts = [max(1, 3_000_000 // (rank + 10)) for rank in range(len(words))]
    kinds = ["function" if i + len(special) < F else "content" for i in range(len(words))]
    lines = (f"{word}\t{count}\n" for word, count in zip(special + words, [10**9] * 4 + counts))
    Path(path).write_text("".join(lines), encoding="utf-8")
    lines = (f"{w}\t{kind}\tx\t{n}\t{n}\n" for w, kind, n in zip(words, kinds, counts))
    Path(f"{path}.words").write_text("3000000\n" + "".join(lines), encoding="utf-8")


def new_agent(spread: float):
    """The agent, with a predictor whose logits differ by ``spread`` between inputs."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "dict")
        write_dictionary(path)
        DVS2S.start_predictor = lambda *_: None  # it is drawn below
        agent = create_agent(
            setup_args().parse_kwargs(
                model="persona_agents:dvs2s",
                task="cpc:mini",
                dict_file=path,
                loglevel="error",
                dvs_top_k=K,
            )
        )
    model = agent.module.eval()
    with torch.no_grad():
        for token in (agent.END_IDX, agent.NULL_IDX, agent.START_IDX):
            model.projection.bias[token] = -1e4  # every reply has its full length
        some = model.encoder(torch.randint(4, V, (64, SOURCE))).summary
        scale = (some - some.mean(dim=0)).norm(dim=1).mean()
        torch.nn.init.normal_(model.predictor.weight, std=min(spread, 1.0) / scale)
        shares = agent.dict.reply_shares().clamp(1e-6, 0.5)
        model.predictor.bias.copy_(torch.logit(shares) * math.isfinite(spread))
    return agent


def decode(agent, batch, top_k: int, beams: int, length: int) -> None:
    agent.opt["dvs_top_k"], agent.beam_size = top_k, beams
    agent.opt["beam_size"], agent.opt["inference"] = beams, "beam" if beams > 1 else "greedy"
    with torch.no_grad():
        agent._generate(batch, beams, length)


def new_batch(size: int) -> Batch:
    return Batch(batchsize=size, text_vec=torch.randint(4, V, (size, SOURCE)))


def seconds(agent, batch, top_k: int, beams: int, lengths) -> float:
    """Mean over the lengths."""
    begin = time.process_time()
    for length in lengths:
        decode(agent, batch, top_k, beams, length)
    return (time.process_time() - begin) / len(lengths)


def compare(agent, size: int, beams: int, top_k: int = K, lengths=LENGTHS, runs: int = 5):
    """(seconds in T, seconds on the full vocabulary), for a batch and the mean of the lengths."""
    taken = {top_k: [], V: []}
    for _ in range(runs + 1):
        batch = new_batch(size)
        for k, times in taken.items():
            times.append(seconds(agent, batch, k, beams, lengths))
    own, full = (statistics.median(times[1:]) for times in taken.values())  # the first warms up
    return own, full


def curve(agent, size: int, runs: int = 3) -> list[tuple[int, float]]:
    """(K, time / time on the full vocabulary) for greedy replies of 15 words."""
    batch, times = new_batch(size), {k: [] for k in (*CURVE, V)}
    for _ in range(runs):
        for k, taken in times.items():
            taken.append(seconds(agent, batch, k, 1, (15,)))
    full = min(times[V])
    return [(k, min(times[k]) / full) for k in CURVE]


def peak(agent, size: int, beams: int, top_k: int) -> float:
    """MiB that decoding a batch needs beyond the model, in a process of its own."""
    batch, (read, write) = new_batch(size), os.pipe()
    if os.fork() == 0:
        before = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        before *= os.sysconf("SC_PAGE_SIZE") / 1024
        decode(agent, batch, top_k, beams, 5)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(write, str(used / 1024).encode())
        os._exit(0)
    os.wait()
    return float(os.read(read, 100))


def union_size(agent, size: int) -> int:
    with torch.no_grad():
        encoded = agent.module.encoder(new_batch(size).text_vec)
        return agent.module.choose(encoded, K, path="union").words.size(1)


def draw(curves: dict, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for name, points in curves.items():
        axes.plot([F + k for k, _ in points], [ratio for _, ratio in points], "o-", label=name)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(xlabel="|T|", ylabel="time / full vocabulary", xscale="log", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--picture-file", default=None)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    args = parser.parse_args()
    torch.set_num_threads(1)
    agent, results = new_agent(args.spread), []
    common = union_size(agent, 32)
    print(f"predictor's logits differ between inputs by {args.spread:g}; the content words of 32 ")
    print(f"inputs, {K} each, are {common} different ones\n")
    print("                      in T   full   ratio   MiB in T   MiB full")

    def line(name, size, beams, target=None, **settings):
        own, full = compare(agent, size, beams, **settings)
        memory = [peak(agent, size, beams, k) for k in (K, V)]
        print(f"{name:20} {own:6.3f} {full:6.3f} {own / full:7.3f}", end=" ")
        print(f"{memory[0]:10.0f} {memory[1]:10.0f}", flush=True)
        if target:
            results.append(result(name, own / full, target))

    if "single" in args.parts:
        line("batch 1, greedy", 1, 1, "<= 0.4")
        line("batch 1, beam 5", 1, 5, "<= 0.4")
        line("one word, batch 1", 1, 1, lengths=(1,), runs=9)
    if "batch" in args.parts:
        line("batch 32, greedy", 32, 1, "<= 0.6", runs=3)
        line("one word, batch 32", 32, 1, lengths=(1,), runs=3)
    if "curve" in args.parts:
        curves = {name: curve(agent, size) for name, size in (("batch 1", 1), ("batch 32", 32))}
        for name, points in curves.items():
            print(f"{name}, |T| -> ratio:", end=" ")
            print(", ".join(f"{F + k}: {ratio:.2f}" for k, ratio in points), flush=True)
        if args.picture_file:
            draw(curves, args.picture_file)
    print_results(results)


if __name__ == "__main__":
    main()
