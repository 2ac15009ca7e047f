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
from functools import lru_cache

from persona_agents.tasks.base import BadLineError, Sample, find_file, read_lines
from persona_agents.tasks.content_words import is_relevant

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn

SILENCE = "__SILENCE__"  # the query of the one who speaks first
HOW_TO_GET = (
    "--personachat-path wants the files {train,valid,test}_self_original.txt in ParlAI's Persona-Chat "
    "format. Without that option ParlAI fetches them; -t personachat_single_turn:mini needs none."
)
_NUMBERED = re.compile(r"(\d+) (.*)")


def read_samples(path: str):
    """Yield a Sample for each turn that answers something; a malformed line is a BadLineError."""
    persona: list[str] = []
    expected = 1
    for number, line in read_lines(path):
        match = _NUMBERED.fullmatch(line.strip(" "))
        if match is None:
            raise BadLineError(path, number, "it does not begin with a number and a space")
        if int(match[1]) == 1:
            persona, expected = [], 1
        if int(match[1]) != expected:
            raise BadLineError(path, number, f"it is numbered {match[1]}, not {expected}")
        expected += 1
        fields = [field.strip() for field in match[2].split("\t")]
        if len(fields) == 1:
            turn = parse_turn(fields[0])
            if turn.query:
                reason = "neither a persona line nor a query and a reply with a tab between"
                raise BadLineError(path, number, reason)
            persona += turn.persona
            continue
        query, reply = fields[:2]
        if not query or not reply:
            raise BadLineError(path, number, "the query is empty" if not query else "no reply")
        if query != SILENCE:
            yield Sample(tuple(persona), query, reply)


@lru_cache(maxsize=8)
def _samples(path: str, changed: int, minimum: int) -> list[Sample]:
    return [
        sample
        for sample in read_samples(path)
        if is_relevant(sample.response, sample.persona, minimum, "en")
    ]


def _load(path: str, minimum: int) -> list[Sample]:
    samples = _samples(path, os.stat(path).st_mtime_ns, minimum)
    if not samples:
        raise PersonaAgentsError(
            f"{path} gives no sample. It may be empty, or --persona-filter is too strict."
        )
    return samples


def load(opt, split: str, minimum: int) -> list[Sample]:
    """
    The samples of a split, from --personachat-path or from the data that ParlAI itself builds.

    :param opt: ParlAI's options
    :param str split: 'train', 'valid' or 'test'
    :param int minimum: least number of content words shared with a persona sentence; 0 keeps all
    """
    folder = opt.get("personachat_path")
    if not folder:
        folder = os.path.join(opt["datapath"], "Persona-Chat", "personachat")
        fetch(opt)
    return _load(find_file(folder, (f"{split}_self_original.txt",), HOW_TO_GET), minimum)


def fetch(opt) -> None:
    """Let ParlAI download its Persona-Chat unless it is there."""
    from parlai.tasks.personachat.build import build

    try:
        build(opt)
    except Exception as error:  # whatever the network, the archive or the disk raise
        raise PersonaAgentsError(
            f"ParlAI could not fetch Persona-Chat into {opt['datapath']} ({error}). Give the folder "
            "of {train,valid,test}_self_original.txt with --personachat-path; "
            "-t personachat_single_turn:mini needs no data."
        ) from error


def load_mini(split: str) -> list[Sample]:
    """The samples of a split of the bundled data."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mini")
    return _load(os.path.join(folder, f"{split}.txt"), 0)
