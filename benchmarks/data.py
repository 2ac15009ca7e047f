"""
How fast are the data? First build and later starts of CPC's tasks on a corpus of its size.

Makes 23,000 dialogues of CPC's shape (about 350,000 pairs) from words that are drawn from jieba's
dictionary by their frequency, three in ten turns with a word of the speaker's persona. Then it
measures in new processes: the first build of `-t cpc`, filter included; later starts, up to the
first sample, of that and of `-t cpc:raw`, which keeps all pairs; and the number of examples alone.
Beside the seconds of the task it prints those of the whole process, imports included, and its
greatest memory.

    python benchmarks/data.py [--dialogues N] [--folder FOLDER]
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from itertools import accumulate
from pathlib import Path

from benchmarks.common import print_results, result

ROOT = Path(__file__).resolve().parent.parent
CHILD = """
import json, resource, sys, time
import persona_agents
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname
datapath, task, what = sys.argv[1:]
opt = ParlaiParser(True, False).parse_kwargs(task=task, datatype="train", datapath=datapath)
begin = time.perf_counter()
teacher = create_task_agent_from_taskname(opt)[0]
count = teacher.num_examples()
if what == "samples":
    teacher.act()
seconds = time.perf_counter() - begin
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # GiB, from KiB
print(json.dumps({"seconds": seconds, "gib": memory, "pairs": count}))
"""


class Words:
    """Sentences of words of jieba's dictionary, by frequency, about as long as CPC's."""

    def __init__(self, rng: random.Random):
        import jieba

        with open(
            os.path.join(os.path.dirname(jieba.__file__), "dict.txt"), encoding="utf-8"
        ) as file:
            entries = [line.split() for line in file]
        self.words = [word for word, *_ in entries]
        self.weights = list(accumulate(int(count) for _, count, *_ in entries))
        self.rng = rng

    def sentence(self, words: int, end: str) -> str:
        """Words with spaces between and a comma now and then."""
        chosen = self.rng.choices(self.words, cum_weights=self.weights, k=words)
        for place in range(5, words - 1, 6):
            chosen[place] = "，"
        return " ".join([*chosen, end]) if end else " ".join(chosen)


def write_corpus(folder: Path, dialogues: int) -> None:
    """Write Persona_train.json and Persona_dev.json (a fifteenth as many dialogues)."""
    rng = random.Random(0)
    words = Words(rng)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", dialogues), ("dev", max(1, dialogues // 15))):
        with open(folder / f"Persona_{name}.json", "w", encoding="utf-8") as file:
            for _ in range(count):
                personas = [
                    [words.sentence(rng.randint(3, 8), "") for _ in range(rng.randint(3, 5))]
                    for _ in range(2)
                ]
                turns = []
                for number in range(rng.randint(15, 18)):
                    text = words.sentence(rng.randint(4, 20), rng.choice("。？"))
                    if rng.random() < 0.3:
                        text = rng.choice(rng.choice(personas[number % 2]).split()) + " " + text
                    turns.append(f"p{1 + number % 2} : {text}")
                raw = {"p1_persona": personas[0], "p2_persona": personas[1], "conversation": turns}
                file.write(json.dumps(raw, ensure_ascii=False) + "\n")


def start(datapath: Path, task: str, what: str = "samples") -> dict:
    """A new process that makes the teacher; its report and (`process`) all its seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(datapath), task, what],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[1])
    parser.add_argument("--dialogues", type=int, default=23_000)
    parser.add_argument("--folder", default=None, help="where to work; a temporary one by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        datapath = Path(temporary)
        write_corpus(datapath / "CPC", options.dialogues)
        size = (datapath / "CPC" / "Persona_train.json").stat().st_size / 2**20
        runs = {
            "cpc, first build": start(datapath, "cpc"),
            "cpc, later start": start(datapath, "cpc"),
            "cpc:raw, first build": start(datapath, "cpc:raw"),
            "cpc:raw, later start": start(datapath, "cpc:raw"),
            "cpc:raw, number of examples alone": start(datapath, "cpc:raw", "count"),
        }
    print(f"{options.dialogues:,} dialogues, {size:.0f} MiB")
    for name, run in runs.items():
        print(
            f"{name:<34} {run['seconds']:7.2f} s (whole process {run['process']:.2f} s), "
            f"{run['gib']:.2f} GiB, {run['pairs']:,} pairs"
        )
    later, count = runs["cpc:raw, later start"], runs["cpc:raw, number of examples alone"]
    print_results(
        [
            result("data: first build, s", runs["cpc, first build"]["seconds"], "<= 90"),
            result("data: later start, s", later["seconds"], "<= 5"),
            result("data: memory of a later start, GiB", later["gib"], "<= 1.5"),
            result("data: counting / later start", count["seconds"] / later["seconds"], "<= 0.2"),
        ]
    )


if __name__ == "__main__":
    main()
