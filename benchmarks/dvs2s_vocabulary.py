"""
Is the vocabulary chosen? Recall of the gold reply's content words in T, on held-out real dialogues.

T (``--dvs joint`` and ``separate``) is compared with a static list of the same size: the function
words and the content words of most training replies. The data are those of $PERSONA_AGENTS_DATA
(personachat/ and cpc/), without it the bundled corpora. Each training is a command of its own, some
minutes of one core; the last command reads what they left in the folder:

    python benchmarks/dvs2s_vocabulary.py FOLDER --train en 1
    ... for en and zh, seeds 1, 2 and 3
    python benchmarks/dvs2s_vocabulary.py FOLDER [--picture-file curve.png]

English: 800 dialogues to train on, |T| = |V| / 10, tested on 150 dialogues: the 50 of the split
"test" and the last 100 of the training file, which are taken out of it (they may share personas
with others in it). Chinese: the public sample of 80 dialogues, tested on the 20 of "valid", since
its own test split has only four; there the best epoch was selected on the same dialogues.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file: this folder must not hide the standard library's `copy`
    sys.path[0] += "/.."

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path

import torch
from parlai.core.agents import create_agent_from_model_file
from parlai.scripts.build_dict import build_dict
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainModel, setup_args

from benchmarks.common import print_results, result, samples
from persona_agents.persona import format_turn
from persona_agents.words import WordDictionaryAgent

MODES, SEEDS = ("joint", "separate"), (1, 2, 3)
SETTINGS = {
    "embedding_size": 256,
    "hidden_size": 256,
    "dropout": 0.2,
    "batchsize": 32,
    "dict_minfreq": 2,
    "validation_every_n_epochs": 0.5,
    "skip_generation": True,
    "log_every_n_secs": 60,
    "eval_batchsize": 64,
}
HELD_OUT = 100  # dialogues of the English training file: the test split alone has only 50
EPOCHS = {"en": (1.0, 1.5), "zh": (3.0, 4.0)}  # of the first phase, and of both
# After the first phase. At 1.0 joint training undoes in 90 batches what the first phase has learned;
# when tried on "valid", 0.1 had perplexity 106 where 1.0 had 167, and recall 0.65 (0.54).
RATE = 0.1
FOLLOWED = ("ppl", "t_recall")
QUIET = {"loglevel": "warn", "batchsize": 64}


def hold_out(source: Path, target: Path) -> None:
    """Write Persona-Chat with the last dialogues of its training file moved to its test file."""
    names = {split: f"{split}_self_original.txt" for split in ("train", "valid", "test")}
    texts = {split: (source / name).read_text(encoding="utf-8") for split, name in names.items()}
    lines = texts["train"].splitlines(keepends=True)
    cut = [i for i, line in enumerate(lines) if line.startswith("1 ")][-HELD_OUT]
    texts["train"], texts["test"] = "".join(lines[:cut]), texts["test"] + "".join(lines[cut:])
    target.mkdir(exist_ok=True)
    for split, name in names.items():
        (target / name).write_text(texts[split], encoding="utf-8")


def task_of(language: str, folder: Path) -> tuple[dict, str]:
    """Options of a language's task, and the split to test on."""
    data = os.environ.get("PERSONA_AGENTS_DATA")
    if data is None:
        print("PERSONA_AGENTS_DATA is not set: bundled corpora, not real data")
        return {"task": {"en": "personachat_single_turn:mini", "zh": "cpc:mini"}[language]}, "test"
    if language == "en":
        hold_out(Path(data) / "personachat", folder / "personachat")
        task = {"task": "personachat_single_turn", "personachat_path": str(folder / "personachat")}
        return {**task, "bucket_by_length": True}, "test"
    return {"task": "cpc:raw", "cpc_path": str(Path(data) / "cpc")}, "valid"


def tenth(dictionary) -> int:
    """The number of content words of a T of |V| / 10 words."""
    return max(1, len(dictionary) // 10 - dictionary.n_function)


def train(folder: Path, language: str, seed: int) -> None:
    """Both models of a seed; their first phase is the same, so it is trained once."""
    task, split = task_of(language, folder)
    files = {mode: folder / f"{language}_{mode}_{seed}" / "model" for mode in MODES}
    pretrained, epochs = EPOCHS[language]
    given = {"model": "persona_agents:dvs2s", "seed": seed, **SETTINGS, **task}
    given.update(dvs_pretrain_epochs=pretrained, num_epochs=epochs)
    first = str(files["separate"])
    dictionary = build_dict(setup_args().parse_kwargs(**given, dict_file=f"{first}.dict"))
    if dictionary is None:  # the command is given again
        dictionary = WordDictionaryAgent({**given, "dict_file": f"{first}.dict"})
    given["dvs_top_k"] = tenth(dictionary)
    begin = time.process_time()
    if not files["joint"].parent.exists():
        TrainModel.main(**{**given, "num_epochs": pretrained}, model_file=first, dvs="separate")
        shutil.copytree(files["separate"].parent, files["joint"].parent)
    given["learningrate"] = RATE
    for mode, model_file in files.items():
        TrainModel.main(**given, model_file=str(model_file), dvs=mode)
        found = measure(str(model_file), task, split)
        found["validations"] = validations_of(str(model_file))
        path = folder / f"{language}_{mode}_{seed}.json"
        path.write_text(json.dumps(found), encoding="utf-8")
    print(f"{(time.process_time() - begin) / 60:.1f} minutes of processor time")


def validations_of(model_file: str) -> dict:
    """Perplexity and recall of a training's validations, and which of them was the best."""
    stats = json.loads(Path(f"{model_file}.trainstats").read_text(encoding="utf-8"))
    ppl, recall = ([report[name] for report in stats["valid_reports"]] for name in FOLLOWED)
    return {"ppl": ppl, "t_recall": recall, "best": 1 + ppl.index(min(ppl))}


def measure(model_file: str, task: dict, split: str) -> dict:
    """Perplexities, and the rank of each gold content word in both orders of content words."""
    report = EvalModel.main(
        model_file=model_file, datatype=split, skip_generation=True, **task, **QUIET
    )
    agent = create_agent_from_model_file(model_file, {**QUIET, **task})
    agent.module.eval()
    words, first, k = agent.dict, agent.dict.n_function, tenth(agent.dict)
    n_content = len(words) - first
    frequent = sorted(range(n_content), key=lambda c: (-words.words[words[first + c]].replies, c))
    static = {c: rank for rank, c in enumerate(frequent)}
    ranks, sets = [], []
    held_out = samples(agent, task["task"], split)
    for begin in range(0, len(held_out), 64):
        observations = []
        for persona, query, response in held_out[begin : begin + 64]:
            text = format_turn(persona, query)
            message = {"text": text, "eval_labels": [response], "episode_done": True}
            observations.append(agent.observe(message))
            agent.reset()
        batch = agent.batchify(observations)
        with torch.no_grad():
            logits = agent.module.word_logits(agent.module.encoder(batch.text_vec))
        place = logits.argsort(dim=1, descending=True).argsort(dim=1)
        for row, ys in enumerate(batch.label_vec):
            gold = {word - first for word in ys.tolist() if word >= first}
            ranks.append([(int(place[row, c]), static[c]) for c in sorted(gold)])
            sets.append(frozenset((place[row] < k).nonzero().squeeze(1).tolist()))
    overlaps = [len(a & b) / len(a | b) for a, b in zip(sets, sets[1:])]
    values = {name: report[name].value() for name in ("ppl", "ppl_full", "t_recall", "t_size")}
    return {
        "v": len(words),
        "function": first,
        "k": k,
        "ranks": ranks,
        "different": len(set(sets)) / len(sets),
        "overlap": statistics.mean(overlaps),
        **values,
    }


# -- the report ------------------------------------------------------------------------------------


def recalls(found: dict, which: int, k: int) -> list[float]:
    """Recall of each reply's content words among the first k; ``which`` 0: T, 1: static list."""
    return [statistics.mean(pair[which] < k for pair in pairs) for pairs in found["ranks"] if pairs]


def p_value(found: dict) -> float:
    """Two-sided paired tests, T against the static list: the larger p of t-test and Wilcoxon."""
    from scipy import stats

    own, static = (recalls(found, which, found["k"]) for which in (0, 1))
    return max(stats.ttest_rel(own, static).pvalue, stats.wilcoxon(own, static).pvalue)


def mean(values) -> float:
    return statistics.mean(values)


def report(folder: Path, picture: str | None) -> None:
    results, curves = [], {}
    for language in ("en", "zh"):
        runs = {
            mode: [
                json.loads(path.read_text(encoding="utf-8"))
                for path in sorted(folder.glob(f"{language}_{mode}_*.json"))
            ]
            for mode in MODES
        }
        if not runs["joint"]:
            continue
        one, validations = runs["joint"][0], []
        gold = sum(map(len, one["ranks"]))
        print(
            f"\n{language}: |V| {one['v']}, {one['function']} function words and special tokens, "
            f"|T| {one['function'] + one['k']}; {len(one['ranks'])} held-out replies with "
            f"{gold} content words"
        )
        print("mode      seed  recall  static       p   ppl in T  ppl full  best validation")
        for mode, found in ((name, found) for name in MODES for found in runs[name]):
            own, static = (mean(recalls(found, which, found["k"])) for which in (0, 1))
            seed = 1 + runs[mode].index(found)
            print(
                f"{mode:9} {seed:4} {own:7.3f} {static:7.3f} {p_value(found):7.1e} "
                f"{found['ppl']:10.2f} {found['ppl_full']:9.2f} {found['validations']['best']:16}"
            )
            followed = (found["validations"][name] for name in FOLLOWED)
            stages = "; ".join(f"{ppl:.1f}, {recall:.3f}" for ppl, recall in zip(*followed))
            validations.append(f"{mode}, seed {seed}, ppl and recall when validated: {stages}")
        print(*validations, sep="\n")
        for mode in MODES:
            if runs[mode]:
                different, overlap = (
                    mean(found[name] for found in runs[mode]) for name in ("different", "overlap")
                )
                print(
                    f"{mode}: {different:.0%} of the inputs' T are different ones; two neighbours "
                    f"share {overlap:.0%} of their content words"
                )
        curves[language] = curve(runs)
        for name, points in curves[language].items():
            print(f"{name}, |T| -> recall: ", end="")
            print(", ".join(f"{size}: {value:.3f}" for size, value in points))
        if language == "en":
            difference = min(
                mean(recalls(r, 0, r["k"])) - mean(recalls(r, 1, r["k"])) for r in runs["joint"]
            )
            results += [
                result("English: recall in T - static list", difference, ">= 0.0001"),
                result("English: p, worst seed", max(map(p_value, runs["joint"])), "<= 0.05"),
                result("English: |T| / |V|", (one["function"] + one["k"]) / one["v"], "<= 0.1"),
            ]
    if picture:
        draw(curves, picture)
    print_results(results)


def curve(runs: dict) -> dict:
    """Recall over |T|: name -> points, means over seeds."""
    one = runs["joint"][0]
    sizes = [25, 50, 100, 200, 400, 800, 1600, 3200, 6400]
    sizes = sorted({*(k for k in sizes if k < one["v"] - one["function"]), one["k"]})
    lines = {"T, joint": ("joint", 0), "T, separate": ("separate", 0), "static list": ("joint", 1)}
    return {
        name: [
            (k + one["function"], mean(mean(recalls(found, which, k)) for found in runs[mode]))
            for k in sizes
        ]
        for name, (mode, which) in lines.items()
        if runs[mode]
    }


def draw(curves: dict, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(4 * len(curves), 3.2), squeeze=False)
    for axis, (language, lines) in zip(axes[0], curves.items()):
        for name, points in lines.items():
            axis.plot(*zip(*points), "o-", markersize=3, label=name)
        title = {"en": "Persona-Chat", "zh": "CPC, 80 dialogues"}[language]
        axis.set(xlabel="|T|", ylabel="recall of content words", xscale="log", title=title)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where trained models and their figures are kept")
    parser.add_argument("--train", nargs=2, metavar=("LANGUAGE", "SEED"))
    parser.add_argument("--picture-file", default=None)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.train:
        train(args.folder, args.train[0], int(args.train[1]))
    else:
        report(args.folder, args.picture_file)


if __name__ == "__main__":
    main()
