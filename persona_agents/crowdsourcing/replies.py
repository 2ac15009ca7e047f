"""Which systems' replies are compared: found, read, and matched sample by sample."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply
from persona_agents.scripts.persona_score_files import read_replies

GOLD = "gold"
REPLIES = "replies.jsonl"  # as parlai persona_table names them
SWAPPED = "swapped"  # its folder of replies under other personas


class RepliesError(PersonaAgentsError, ValueError):
    """Files of replies are missing or do not belong together."""


def find_systems(arguments, test_set: str | None = None) -> dict[str, Path]:
    """
    Which file holds which system's replies.

    :param arguments: `NAME=FILE`, or a task's folder in a folder of `parlai persona_table`, which
        stands for all its trained systems with their first seed
    :param test_set: which test set's replies are taken from such a folder
    """
    systems = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if equals and name and path:
            found = {name: Path(path).expanduser()}
        elif Path(argument).expanduser().is_dir():
            found = _systems_of_table(Path(argument).expanduser(), test_set)
        else:
            raise RepliesError(
                f"--systems {argument}: neither NAME=FILE nor a task's folder of persona_table"
            )
        for name, path in found.items():
            if name == GOLD:
                raise RepliesError(f"{GOLD!r} is the name of the gold replies; use another")
            if name in systems:
                raise RepliesError(f"--systems has {name!r} twice")
            systems[name] = path
    return systems


def _systems_of_table(folder: Path, test_set: str | None) -> dict[str, Path]:
    """Below a task's folder lie SYSTEM/seedN/TEST_SET/replies.jsonl."""
    found = {}
    for path in sorted(folder.glob(f"*/seed*/*/{REPLIES}"), key=_seed):
        if path.parent.name != SWAPPED and test_set in (None, path.parent.name):
            found.setdefault((path.parts[-4], path.parent.name), path)
    sets = sorted({name for _, name in found})
    if not sets:
        raise RepliesError(f"--systems {folder}: no */seed*/{test_set or '*'}/{REPLIES} in it")
    if len(sets) > 1:
        raise RepliesError(f"--systems {folder}: choose one by --test-set: {', '.join(sets)}")
    return {system: path for (system, _), path in found.items()}


def _seed(path: Path) -> tuple:
    number = path.parts[-3][len("seed") :]
    return path.parts[-4], int(number) if number.isdigit() else 0, path


def match_replies(systems: dict[str, list[Reply]]) -> list[dict[str, Reply]]:
    """
    The samples that every system answered, in the first system's order.

    Samples are the same if persona and query are; the n-th repetition of one matches the n-th
    repetition in another system's replies.

    :return: for each sample the reply of each system
    """
    tables = []
    for replies in systems.values():
        seen, table = Counter(), {}
        for reply in replies:
            sample = (tuple(reply.persona), reply.query)
            table[(*sample, seen[sample])] = reply
            seen[sample] += 1
        tables.append(table)
    common = [key for key in tables[0] if all(key in table for table in tables[1:])]
    return [dict(zip(systems, (table[key] for table in tables))) for key in common]


def with_gold(sample: dict[str, Reply]) -> dict[str, Reply]:
    """Add the gold reply to one sample, from the first file that has it."""
    any_reply = next(iter(sample.values()))
    gold = next((reply.references[0] for reply in sample.values() if reply.references), None)
    if gold is None:
        raise RepliesError(
            f"--gold: no file has a gold reply to {any_reply.query!r}. World logs hold it, and "
            'JSON lines in the field "references"'
        )
    return {**sample, GOLD: Reply(gold, (), any_reply.persona, any_reply.query)}


__all__ = ["GOLD", "RepliesError", "find_systems", "match_replies", "read_replies", "with_gold"]
