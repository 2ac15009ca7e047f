"""
The speed table on a GPU, at the size of BERT-base with random weights, in float32 and bfloat16.

    python benchmarks/gpu.py [--results-file benchmarks/RESULTS.md]

measures the parts of `speed.py` that a device matters to, and the largest batch of training (source
64, target 20) that fits into memory; after eight minutes it begins nothing more. Ratios are printed as
Markdown and appended to the file, with date, device and versions; times are only printed.
``--device cpu --size small --largest 16 --repeats 1`` tries the script where there is no GPU.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import time
from pathlib import Path

import torch

from benchmarks import peers, speed

PARTS = ("train", "memory", "greedy", "beam", "length")
LIMIT = 8 * 60  # seconds; what has not begun by then is left out and named


def largest_batch(args, most: int, begin: float) -> int:
    """The largest batch, in steps of a tenth or so, whose training fits; at most ``most``."""
    model, fits, size = peers.hcm(args.size), 0, 16
    growth = 2.0
    while size <= most and time.monotonic() - begin < LIMIT:
        try:
            step = speed.training_step(args, model, *peers.batch(args.size, size, 64, 20))
            step()
            step()  # from now on with the optimiser's state
        except torch.cuda.OutOfMemoryError:
            if growth < 1.2 or not fits:
                break
            growth = 1.1  # from the last that fitted, in small steps
            size = fits
        else:
            fits = size
        finally:
            model.zero_grad(set_to_none=True)
            if args.device == "cuda":
                torch.cuda.empty_cache()
        size = int(size * growth)
    return fits


def measure(settings, begin: float) -> list[str]:
    """Lines of Markdown for one precision."""
    lines = ["| what | value | target | |", "|---|---|---|---|"]
    for part in PARTS:
        if time.monotonic() - begin > LIMIT:
            lines.append(f"| {part} | left out: {LIMIT // 60} minutes are over | | |")
            continue
        settings.only = [part]
        lines += [
            f"| {one['name']} | {one['value']} | {one['target']} | {'' if one['ok'] else 'missed'} |"
            for one in speed.run(settings)
        ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--size", choices=peers.SIZES, default="base")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=8192, help="batch at which to stop")
    parser.add_argument("--results-file", type=Path, help="Markdown file to append the figures to")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no GPU here. --device cpu --size small tries the script without one.")
    begin, report = time.monotonic(), []
    for precision in ("float32", "bfloat16"):
        settings = speed.parse(
            f"--device {args.device} --size {args.size} --precision {precision} "
            f"--repeats {args.repeats}".split()
        )
        found = speed.versions(settings)
        if not report:
            report.append(f"## {found['date']}, {found['device']}")
        report.append(", ".join(f"{name} {value}" for name, value in found.items()))
        lines = measure(settings, begin)
        batch = largest_batch(settings, args.largest, begin)
        lines.append(f"| largest training batch (at most {args.largest} tried) | {batch} | | |")
        report.append("\n".join(lines))
    text = "\n\n".join(report) + "\n"
    print(text)
    if args.results_file:
        with args.results_file.open("a", encoding="utf-8") as file:
            file.write("\n" + text)


if __name__ == "__main__":
    main()
