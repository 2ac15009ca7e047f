"""The contest's own test file: samples, most of them without an answer.

    {"profile": {"key": "sentence", …}, "history": ["…", …], "response": "…"}

The profile is that of the one who is to answer the last turn of the history. It may be a list of
sentences too; the response may be empty, null or absent; turns may begin with `p1 :`.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache, partial
from typing import NamedTuple

from parlai.utils import logging
from persona_agents.tasks.cpc.dialogue import SPEAKER, parse_json, strings
from persona_agents.tasks.files import (
    BadLine,
    DataFile,
    Report,
    is_zip,
    members,
    missing,
    read_lines,
    search,
)

from persona_agents.errors import PersonaAgentsError
from persona_agents.text import join_cjk

# Test A is seen under two names, as a zip and as a file.
NAMES = ("Persona_test.json", "Persona_testA.json", "Persona_testB.json")
NAMES += tuple(name.replace(".json", ".txt") for name in NAMES)
ZIPS = ("Dialog_test.zip", "Dialog_testA.zip", "Dialog_testB.zip", "Persona_test.zip")
HOW_TO_GET = (
    "-t cpc:official_test reads the contest's test file (Persona_test.json, Persona_testA.json, "
    "Persona_testB.json or its zip), from the same provider as the other data, in DATAPATH/CPC or "
    "where --cpc-path says: a folder, a zip or the file itself."
)


class OfficialSample(NamedTuple):
    """Persona, the turns so far, oldest first, and the answer, None if there is none."""

    persona: tuple[str, ...]
    history: tuple[str, ...]
    response: str | None


def parse_sample(line: str, notes: Counter) -> OfficialSample:
    """Read one line and count what is odd; raises BadLine with the reason if it is no sample."""
    raw = parse_json(line)
    if "conversation" in raw and "history" not in raw:
        raise BadLine(
            "a dialogue, not a sample of the official test: use -t cpc:raw", "not a sample"
        )
    if "profile" not in raw:
        raise BadLine("the key 'profile' is missing", "missing key")
    profile = raw["profile"]
    if isinstance(profile, dict):
        profile = list(profile.values())
    profile = strings({"profile": profile}, "profile")
    history = [_without_speaker(turn) for turn in strings(raw, "history")]
    if not history:
        raise BadLine("the history is empty", "empty history")
    if not all(history):
        raise BadLine(f"turn {history.index('') + 1} of the history is empty", "empty turn")
    if not all(sentence.strip() for sentence in profile):
        notes["samples with an empty persona sentence, which is left out"] += 1
    response = raw.get("response")
    if not isinstance(response, (str, type(None))):
        raise BadLine("'response' is not a string", "wrong type")
    return OfficialSample(
        tuple(filter(None, map(join_cjk, profile))),
        tuple(history),
        _without_speaker(response or "") or None,
    )


def _without_speaker(turn: str) -> str:
    match = SPEAKER.fullmatch(turn)
    return join_cjk(match[2] if match else turn)


def locate(place: str) -> DataFile:
    """The official test file in a folder or a zip, or the file named; raises PersonaAgentsError."""
    if is_zip(place) or os.path.isdir(place):
        found = search(place, NAMES, ZIPS)
        if found is None and is_zip(place) and len(members(place)) == 1:
            found = DataFile(place, members(place)[0])
    else:
        found = DataFile(place) if os.path.isfile(place) else None
    if found is None:
        raise missing(place, (*NAMES[:3], *ZIPS[:3]), HOW_TO_GET)
    return found


@lru_cache(maxsize=2)
def _load(file: DataFile, stamp, skip_bad: bool) -> tuple[OfficialSample, ...]:
    report = Report()
    lines = read_lines(file, partial(parse_sample, notes=report.notes), report, skip_bad)
    samples = tuple(sample for _, sample in lines)
    unlabelled = sum(sample.response is None for sample in samples)
    report.notes["samples without an answer"] += unlabelled
    logging.info(f"{file}: {len(samples)} samples; {report.summary()}")
    return samples


def load(place: str, skip_bad: bool = False) -> tuple[OfficialSample, ...]:
    """All samples of the official test; raises PersonaAgentsError."""
    file = locate(place)
    samples = _load(file, tuple(file.stamp()), skip_bad)
    if not samples:
        raise PersonaAgentsError(f"{file} holds no sample. {HOW_TO_GET}")
    return samples
