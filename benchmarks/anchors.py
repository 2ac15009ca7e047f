"""
What do the numbers mean? Metrics of replies that need no model, on real samples.

Gold, gold in another order, a sentence of the persona echoed, one constant sentence: what a system
must lie above, and what each metric can be fooled by. Prints a table in Markdown and the signatures.

    PERSONA_AGENTS_DATA=… python benchmarks/anchors.py --task personachat_single_turn --bert-model FOLDER
    PERSONA_AGENTS_DATA=… python benchmarks/anchors.py --task cpc

Without --bert-model the columns of bert_score and p_em stay open. With a BERT for which bert-score
has no baseline, one is computed here as its authors do: the mean scores of random pairs of sentences,
gold replies of the train split.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file
    sys.path[0] += "/.."

import argparse
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.metrics import persona_chat, shuffled, task_samples
from persona_agents.metrics import Reply, Settings, score
from persona_agents.text import task_language

CONSTANT = {"en": "i do not know what to say .", "zh": "我不知道该说什么。"}
CHEAP = "corpus_bleu,char_f1,p_cover,corpus_distinct,verbatim,length"
COLUMNS = {
    "BLEU-1": "corpus_bleu_1",
    "BLEU-2": "corpus_bleu_2",
    "BLEU-4": "corpus_bleu_4",
    "char F1": "char_f1",
    "word F1": "word_f1",
    "BERTScore F, raw": "raw",
    "rescaled": "bert_score_f",
    "P-Cover": "p_cover",
    "P-EM": "p_em",
    "distinct-1": "corpus_distinct_1",
    "distinct-2": "corpus_distinct_2",
    "verbatim persona": "verbatim_persona",
    "verbatim query": "verbatim_query",
    "length": "length",
}
PAIRS = 3000  # random pairs of the baseline
# nothing is trained here; Chinese samples are few
SPLITS = {"en": ("valid", "test"), "zh": ("train:ordered", "valid", "test")}


def samples_of(task: str, datatypes) -> list:
    """Real samples of one of the two tasks, from $PERSONA_AGENTS_DATA."""
    data = os.environ.get("PERSONA_AGENTS_DATA")
    if task_language(task) == "zh" and data:
        return task_samples(task, datatypes, cpc_path=str(Path(data) / "cpc"))
    return task_samples("cpc:mini", datatypes) if task == "cpc" else persona_chat(datatypes)


def anchors(samples: list, language: str) -> dict[str, list[str]]:
    """The replies of each anchor."""
    chance = random.Random(1)
    return {
        "gold": [sample.response for sample in samples],
        "gold, shuffled": shuffled(samples),
        "a persona sentence": [chance.choice(sample.persona or ("",)) for sample in samples],
        f"“{CONSTANT[language]}”": [CONSTANT[language]] * len(samples),
    }


def write_baseline(task: str, settings: Settings, path: str) -> None:
    """The mean raw scores of random pairs of gold replies, in bert-score's format."""
    texts = [sample.response for sample in samples_of(task, ("train:ordered",))]
    chance = random.Random(1)
    pairs = [chance.sample(texts, 2) for _ in range(PAIRS)]
    raw = replace(settings, bert_score_rescale=False)
    found = score([Reply(one, [other]) for one, other in pairs], "bert_score", raw).values
    numbers = ",".join(f"{found[f'bert_score_{part}']:.7f}" for part in "prf")
    Path(path).write_text(f"LAYER,P,R,F\n{settings.bert_score_layer},{numbers}\n", encoding="utf-8")
    print(f"baseline of {PAIRS} random pairs, layer {settings.bert_score_layer}: {numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--task", choices=["personachat_single_turn", "cpc", "cpc:raw"])
    parser.add_argument("--bert-model", default=None, help="folder of a BERT of the language")
    parser.add_argument("--layer", type=int, default=5, help="bert_score's layer")
    args = parser.parse_args()
    language = task_language(args.task)
    splits = SPLITS[language]
    samples = samples_of(args.task, splits)
    model = args.bert_model and os.path.expanduser(args.bert_model)
    settings = Settings(
        language, bert_score_model=model, bert_score_layer=args.layer, p_em_model=model
    )
    names = f"persona,{CHEAP}" if model else CHEAP
    with tempfile.TemporaryDirectory() as folder:
        if model:
            path = str(Path(folder) / "baseline.tsv")
            write_baseline(args.task, settings, path)
            settings = replace(settings, bert_score_baseline=path)
        print(f"{args.task}, {', '.join(splits)}: {len(samples)} samples\n")
        print(f"| reply | {' | '.join(COLUMNS)} |")
        print("|---" * (1 + len(COLUMNS)) + "|")
        for anchor, texts in anchors(samples, language).items():
            batch = [Reply(t, [s.response], s.persona, s.query) for t, s in zip(texts, samples)]
            found = score(batch, names, settings)
            if model:
                raw = replace(settings, bert_score_rescale=False, bert_score_baseline=None)
                found.values["raw"] = score(batch, "bert_score", raw).values["bert_score_f"]
            cells = [found.values.get(column) for column in COLUMNS.values()]
            shown = ["open" if v is None else f"{v:.1f}" if v >= 5 else f"{v:.3f}" for v in cells]
            print(f"| {anchor} | {' | '.join(shown)} |")
    print()
    for name, signature in found.signatures.items():
        print(f"    {name:<16}{signature}")


if __name__ == "__main__":
    main()
