"""Statistics of a persona task: sizes, lengths, what splits share, what the filter drops and why."""

from __future__ import annotations

import copy
import json
import os
import random
from collections import Counter, defaultdict

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn, persona_of
from persona_agents.text import task_language

SPLITS = ("train", "valid", "test")
FIELDS = ("persona sentence", "query", "response")
UNITS = {"zh": "characters", "en": "words"}


def length(text: str, language: str) -> int:
    """Characters without spaces for Chinese, words between spaces for English."""
    return len("".join(text.split())) if language == "zh" else len(text.split())


class Split:
    """What is counted of one split."""

    def __init__(self, examples: int):
        self.samples = 0
        self.counts = Counter()  # pairs by reason, `kept` among them
        self.examples: dict[str, list] = defaultdict(list)
        self.examples_wanted = examples
        # A dialogue by its name, and what was said in it: names need not hold across splits.
        self.dialogues: dict[object, int] = defaultdict(int)
        self.personas, self.sentences, self.turns = set(), set(), set()
        self.per_sample = Counter()  # persona sentences -> samples
        self.lengths = {field: Counter() for field in FIELDS}
        self.random = random.Random(0)

    def add(self, pair, language: str) -> None:
        """Count a pair."""
        self.counts[pair.reason or "kept"] += 1
        if pair.dialogue is not None:
            said = (self.dialogues[pair.dialogue], pair.sample.query, pair.sample.response)
            self.dialogues[pair.dialogue] = hash(said)
        if pair.reason is not None:
            self._keep_example(pair.reason, pair.sample)
            return
        persona, query, response = pair.sample
        self.samples += 1
        self.per_sample[len(persona)] += 1
        self.personas.add(tuple(sorted(persona)))
        self.sentences.update(persona)
        self.turns.add(hash((persona, query, response)))
        for sentence in persona:
            self.lengths["persona sentence"][length(sentence, language)] += 1
        self.lengths["query"][length(query, language)] += 1
        self.lengths["response"][length(response, language)] += 1

    def _keep_example(self, reason: str, sample) -> None:
        # A random choice of a stream, each pair with the same chance, the same at every run.
        kept, seen = self.examples[reason], self.counts[reason]
        if len(kept) < self.examples_wanted:
            kept.append(sample)
        elif (place := self.random.randrange(seen)) < self.examples_wanted:
            kept[place] = sample

    def to_dict(self) -> dict:
        """Plain data for JSON."""
        return {
            "samples": self.samples,
            "dialogues": len(self.dialogues) or None,
            "personas": len(self.personas),
            "persona sentences": len(self.sentences),
            "persona sentences per sample": summary(self.per_sample),
            "lengths": {field: summary(counts) for field, counts in self.lengths.items()},
            "pairs": dict(self.counts),
            "dropped examples": {
                reason: [sample._asdict() for sample in samples]
                for reason, samples in self.examples.items()
            },
        }


def summary(counts: Counter) -> dict | None:
    """Mean, median, least and greatest of {value: how often}, None of nothing."""
    total = sum(counts.values())
    if not total:
        return None
    passed, median = 0, 0
    for value in sorted(counts):
        passed += counts[value]
        if 2 * passed >= total:
            median = value
            break
    mean = sum(value * count for value, count in counts.items()) / total
    return {"mean": mean, "median": median, "min": min(counts), "max": max(counts)}


def _survey(opt):
    """(pairs of all splits, reports of the files) of a task; the pairs are counted as they pass."""
    from parlai.core.loader import load_teacher_module

    teacher = load_teacher_module(opt["task"])
    if hasattr(teacher, "survey"):
        return teacher.survey(opt)
    return _pairs_of_any_task(opt), {}


def _pairs_of_any_task(opt):
    """The turns of a ParlAI task as pairs; the persona holds until the end of the episode."""
    from parlai.core.opt import Opt
    from parlai.core.teachers import create_task_agent_from_taskname

    from persona_agents.tasks.base import Pair, Sample

    for split, datatype in zip(SPLITS, ("train:evalmode", "valid", "test")):
        split_opt = Opt({**copy.deepcopy(opt), "datatype": datatype})
        for teacher in create_task_agent_from_taskname(split_opt):
            persona, dialogue = (), 0
            while not teacher.epoch_done():
                message = teacher.act()
                if message.is_padding():
                    break
                persona = persona_of(message) or persona
                labels = message.get("labels") or message.get("eval_labels") or ()
                for response in labels[:1]:
                    query = parse_turn(message.get("text") or "").query
                    yield Pair(split, (split, dialogue), Sample(persona, query, response), None)
                if message.get("episode_done"):
                    persona, dialogue = (), dialogue + 1


def collect(opt) -> dict:
    """All statistics of opt['task'] as plain data, and `histograms`, {split: {field: Counter}}."""
    task = opt.get("task")
    if not task or "," in task:
        raise PersonaAgentsError("parlai persona_data wants one task, for example -t cpc:mini.")
    language = task_language(task)
    splits = {name: Split(opt.get("examples_per_reason", 3)) for name in SPLITS}
    pairs, reports = _survey(opt)
    for pair in pairs:
        splits[pair.split].add(pair, language)
    if not any(split.counts for split in splits.values()):
        raise PersonaAgentsError(f"-t {task} gives no pair of a query and a reply.")
    return {
        "task": task,
        "unit of length": UNITS[language],
        "splits": {name: split.to_dict() for name, split in splits.items()},
        "shared": {
            f"{one}, {two}": _shared(splits[one], splits[two])
            for one, two in (("train", "valid"), ("train", "test"), ("valid", "test"))
        },
        "files": {str(file): report.to_dict() for file, report in reports.items()},
        "histograms": {
            name: {field: dict(sorted(split.lengths[field].items())) for field in FIELDS}
            for name, split in splits.items()
        },
    }


def _shared(one: Split, two: Split) -> dict:
    said = [set(split.dialogues.values()) for split in (one, two)]
    return {
        "dialogues": len(said[0] & said[1]) if all(said) else None,
        "personas": len(one.personas & two.personas),
        "persona sentences": len(one.sentences & two.sentences),
        "samples": len(one.turns & two.turns),
    }


def to_text(statistics: dict) -> str:
    """The statistics as tables for people."""
    splits, unit = statistics["splits"], statistics["unit of length"]

    def row(name, values):
        return f"  {name:<42}" + "".join(f"{value:>14}" for value in values)

    def numbers(key, form="{:,}"):
        values = (split[key] for split in splits.values())
        return ["-" if value is None else form.format(value) for value in values]

    def spread(value):
        if value is None:
            return "-"
        return f"{value['mean']:.2f} ({value['min']}-{value['max']})"

    lines = [statistics["task"], row("", splits)]
    lines += [row(key, numbers(key)) for key in ("samples", "dialogues", "personas")]
    key = "persona sentences per sample"
    lines.append(row(f"{key}, mean (range)", [spread(split[key]) for split in splits.values()]))
    for field in FIELDS:
        values = [spread(split["lengths"][field]) for split in splits.values()]
        lines.append(row(f"{field}, {unit}", values))

    lines += ["", "What two splits have in common", row("", statistics["shared"])]
    for key in next(iter(statistics["shared"].values())):
        values = [shared[key] for shared in statistics["shared"].values()]
        lines.append(row(key, ["-" if value is None else f"{value:,}" for value in values]))

    reasons = dict.fromkeys(reason for split in splits.values() for reason in split["pairs"])
    lines += ["", "Pairs, kept and left out", row("", splits)]
    for reason in sorted(reasons, key=lambda reason: reason != "kept"):
        lines.append(row(reason, [split["pairs"].get(reason, 0) for split in splits.values()]))
    lines.append(row("all", [sum(split["pairs"].values()) for split in splits.values()]))
    for reason in reasons:
        examples = [
            e for split in splits.values() for e in split["dropped examples"].get(reason, ())
        ]
        wanted = max(len(split["dropped examples"].get(reason, ())) for split in splits.values())
        for number, example in enumerate(examples[:wanted]):
            lines += ["", f"  left out, {reason}:"] if number == 0 else [""]
            lines += [f"    persona   {sentence}" for sentence in example["persona"]]
            lines += [f"    query     {example['query']}", f"    response  {example['response']}"]

    for file, report in statistics["files"].items():
        lines += ["", f"{file}: {report['lines']:,} lines"]
        parts = {"blank": report["blank"]} if report["blank"] else {}
        parts.update({f"skipped, {kind}": count for kind, count in report["skipped"].items()})
        parts["read"] = report["read"]
        parts.update({f"dialogues, {part}": n for part, n in report["dialogues"].items()})
        parts.update(report["notes"])
        lines += [f"  {count:>10,} {what}" for what, count in parts.items()]
    return "\n".join(lines)


def write_json(statistics: dict, path: str) -> None:
    """Write the statistics to a file, whole or not at all."""
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(statistics, file, ensure_ascii=False, indent=1)
            file.write("\n")
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise PersonaAgentsError(f"--json-file {path}: {error.strerror}.") from None


def main(opt) -> dict:
    """Collect, print and write what the options ask for; returns the statistics."""
    if opt.get("picture_file"):
        from persona_agents.scripts import picture

        picture.require_matplotlib()  # before minutes of counting
    statistics = collect(opt)
    print(to_text(statistics))
    if opt.get("json_file"):
        write_json(statistics, opt["json_file"])
    if opt.get("picture_file"):
        picture.draw(statistics, opt["picture_file"])
    return statistics
