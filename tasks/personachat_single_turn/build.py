"""Reads Persona-Chat in ParlAI's text format and cuts it into single turns.

    1 your persona: i love to sew.
    2 __SILENCE__<TAB>hey there how was your day today ?
    3 pretty well , how is your night going ?<TAB>its going ok . just doing a little sewing . you ?

Each line begins with its number within the dialogue. More fields after a second tab (rewards and
candidates in some versions of the data) are not read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import lru_cache
from itertools import chain

from parlai.utils import logging
from persona_agents.tasks import cache
from persona_agents.tasks.base import Pair, Sample
from persona_agents.tasks.content_words import Rule
from persona_agents.tasks.files import BadLine, DataFile, Report, missing, read_lines, search

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn

SILENCE = "__SILENCE__"  # the query of the one who speaks first
HOW_TO_GET = (
    "--personachat-path wants the files {{train,valid,test}}_self_{version}.txt in ParlAI's "
    "Persona-Chat format. Without that option ParlAI fetches them; -t personachat_single_turn:mini "
    "needs none."
)
_NUMBERED = re.compile(r"(\d+) (.*)")


class _Reader:
    """What the lines before the present one said: number, persona, which dialogue it is."""

    def __init__(self):
        self.number = self.dialogue = 0
        self.persona: list[str] = []
        self.broken = False  # a bad line was left out: the rest of its dialogue makes no sense

    def parse(self, line: str) -> tuple[str, str] | None:
        """(query, reply) of a turn, None for a persona line; raises BadLine."""
        match = _NUMBERED.fullmatch(line.strip(" "))
        if match and int(match[1]) == 1:
            self.number, self.persona, self.broken = 0, [], False
            self.dialogue += 1
        elif self.broken:
            raise BadLine("it follows a bad line of its dialogue", "after a bad line")
        self.broken = True  # until the line has proved good
        if match is None:
            raise BadLine("it does not begin with a number and a space", "no number")
        if int(match[1]) != self.number + 1:
            raise BadLine(f"it is numbered {match[1]}, not {self.number + 1}", "wrong number")
        self.number += 1
        fields = [field.strip() for field in match[2].split("\t")]
        turn = parse_turn(fields[0]) if len(fields) == 1 else None
        if turn and turn.query:
            raise BadLine(
                "neither a persona line nor a query and a reply with a tab between", "no tab"
            )
        if turn is None and not fields[0]:
            raise BadLine("the query is empty", "no query")
        if turn is None and not fields[1]:
            raise BadLine("no reply", "no reply")
        self.broken = False
        if turn is None:
            return fields[0], fields[1]
        self.persona += turn.persona
        return None


def pairs(file: DataFile, split: str, rule: Rule, report: Report, skip_bad: bool = False):
    """Yield a Pair for each turn that answers something, and count in `report`."""
    reader = _Reader()
    tally = report.pairs.setdefault(split, Counter())
    for _, turn in read_lines(file, reader.parse, report, skip_bad):
        report.dialogues[split] = reader.dialogue
        if turn is None:
            report.notes["persona lines"] += 1
        elif turn[0] == SILENCE:
            report.notes["first turns of a dialogue, which answer nothing"] += 1
        else:
            sample = Sample(tuple(reader.persona), *turn)
            reason = rule.why_dropped(sample.query, sample.response, sample.persona)
            tally[reason or "kept"] += 1
            yield Pair(split, (split, reader.dialogue), sample, reason)


def build(file: DataFile, split: str, rule: Rule, skip_bad: bool) -> tuple[dict[str, list], Report]:
    """{split: the samples of a file} and what was counted."""
    report = Report()
    found = pairs(file, split, rule, report, skip_bad)
    samples = [pair.sample for pair in found if pair.reason is None]
    if report.skipped:
        logging.warning(f"{file}: {report.summary()}")
    return {split: samples}, report


@lru_cache(maxsize=8)
def _load(file: DataFile, stamp, split: str, rule: Rule, skip_bad: bool, folder):
    made_from = {"files": [stamp], "rule": rule.description(), "skip_bad": skip_bad}
    name = "personachat_single_turn"
    return cache.load(folder, name, made_from, split, lambda: build(file, split, rule, skip_bad))


def locate(opt, split: str, version: str = "original") -> DataFile:
    """
    The file of a split, in --personachat-path or in the data that ParlAI itself builds.

    :param str split: 'train', 'valid' or 'test'
    :param str version: 'original' or 'revised' personas
    """
    folder = opt.get("personachat_path")
    if not folder:
        folder = os.path.join(opt["datapath"], "Persona-Chat", "personachat")
        fetch(opt)
    names = (f"{split}_self_{version}.txt",)
    found = search(folder, names) if os.path.isdir(folder) else None
    if found is None:
        raise missing(folder, names, HOW_TO_GET.format(version=version))
    return found


def load(opt, split: str, rule: Rule, version: str = "original"):
    """The samples of a split as a sequence; raises PersonaAgentsError. See `locate`."""
    file = locate(opt, split, version)
    skip_bad = bool(opt.get("skip_bad_lines"))
    samples = _load(file, tuple(file.stamp()), split, rule, skip_bad, cache.folder_of(opt))
    if not len(samples):
        raise PersonaAgentsError(
            f"{file} gives no sample. It may be empty, or --persona-filter is too strict."
        )
    return samples


def fetch(opt) -> None:
    """Let ParlAI download its Persona-Chat unless it is there."""
    from parlai.tasks.personachat.build import build

    try:
        build(opt)
    except Exception as error:  # whatever the network, the archive or the disk raise
        raise PersonaAgentsError(
            f"ParlAI could not fetch Persona-Chat into {opt['datapath']} ({error}). Give the folder "
            "of {train,valid,test}_self_*.txt with --personachat-path; "
            "-t personachat_single_turn:mini needs no data."
        ) from error


@lru_cache
def load_mini(split: str) -> list[Sample]:
    """The samples of a split of the bundled data."""
    return build(mini_file(split), split, Rule("en", 0), skip_bad=False)[0][split]


def mini_file(split: str) -> DataFile:
    """The bundled file of a split."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return DataFile(os.path.join(folder, "mini", f"{split}.txt"))


def survey(files: dict[str, DataFile], rule: Rule, skip_bad: bool = False):
    """(all pairs of {split: file}, {file: report}); a report is filled while the pairs pass."""
    reports = {file: Report() for file in files.values()}
    found = (pairs(file, split, rule, reports[file], skip_bad) for split, file in files.items())
    return chain.from_iterable(found), reports
