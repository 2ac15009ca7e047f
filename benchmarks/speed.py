"""
How fast HCM trains and replies, beside named peers of the same size on the same machine.

Peers: transformers' EncoderDecoderModel (BERT2BERT), ParlAI's transformer/generator in ParlAI's own
search, and HCM written naively. All have random weights; replies get the lengths of the data's
replies, so that every system writes equally much. Replies are to the held-out part of the Chinese corpus in
$PERSONA_AGENTS_DATA/cpc, unfiltered, or the bundled one.

    python benchmarks/speed.py [--only train memory greedy beam bucketing start length]
    python benchmarks/speed.py --compare benchmarks/ratios.json   (make bench)
    python benchmarks/speed.py --store benchmarks/ratios.json

The second compares with ratios that were stored by the third, and ends with an error if one got
worse by more than a tenth. `gpu.py` runs the same parts on a GPU.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import datetime
import json
import os
import platform
import statistics
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
MARGIN = 0.1  # by which a ratio may get worse before it counts
START = """
import sys, time
from parlai.core.script import setup_script_registry
sys.modules["parlai_internal"] = None
setup_script_registry()
del sys.modules["parlai_internal"]
begin = time.perf_counter()
setup_script_registry()
print(1000 * (time.perf_counter() - begin))
"""


def autocast(args):
    """The precision that is asked for, as a context."""
    precision = getattr(torch, args.precision)
    return torch.autocast(args.device, precision, enabled=precision != torch.float32)


def loss_of(model, ids, ys):
    if isinstance(model, transformers.EncoderDecoderModel):
        return model(input_ids=ids, attention_mask=ids.ne(peers.SPECIAL.pad), labels=ys).loss
    log_prob, *_ = model(ids, ys)
    return -log_prob.mean()


def training_step(args, model, ids, ys):
    """A call that takes one step of AdamW, by one kernel: what the agents train with on a CPU."""
    model.to(args.device).train()
    ids, ys = ids.to(args.device), ys.to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)

    def step():
        optimizer.zero_grad()
        with autocast(args):
            loss = loss_of(model, ids, ys)
        loss.backward()
        optimizer.step()

    return step


def train(args, folder) -> list[dict]:
    """Time of a training step: batch 16, source 64, target 20."""
    batch = peers.batch(args.size, 16, 64, 20)
    models = {"HCM": peers.hcm(args.size), "BERT2BERT": peers.bert2bert(args.size)}
    times = peers.compare(
        {name: training_step(args, model, *batch) for name, model in models.items()}, args.repeats
    )
    show("training step", times)
    return [result("train_step/bert2bert", times["HCM"] / times["BERT2BERT"], "<= 1.0")]


NAIVE = {"HCM": peers.HCM, "NaiveHCM": peers.NaiveHCM}
# glibc then gives every tensor of this size back to the system, whose figures are else those of
# its habits: measured so, a step's memory is the same in each run
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072"}


def memory(args, folder) -> list[dict]:
    """Memory that a step needs beside weights, gradients and optimiser, in a process for each."""
    peaks = {}
    for kind in NAIVE:
        command = [sys.executable, __file__, "--memory-of", kind, "--threads", str(args.threads)]
        command += ["--device", args.device, "--precision", args.precision, "--size", args.sized]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **GIVE_BACK}
        )
        peaks[kind] = int(done.stdout.split()[-1])
        print(f"memory of a training step, {kind}: {peaks[kind] / 2**20:.0f} MiB")
    return [result("train_memory/naive", peaks["HCM"] / peaks["NaiveHCM"], "<= 0.6")]


def memory_of(args) -> int:
    """Bytes by which one training step raises this process's memory at its peak (Linux)."""
    model = peers.hcm(args.size, NAIVE[args.memory_of])
    step = training_step(args, model, *peers.batch(args.size, 16, 64, 20))
    step()  # gradients and the optimiser's state exist from now on
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before

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


def replying(args, agent, found, search=None):
    """A call that replies to the batches; by ParlAI's own search if ``search`` is it."""
    agent.model = peers.Ending(agent.model, agent.END_IDX)
    agent.model.eval()
    search = search or type(agent)._generate

    def reply():
        with torch.no_grad(), autocast(args):
            for one in found:
                best, _ = search(agent, one, agent.beam_size, agent.label_truncate)
        lengths = found[-1].label_vec.ne(agent.NULL_IDX).sum(dim=1)
        assert [len(words) - 1 for words, *_ in best] == lengths.tolist()

    return reply


def generating(args, model, found, pad: int):
    """A call in which transformers' generate replies greedily, with its cache."""
    model.to(args.device).eval()

    def reply():
        with torch.no_grad(), autocast(args):
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
    """Greedy replies to real queries, in batches of 32."""
    hcm, transformer = peers.agent("hcm", args, folder), peers.transformer(args, folder)
    batches = peers.batches(hcm, 64, 32)
    calls = {
        "HCM": replying(args, hcm, batches),
        "BERT2BERT": generating(args, peers.bert2bert(args.size), batches, hcm.NULL_IDX),
        "ParlAI Transformer": replying(
            args, transformer, peers.batches(transformer, 64, 32), TorchGeneratorAgent._generate
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
    hcm = peers.agent("hcm", args, folder, **settings)
    transformer = peers.transformer(args, folder, **settings)
    calls = {
        "HCM": replying(args, hcm, peers.batches(hcm, 32, 16)),
        "ParlAI Transformer": replying(
            args, transformer, peers.batches(transformer, 32, 16), TorchGeneratorAgent._generate
        ),
    }
    times = peers.compare(calls, args.repeats)
    show("beam 5, 32 replies", times)
    return [result("beam/parlai", times["ParlAI Transformer"] / times["HCM"], ">= 1.2")]


def bucketing(args, folder) -> list[dict]:
    """Training on batches as they come, and on batches of samples of about the same length."""
    worlds = {}
    for name, wanted in (("bucketed", True), ("as they come", False)):
        agent = peers.agent("hcm", args, folder, bucket_by_length=wanted, batchsize=16, seed=1)
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
    """
    What the plug-in adds to the start of `parlai`, of some seconds that vary by more than that.

    So only the addition is timed, in new processes that have imported all that ParlAI itself needs.
    """
    found = []
    for _ in range(max(9, args.repeats)):
        command = [sys.executable, "-c", START]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        found.append(float(done.stdout.split()[-1]))
    print(f"parlai's start: {min(found):.0f} to {max(found):.0f} ms more with the plug-in")
    return [result("start_ms", statistics.median(found), "<= 50")]


def length(args, folder) -> list[dict]:
    """Cost against length of source and target: batch 16, medians of 3."""
    model = peers.hcm(args.size)
    for source in (64, 128, 256, 512):
        step = training_step(args, model, *peers.batch(args.size, 16, source, 20))
        print(f"training step, source {source:3}: {peers.compare({'HCM': step}, 3)['HCM']:.3f} s")
    for target in (20, 60, 120):
        step = training_step(args, model, *peers.batch(args.size, 16, 64, target))
        print(f"training step, target {target:3}: {peers.compare({'HCM': step}, 3)['HCM']:.3f} s")
    decoding = {}
    model.eval()
    for target in (20, 60, 120):
        ids = peers.batch(args.size, 16, 64, target)[0].to(args.device)

        def decode(ids=ids, target=target):
            with torch.no_grad(), autocast(args):
                encoded, cache = model.encoder(ids), None
                words = ids[:, :1]
                for _ in range(target):
                    scores, cache = model.decoder(words, encoded, cache)
                    words = torch.cat((words, scores[:, -1].argmax(dim=-1, keepdim=True)), dim=1)

        decoding[target] = peers.compare({"HCM": decode}, 3)["HCM"]
        print(f"decoding {target:3} words: {decoding[target]:.3f} s")
    return [result("decode_120/6x20", decoding[120] / (6 * decoding[20]), "<= 1.3")]


def compiled(args, folder) -> list[dict]:
    """What torch.compile gives a training step of one shape (real batches have many)."""
    batch = peers.batch(args.size, 16, 64, 20)
    models = {"compiled": torch.compile(peers.hcm(args.size)), "plain": peers.hcm(args.size)}
    times = peers.compare(
        {name: training_step(args, model, *batch) for name, model in models.items()}, args.repeats
    )
    show("training step", times)
    return [result("compiled/plain", times["plain"] / times["compiled"], ">= 1.1")]


def show(what: str, times: dict) -> None:
    print(what + ": " + ", ".join(f"{name} {time:.3f} s" for name, time in times.items()))


STANDARD = (train, memory, greedy, beam, bucketing, start, length)
PARTS = {part.__name__: part for part in (*STANDARD, compiled)}


MUST_AGREE = ("data", "threads", "size", "precision", "device")


def stored_ratios(path: Path, now: dict) -> dict[str, float]:
    """The ratios in a file; ends the program if they were not measured as they are ``now``."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    for name in MUST_AGREE:
        if stored["with"][name] != now[name]:
            sys.exit(f"{path} was measured with {name} {stored['with'][name]}, not {now[name]}.")
    return stored["ratios"]


def worse_than(stored: dict[str, float], results: list[dict]) -> list[str]:
    """What got worse than the stored ratios, a line each."""
    worse = []
    for found in results:
        name, value, before = found["name"], found["value"], stored.get(found["name"])
        if before is None or name.endswith("_ms"):
            # no ratio to compare with, or a small difference of large times: the bound counts
            if not found["ok"]:
                worse.append(f"{name}: {value} now, wanted {found['target']}")
            continue
        loss = value / before if found["target"].startswith("<=") else before / value
        if loss > 1 + MARGIN:
            worse.append(f"{name}: {value} now, {before} stored (wanted {found['target']})")
    return worse


def versions(args) -> dict:
    """What the figures depend on."""
    return {
        "date": str(datetime.date.today()),
        "persona_agents": persona_agents.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "parlai": parlai.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.machine(),
        "precision": args.precision,
        "threads": args.threads,
        "size": args.size._asdict(),
        "data": peers.task()["task"],
    }


def run(args) -> list[dict]:
    """The parts that ``args.only`` names, each with its printed lines."""
    torch.manual_seed(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            results += PARTS[name](args, folder)
    return results


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=[part.__name__ for part in STANDARD]
    )
    parser.add_argument("--repeats", type=int, default=5, help="of each side, in turns")
    parser.add_argument("--steps", type=int, default=12, help="batches of a round of bucketing")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--size", choices=peers.SIZES, default="small", dest="sized")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="say what got worse")
    parser.add_argument("--store", type=Path, metavar="FILE", help="keep the ratios")
    parser.add_argument("--memory-of", choices=NAIVE, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.size = peers.SIZES[args.sized]
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    return args


def main() -> None:
    args = parse()
    if args.memory_of:
        print(memory_of(args))
        return
    now = versions(args)
    print(json.dumps(now))
    if args.compare:
        before = stored_ratios(args.compare, now)
    if args.store:
        kept = stored_ratios(args.store, now) if args.store.exists() else {}
    results = run(args)
    print_results(results)
    if args.store:
        ratios = {**kept, **{found["name"]: found["value"] for found in results}}
        text = json.dumps({"with": now, "ratios": ratios}, indent=1)
        args.store.write_text(text + "\n", encoding="utf-8")
    if args.compare:
        worse = worse_than(before, results)
        sys.exit("Slower than before:\n" + "\n".join(worse) if worse else None)


if __name__ == "__main__":
    main()
