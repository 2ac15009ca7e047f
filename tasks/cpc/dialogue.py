"""One line of CPC's raw files: a dialogue with the personas of its two speakers."""

from __future__ import annotations

import hashlib
import json
import re
from typing import NamedTuple

from persona_agents.tasks.files import BadLine

_KEYS = ("p1_persona", "p2_persona", "conversation")
SPEAKER = re.compile(r"\s*(p[12])\s*[:：](.*)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Dialogue(NamedTuple):
    """One dialogue as it is in the file, still segmented; `turns` are (speaker 0 or 1, text)."""

    personas: tuple[tuple[str, ...], tuple[str, ...]]
    turns: tuple[tuple[int, str], ...]
    place: float  # between 0 and 1, by a hash of the turns (see `place_of`)
    notes: tuple[str, ...] = ()  # what is odd about the line


def parse_json(line: str) -> dict:
    """A line's JSON object; raises BadLine. Half a surrogate pair, which no file can hold, is bad."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not a complete JSON object ({error})", "not JSON") from None
    if not isinstance(raw, dict):
        raise BadLine(f"a JSON object is expected, not a {type(raw).__name__}", "not an object")
    if "\\ud" in line.lower() and _SURROGATE.search(json.dumps(raw, ensure_ascii=False)):
        raise BadLine("a character is half a surrogate pair", "surrogates")
    return raw


def parse_dialogue(line: str) -> Dialogue:
    """
    Read one line; raises BadLine with the reason if it is not a dialogue.

    Exactly one leading `p1 :` is taken off a turn (the colon may be full-width, spaces may lack),
    turns alternate, and none is empty. A persona may be empty.
    """
    raw = parse_json(line)
    if "history" in raw and "conversation" not in raw:
        raise BadLine(
            "a sample of the official test, not a dialogue: use -t cpc:official_test",
            "not a dialogue",
        )
    personas = tuple(strings(raw, key) for key in _KEYS[:2])
    turns: list[tuple[int, str]] = []
    conversation = strings(raw, "conversation")
    for number, turn in enumerate(conversation, 1):
        match = SPEAKER.fullmatch(turn)
        if match is None:
            raise BadLine(
                f"turn {number} does not begin with 'p1 :' or 'p2 :': {turn[:40]!r}", "no speaker"
            )
        speaker, text = ("p1", "p2").index(match[1]), match[2].strip()
        if not text:
            raise BadLine(f"turn {number} is empty", "empty turn")
        if turns and turns[-1][0] == speaker:
            raise BadLine(
                f"turns {number - 1} and {number} are both by {match[1]}", "speakers not in turn"
            )
        turns.append((speaker, text))
    notes = []
    if len(raw) > len(_KEYS):
        notes.append("dialogues with other keys, which are not read")
    if any(not sentence.strip() for persona in personas for sentence in persona):
        notes.append("dialogues with an empty persona sentence, which is left out")
    if not all(personas):
        notes.append("dialogues with a speaker without persona")
    if len(turns) < 2:
        notes.append("dialogues of fewer than two turns, which give no pair")
    return Dialogue(personas, tuple(turns), place_of("\n".join(conversation)), tuple(notes))


def strings(raw: dict, key: str) -> tuple[str, ...]:
    """A list of strings in a JSON object."""
    if key not in raw:
        raise BadLine(f"the key {key!r} is missing", "missing key")
    value = raw[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadLine(f"{key!r} is not a list of strings", "wrong type")
    return tuple(value)


def place_of(text: str) -> float:
    """
    A number of [0, 1) by a SHA-256 hash of a text without spaces, which decides about splits.

    Neither the place in the file nor the segmentation matters, and what occurs twice is in one split.
    """
    digest = hashlib.sha256(re.sub(r"\s", "", text).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def persona_place(persona) -> float:
    """The same of a persona, whatever the order of its sentences."""
    return place_of("\n".join(sorted(re.sub(r"\s", "", sentence) for sentence in persona)))
