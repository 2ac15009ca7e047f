"""CPC, Baidu's Chinese Persona-Chat: from the raw files to the samples of each split.

A file has one JSON object a line, all of its text segmented into words by spaces:

    {"p1_persona": ["…", …], "p2_persona": ["…", …], "conversation": ["p1 : …", "p2 : …", …]}
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from parlai.utils import logging
from persona_agents.tasks import cache
from persona_agents.tasks.base import Pair, Sample
from persona_agents.tasks.content_words import Rule
from persona_agents.tasks.cpc.dialogue import Dialogue, parse_dialogue, persona_place
from persona_agents.tasks.files import (
    DataFile,
    Report,
    is_named,
    is_zip,
    members,
    missing,
    read_lines,
    search,
)

from persona_agents.errors import PersonaAgentsError
from persona_agents.text import join_cjk

# The names under which each of the raw files is accepted, and the zips that hold it as downloaded.
TRAIN = ("Persona_train.json", "Persona_train.txt")
DEV = ("Persona_dev.json", "Persona_dev.txt")
SAMPLE = ("Persona_sample.txt", "Persona_sample.json")
ZIPS = {
    "train": ("Dialog_train.zip", "Persona_train.zip"),
    "dev": ("Dialog_dev.zip", "Persona_dev.zip"),
    "sample": ("Dialog_sample.zip", "Persona_sample.zip"),
}
UNFILTERED = Rule("zh", 0)
HELD_OUT = 0.05  # the share of training dialogues (or personas) that is the test split
SILENCE = "__SILENCE__"  # ParlAI's query of the one who speaks first, in whole dialogues

HOW_TO_GET = (
    "The data of the Chinese Persona-Chat have no public download: register with their provider "
    "Baidu (the multi-skill dialogue contest on the LUGE page, 千言, https://www.luge.ai), fetch "
    "the persona dialogues and put Persona_train.json and Persona_dev.json, or the zip files as "
    "they come, into DATAPATH/CPC, or name their folder with --cpc-path FOLDER, or a mirror of your "
    "own with --cpc-url. "
    "-t cpc:mini needs no download."
)


@dataclass(frozen=True)
class Settings:
    """What is made of the raw files.

    Attributes:
        rule: the persona filter.
        by: 'session' or 'persona', what is held out for test as a whole.
        whole: episodes are whole dialogues, unfiltered, and not single turns.
        skip_bad: bad lines are counted and left out.
    """

    rule: Rule = UNFILTERED
    by: str = "session"
    whole: bool = False
    skip_bad: bool = False


class Source(NamedTuple):
    """A file, the splits that are cut from it, and the file whose dialogues are left out of it."""

    file: DataFile
    splits: tuple[str, ...]
    without: DataFile | None = None


def locate(place: str, split: str) -> Source:
    """
    The file that a split is made from.

    Train and test come from the training file, valid is the dev file. A file of dialogues of
    another name, the provider's sample above all, is cut into all three.

    :param str place: a folder, a zip file as downloaded, or one file of dialogues
    :param str split: 'train', 'valid' or 'test'
    """
    train = dev = single = None
    if is_zip(place) or os.path.isdir(place):
        train, dev = search(place, TRAIN, ZIPS["train"]), search(place, DEV, ZIPS["dev"])
        if not (train or dev):
            single = search(place, SAMPLE, ZIPS["sample"])
            if single is None and is_zip(place) and len(members(place)) == 1:
                single = DataFile(place, members(place)[0])
    elif os.path.isfile(place):
        file = DataFile(place)
        train = file if is_named(place, TRAIN) else None
        dev = file if is_named(place, DEV) else None
        single = None if train or dev else file
    if single is not None:
        return Source(single, ("train", "valid", "test"))
    found = dev if split == "valid" else train
    if found is None:
        names = (*DEV[:1], *ZIPS["dev"]) if split == "valid" else (*TRAIN[:1], *ZIPS["train"])
        raise missing(place, names, HOW_TO_GET)
    return Source(found, ("valid",)) if split == "valid" else Source(found, ("train", "test"), dev)


def split_of(dialogue: Dialogue, splits, by: str) -> tuple[str, tuple[bool, bool]]:
    """
    The split that a dialogue is in, and whose of its two speakers' answers are samples of it.

    By session the hash of the dialogue decides, and both speakers count. By persona the hash of each
    persona does. A dialogue with one held-out persona is in the held-out split as a whole, and there
    only the answers of that persona are samples; so no persona of test samples is one of train's.
    """

    def part(place: float) -> str:
        if len(splits) == 1:
            return splits[0]
        if place < HELD_OUT:
            return "test"
        return "valid" if "valid" in splits and place < 2 * HELD_OUT else "train"

    if by == "session" or len(splits) == 1:
        return part(dialogue.place), (True, True)
    one, two = (part(persona_place(persona)) for persona in dialogue.personas)
    split = min(one, two, key=("test", "valid", "train").index)
    return split, (one == split, two == split)


def dialogues(source: Source, settings: Settings, report: Report):
    """Yield (dialogue, split, whose answers count) of a file and count in `report`."""
    elsewhere = _places(source.without) if source.without else frozenset()
    seen = set()
    for _, dialogue in read_lines(source.file, parse_dialogue, report, settings.skip_bad):
        report.notes.update(dialogue.notes)
        if dialogue.place in seen:
            report.notes["dialogues that occur before in the file, kept"] += 1
        seen.add(dialogue.place)
        if dialogue.place in elsewhere:
            report.dialogues["left out: also in the dev file"] += 1
            continue
        split, counts = split_of(dialogue, source.splits, settings.by)
        report.dialogues[split] += 1
        yield dialogue, split, counts


def _places(file: DataFile) -> frozenset[float]:
    """Which dialogues a file has; its bad lines are reported when it is read for itself."""
    found = read_lines(file, parse_dialogue, Report(), skip_bad=True)
    return frozenset(dialogue.place for _, dialogue in found)


def pairs(source: Source, settings: Settings, report: Report):
    """Yield a Pair for any two adjacent turns in a file, and count in `report`."""
    for dialogue, split, counts in dialogues(source, settings, report):
        texts = [join_cjk(text) for _, text in dialogue.turns]
        segmented = [[line for line in persona if line.strip()] for persona in dialogue.personas]
        personas = [tuple(map(join_cjk, persona)) for persona in segmented]
        tally = report.pairs.setdefault(split, Counter())
        for number, (speaker, response) in enumerate(dialogue.turns[1:], 1):
            if counts[speaker]:
                query = dialogue.turns[number - 1][1]
                reason = settings.rule.why_dropped(query, response, segmented[speaker])
            else:
                reason = "persona of another split"
            tally[reason or "kept"] += 1
            sample = Sample(personas[speaker], texts[number - 1], texts[number])
            yield Pair(split, dialogue.place, sample, reason)


def episodes(source: Source, settings: Settings, report: Report):
    """
    Yield (split, episode) twice a dialogue, once for each speaker as the one who answers.

    An episode is a list of samples; the first query to the one who begins is `__SILENCE__`.
    """
    for dialogue, split, counts in dialogues(source, settings, report):
        texts = [join_cjk(text) for _, text in dialogue.turns]
        tally = report.pairs.setdefault(split, Counter())
        if len(texts) < 2:
            continue
        for speaker, counted in enumerate(counts):
            persona = tuple(filter(None, map(join_cjk, dialogue.personas[speaker])))
            numbers = [i for i, (who, _) in enumerate(dialogue.turns) if who == speaker]
            tally["kept" if counted else "persona of another split"] += len(numbers)
            if counted:
                yield (
                    split,
                    [Sample(persona, texts[i - 1] if i else SILENCE, texts[i]) for i in numbers],
                )


def build(source: Source, settings: Settings) -> tuple[dict[str, list], Report]:
    """All splits that are cut from a file, {split: samples or episodes}, and what was counted."""
    report = Report()
    parts: dict[str, list] = {split: [] for split in source.splits}
    if settings.whole:
        for split, episode in episodes(source, settings, report):
            parts[split].append(episode)
    else:
        for pair in pairs(source, settings, report):
            if pair.reason is None:
                parts[pair.split].append(pair.sample)
    if report.summary():
        logging.info(f"{source.file}: {report.summary()}")
    return parts, report


def load(place: str, split: str, minimum: int = 0, settings: Settings | None = None, folder=None):
    """
    The samples (or, of `settings.whole`, episodes) of a split of the real data.

    :param str place: a folder, a zip file, or one file of dialogues
    :param str split: 'train', 'valid' or 'test'
    :param int minimum: of the persona filter, if there are no `settings`
    :param folder: of the cache on disk; None: none
    :return: a sequence; raises PersonaAgentsError if there is nothing
    """
    source = locate(place, split)
    settings = settings or Settings(Rule("zh", minimum))
    files = (source.file, source.without)
    stamps = tuple(file and tuple(file.stamp()) for file in files)
    samples = _load(source, stamps, settings, split, folder)
    if not len(samples):
        raise PersonaAgentsError(
            f"{source.file} gives no sample for the split {split!r}. It may hold too few dialogues, "
            "or --persona-filter is too strict (0 keeps every pair)."
        )
    return samples


@lru_cache(maxsize=8)
def _load(source: Source, stamps, settings: Settings, split: str, folder):
    # Several teachers of one process read the same file (training data, dictionary, schedule).
    made_from = {
        "files": stamps,
        "splits": source.splits,
        "rule": settings.rule.description(),
        "by": settings.by,
        "whole": settings.whole,
        "skip_bad": settings.skip_bad,
    }
    return cache.load(folder, "cpc", made_from, split, lambda: build(source, settings))


@lru_cache
def load_mini(split: str) -> list[Sample]:
    """The samples of a split of the bundled data."""
    return build(mini_source(split), Settings())[0][split]


def mini_source(split: str) -> Source:
    """The bundled file of a split."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return Source(DataFile(os.path.join(folder, "mini", f"{split}.json")), (split,))


def survey(sources, settings: Settings):
    """(all pairs of some sources, {file: report}); a report is filled while the pairs pass."""
    reports = {source.file: Report() for source in sources}
    found = (pairs(source, settings, reports[source.file]) for source in sources)
    return chain.from_iterable(found), reports


def sources_of(opt) -> list[Source]:
    """All files of the real data; raises PersonaAgentsError if one is not there."""
    place = folder_of(opt)
    return list(dict.fromkeys(locate(place, split) for split in ("train", "valid", "test")))


def folder_of(opt) -> str:
    """Where the raw files are: --cpc-path or DATAPATH/CPC, after --cpc-url has been fetched."""
    folder = opt.get("cpc_path") or os.path.join(opt["datapath"], "CPC")
    if not opt.get("cpc_url"):
        return folder
    from persona_agents.tasks.download import fetch

    paths = fetch(opt["cpc_url"], folder)
    return paths[0] if len(paths) == 1 else folder


def settings_of(opt, rule: Rule | None = None, whole: bool = False) -> Settings:
    """What the options ask for; unfiltered unless there is a rule."""
    return Settings(
        rule=rule or UNFILTERED,
        by=opt.get("cpc_split") or "session",
        whole=whole,
        skip_bad=bool(opt.get("skip_bad_lines")),
    )


def load_for(opt, split: str, settings: Settings):
    """`load` with the place of the data and of the cache taken from ParlAI's options."""
    return load(folder_of(opt), split, settings=settings, folder=cache.folder_of(opt))
