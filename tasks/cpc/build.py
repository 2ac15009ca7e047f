"""Reads the raw files of CPC, Baidu's Chinese Persona-Chat, and cuts dialogues into samples.

A file has one JSON object a line, all of its text segmented into words by spaces:

    {"p1_persona": ["…", …], "p2_persona": ["…", …], "conversation": ["p1 : …", "p2 : …", …]}
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import lru_cache
from typing import NamedTuple

from persona_agents.tasks.base import BadLineError, Sample, find_file, read_lines
from persona_agents.tasks.content_words import is_relevant

from persona_agents.errors import PersonaAgentsError
from persona_agents.text import join_cjk

# The names under which each of the raw files is accepted, the first that exists is read.
FILES = {"train": ("Persona_train.json",), "dev": ("Persona_dev.json",)}
# The file from which each split is made; test is a part of the training file, because the official
# test file has no answers.
SOURCES = {"train": "train", "test": "train", "valid": "dev"}
HELD_OUT = 0.05  # the share of training dialogues that is the test split

HOW_TO_GET = (
    "The data of the Chinese Persona-Chat have no public download: register with their provider "
    "Baidu (the multi-skill dialogue contest on the LUGE page, 千言, https://www.luge.ai), fetch "
    "the persona dialogues and put Persona_train.json and Persona_dev.json into "
    "DATAPATH/CPC, or name their folder with --cpc-path FOLDER. "
    "-t cpc:mini needs no download."
)

_SPEAKER = re.compile(r"\s*(p[12])\s*[:：](.*)", re.DOTALL)


class NotADialogueError(ValueError):
    """Says why a line of a raw file is no dialogue."""


class Dialogue(NamedTuple):
    """One dialogue as it is in the file, still segmented; `turns` are (speaker 0 or 1, text)."""

    personas: tuple[tuple[str, ...], tuple[str, ...]]
    turns: tuple[tuple[int, str], ...]
    held_out: bool


def parse_dialogue(line: str) -> Dialogue:
    """
    Read one line; raises NotADialogueError with the reason if it is not a dialogue.

    Exactly one leading `p1 :` is taken off a turn (the colon may be full-width, spaces may lack),
    turns alternate, and none is empty. A persona may be empty.
    """
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise NotADialogueError(f"not a complete JSON object ({error})") from None
    if not isinstance(raw, dict):
        raise NotADialogueError(f"a JSON object is expected, not a {type(raw).__name__}")
    personas = tuple(_strings(raw, key) for key in ("p1_persona", "p2_persona"))
    turns: list[tuple[int, str]] = []
    for number, turn in enumerate(_strings(raw, "conversation"), 1):
        match = _SPEAKER.fullmatch(turn)
        if match is None:
            raise NotADialogueError(
                f"turn {number} does not begin with 'p1 :' or 'p2 :': {turn[:40]!r}"
            )
        speaker, text = ("p1", "p2").index(match[1]), match[2].strip()
        if not text:
            raise NotADialogueError(f"turn {number} is empty")
        if turns and turns[-1][0] == speaker:
            raise NotADialogueError(f"turns {number - 1} and {number} are both by {match[1]}")
        turns.append((speaker, text))
    return Dialogue(personas, tuple(turns), is_held_out(raw))


def _strings(raw: dict, key: str) -> tuple[str, ...]:
    if key not in raw:
        raise NotADialogueError(f"the key {key!r} is missing")
    value = raw[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise NotADialogueError(f"{key!r} is not a list of strings")
    return tuple(value)


def is_held_out(raw: dict) -> bool:
    """
    Whether a training dialogue belongs to the test split.

    By a hash of its turns without spaces, so that neither its place in the file nor its
    segmentation matters, and a dialogue that occurs twice is not in two splits.
    """
    text = re.sub(r"\s", "", "\n".join(raw["conversation"]))
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")
    return number < HELD_OUT * 2**64


def read_dialogues(path: str):
    """Yield the dialogues of a raw file; a line that is none raises BadLineError."""
    for number, line in read_lines(path):
        try:
            yield parse_dialogue(line)
        except NotADialogueError as error:
            raise BadLineError(path, number, str(error)) from None


def pairs(dialogue: Dialogue, minimum: int = 0):
    """
    Yield a Sample for each two adjacent turns; its persona is the second speaker's.

    :param int minimum: keep a pair only if its response shares so many content words with some
        sentence of that persona; 0 keeps all
    """
    for (_, query), (speaker, response) in zip(dialogue.turns, dialogue.turns[1:]):
        persona = dialogue.personas[speaker]
        if is_relevant(response, persona, minimum, "zh"):
            yield Sample(
                tuple(filter(None, map(join_cjk, persona))), join_cjk(query), join_cjk(response)
            )


@lru_cache(maxsize=8)
def _samples(path: str, changed: int, split: str | None, minimum: int) -> list[Sample]:
    # Several teachers of one process read the same file (training data, dictionary, schedule).
    return [
        sample
        for dialogue in read_dialogues(path)
        if split is None or dialogue.held_out == (split == "test")
        for sample in pairs(dialogue, minimum)
    ]


def load(folder: str, split: str, minimum: int) -> list[Sample]:
    """
    The samples of a split of the real data.

    :param str folder: where the raw files are
    :param str split: 'train', 'valid' or 'test'
    :param int minimum: see `pairs`
    """
    path = find_file(folder, FILES[SOURCES[split]], HOW_TO_GET)
    part = None if SOURCES[split] == "dev" else split
    return _checked(path, _samples(path, os.stat(path).st_mtime_ns, part, minimum), split)


def load_mini(split: str) -> list[Sample]:
    """The samples of a split of the bundled data."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mini", f"{split}.json")
    return _checked(path, _samples(path, os.stat(path).st_mtime_ns, None, 0), split)


def folder_of(opt) -> str:
    """The folder of the raw files: --cpc-path or DATAPATH/CPC."""
    return opt.get("cpc_path") or os.path.join(opt["datapath"], "CPC")


def _checked(path: str, samples: list[Sample], split: str) -> list[Sample]:
    if not samples:
        raise PersonaAgentsError(
            f"{path} gives no sample for the split {split!r}. It may hold too few dialogues, or "
            "--persona-filter is too strict (0 keeps every pair)."
        )
    return samples
