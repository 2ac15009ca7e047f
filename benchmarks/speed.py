"""
How fast HCM trains and replies, beside named peers of the same size on the same machine.

Peers: transformers' EncoderDecoderModel (BERT2BERT), ParlAI's transformer/generator in ParlAI's own
search, and HCM written naively. All have random weights; replies get the lengths of the data's
replies, so that every system writes equally much. Uses the Chinese corpus in
$PERSONA_AGENTS_DATA/cpc, or the bundled one.

    python benchmarks/speed.py [--only train memory greedy beam bucketing start length]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import json
import platform
import subprocess
import tempfile
from pathlib import Path

import parlai
import torch
import transformers
from parlai.core.torch_generator_agent import TorchGeneratorAgent
from parlai.core.worlds import create_task
from transformers import LogitsProcessor, LogitsProcessorList

import persona_agents
from benchmarks import peers
from benchmarks.common import print_results, result

ROOT = Path(__file__).resolve().parent.parent
SIZE = peers.Size()
WITHOUT_PLUGIN = "import sys; sys.modules['parlai_internal'] = None; "
START = "import sys; sys.argv = ['parlai', 'help']; from parlai.__main__ import main; main()"


def training_step(model, ids, ys, naive_loss=None):
    """A call that takes one step of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    model.train()

    def step():
        optimizer.zero_grad()
        if isinstance(model, transformers.EncoderDecoderModel):
            loss = model(input_ids=ids, attention_mask=ids.ne(peers.SPECIAL.pad), labels=ys).loss
        else:
            log_prob, *_ = model(ids, ys)
            loss = -log_prob.mean()
        loss.backward()
        optimizer.step()

    return step


def train(args, folder) -> list[dict]:
    """Time of a training step: batch 16, source 64, target 20."""
    ids, ys = peers.batch(SIZE, 16, 64, 20)
    models = {"HCM": peers.hcm(SIZE), "BERT2BERT": peers.bert2bert(SIZE)}
    times = peers.compare(
        {name: training_step(model, ids, ys) for name, model in models.items()}, args.repeats
    )
    show("training step", times)
    return [result("train_step/bert2bert", times["HCM"] / times["BERT2BERT"], "<= 1.0")]


def memory(args, folder) -> list[dict]:
    """Memory that a training step needs beside weights and optimiser, each in its own process."""
    peaks = {}
    for kind in ("HCM", "NaiveHCM"):
        command = [sys.executable, __file__, "--memory-of", kind, "--threads", str(args.threads)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks[kind] = int(done.stdout.split()[-1])
        print(f"memory of a training step, {kind}: {peaks[kind] / 2**20:.0f} MiB")
    return [result("train_memory/naive", peaks["HCM"] / peaks["NaiveHCM"], "<= 0.6")]


def memory_of(kind: str) -> int:
    """Bytes by which one training step raises this process's memory at its peak (Linux)."""
    model = peers.hcm(SIZE, {"HCM": peers.HCM, "NaiveHCM": peers.NaiveHCM}[kind])
    step = training_step(model, *peers.batch(SIZE, 16, 64, 20))
    step()  # gradients and the optimiser's state exist from now on

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the earlier peak
    before = status("VmRSS")
    step()
    return status("VmHWM") - before


class EndProcessor(LogitsProcessor):
    """The counterpart of ``peers.Ending`` for transformers' generate."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        rows = len(scores) // len(self.lengths)
        lengths = self.lengths.repeat_interleave(rows)
        peers.set_end(scores, peers.SPECIAL.end, lengths.eq(input_ids.size(1) - 1))
        return scores


def replying(agent, found, search=None):
    """A call that replies to the batches; by ParlAI's own search if ``search`` is it."""
    agent.model = peers.Ending(agent.model, agent.END_IDX)
    agent.model.eval()
    search = search or type(agent)._generate

    def reply():
        with torch.no_grad():
            for one in found:
                best, _ = search(agent, one, agent.beam_size, agent.label_truncate)
        lengths = found[-1].label_vec.ne(agent.NULL_IDX).sum(dim=1)
        assert [len(words) - 1 for words, *_ in best] == lengths.tolist()

    return reply


def generating(model, found, pad: int):
    """A call in which transformers' generate replies greedily, with its cache."""
    model.eval()

    def reply():
        with torch.no_grad():
            for one in found:
                ids = one.text_vec
                lengths = one.label_vec.ne(pad).sum(dim=1) - 1
                words = model.generate(
                    ids,
                    attention_mask=ids.ne(pad).long(),
                    logits_processor=LogitsProcessorList([EndProcessor(lengths)]),
                    max_new_tokens=128,
                    num_beams=1,
                    do_sample=False,
                    use_cache=True,
                )
        assert words.size(1) == int(lengths.max()) + 2

    return reply


def greedy(args, folder) -> list[dict]:
    """Greedy replies to real test queries, in batches of 32."""
    hcm, transformer = peers.agent("hcm", SIZE, folder), peers.transformer(SIZE, folder)
    found = {"HCM": peers.batches(hcm, 64, 32), "Transformer": peers.batches(transformer, 64, 32)}
    calls = {
        "HCM": replying(hcm, found["HCM"]),
        "BERT2BERT": generating(peers.bert2bert(SIZE), found["HCM"], hcm.NULL_IDX),
        "ParlAI Transformer": replying(
            transformer, found["Transformer"], TorchGeneratorAgent._generate
        ),
    }
    times = peers.compare(calls, args.repeats)
    show("greedy, 64 replies", times)
    return [
        result("greedy/bert2bert", times["BERT2BERT"] / times["HCM"], ">= 1.5"),
        result("greedy/parlai", times["ParlAI Transformer"] / times["HCM"], ">= 1.5"),
    ]


def beam(args, folder) -> list[dict]:
    """Beam search with 5 beams, in batches of 16."""
    settings = {"inference": "beam", "beam_size": 5}
    hcm = peers.agent("hcm", SIZE, folder, **settings)
    transformer = peers.transformer(SIZE, folder, **settings)
    calls = {
        "HCM": replying(hcm, peers.batches(hcm, 32, 16)),
        "ParlAI Transformer": replying(
            transformer, peers.batches(transformer, 32, 16), TorchGeneratorAgent._generate
        ),
    }
    times = peers.compare(calls, args.repeats)
    show("beam 5, 32 replies", times)
    return [result("beam/parlai", times["ParlAI Transformer"] / times["HCM"], ">= 1.2")]


def bucketing(args, folder) -> list[dict]:
    """Training on batches as they come, and on batches of samples of about the same length."""
    worlds = {}
    for name, wanted in (("bucketed", True), ("as they come", False)):
        agent = peers.agent("hcm", SIZE, folder, bucket_by_length=wanted, batchsize=16, seed=1)
        worlds[name] = create_task(agent.opt, agent)

    def steps(world):
        def run():
            for _ in range(args.steps):
                world.parley()

        return run

    times = peers.compare({name: steps(world) for name, world in worlds.items()}, args.repeats)
    show(f"training, {args.steps} batches of 16", times)
    return [result("bucketing/plain", times["as they come"] / times["bucketed"], ">= 1.3")]


def start(args, folder) -> list[dict]:
    """Time until the `parlai` command has listed its sub-commands."""

    def run(code):
        command = [sys.executable, "-c", code]
        return lambda: subprocess.run(command, check=True, capture_output=True, cwd=ROOT)

    calls = {"with": run(START), "without": run(WITHOUT_PLUGIN + START)}
    times = peers.compare(calls, max(9, args.repeats))
    show("parlai help", times)
    return [result("start_ms", 1000 * (times["with"] - times["without"]), "<= 50")]


def length(args, folder) -> list[dict]:
    """Cost against length of source and target: batch 16, medians of 3."""
    model = peers.hcm(SIZE)
    for source in (64, 128, 256, 512):
        step = training_step(model, *peers.batch(SIZE, 16, source, 20))
        print(f"training step, source {source:3}: {peers.compare({'HCM': step}, 3)['HCM']:.2f} s")
    decoding = {}
    model.eval()
    for target in (20, 60, 120):
        ids, _ = peers.batch(SIZE, 16, 64, target)

        def decode(ids=ids, target=target):
            with torch.no_grad():
                encoded, cache = model.encoder(ids), None
                words = ids[:, :1]
                for _ in range(target):
                    scores, cache = model.decoder(words, encoded, cache)
                    words = torch.cat((words, scores[:, -1].argmax(dim=-1, keepdim=True)), dim=1)

        decoding[target] = peers.compare({"HCM": decode}, 3)["HCM"]
        print(f"decoding {target:3} words: {decoding[target]:.2f} s")
    return [result("decode_120/6x20", decoding[120] / (6 * decoding[20]), "<= 1.3")]


def show(what: str, times: dict) -> None:
    print(what + ": " + ", ".join(f"{name} {time:.3f} s" for name, time in times.items()))


PARTS = {part.__name__: part for part in (train, memory, greedy, beam, bucketing, start, length)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5, help="of each side, in turns")
    parser.add_argument("--steps", type=int, default=12, help="batches of a round of bucketing")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", choices=("HCM", "NaiveHCM"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    if args.memory_of:
        print(memory_of(args.memory_of))
        return
    transformers.logging.set_verbosity_error()
    versions = {
        "persona_agents": persona_agents.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "parlai": parlai.__version__,
        "python": platform.python_version(),
        "threads": args.threads,
        "data": peers.task()["task"],
    }
    print(json.dumps(versions))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            results += PARTS[name](args, folder)
    print_results(results)


if __name__ == "__main__":
    main()
