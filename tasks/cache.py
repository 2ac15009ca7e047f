"""Samples on disk: made from the raw files once, read in a second at later starts.

A file of five lines of JSON: a header (what it is made from, how many, the report), the texts, the
personas, three numbers a sample (persona, query, response), and the lengths of the episodes, or
null for single turns. It is written under a lock, to another name first: a reader never sees half of
it, two processes that start together build it once, and one that is killed leaves nothing that
would be taken for data.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence

from parlai.utils import logging
from persona_agents.tasks.base import Sample
from persona_agents.tasks.files import LARGE, locked

from persona_agents.errors import PersonaAgentsError

FORMAT = 1  # to be raised whenever the same raw files would give other samples


class StoredSamples(Sequence):
    """
    The samples (or episodes, which are lists of samples) in a file of the cache.

    Only the header is read at first, which tells how many there are; the rest when it is needed.
    """

    def __init__(self, path: str, header: dict):
        self.path, self.header = path, header
        self.report: dict = header["report"]
        self._items: list | None = None

    def __len__(self) -> int:
        return self.header["items"]

    @property
    def num_examples(self) -> int:
        return self.header["examples"]

    def __getitem__(self, index):
        if self._items is None:
            self._items = self._read()
        return self._items[index]

    def __iter__(self):
        return iter(self[:])

    def _read(self) -> list:
        try:
            with open(self.path, encoding="utf-8") as file:
                same = json.loads(file.readline()) == self.header
                texts, personas, numbers, lengths = (json.loads(line) for line in file)
        except (OSError, ValueError) as error:
            raise PersonaAgentsError(
                f"{self.path} cannot be read ({error}). Delete it; it is made anew at the next start."
            ) from None
        if not same:
            raise PersonaAgentsError(
                f"{self.path} was made anew from other data since this program has started. Start again."
            )
        sentences = [tuple(persona) for persona in personas]
        take = iter(numbers)
        samples = [Sample(sentences[p], texts[q], texts[r]) for p, q, r in zip(take, take, take)]
        if lengths is None:
            return samples
        rest = iter(samples)
        return [[next(rest) for _ in range(length)] for length in lengths]


def folder_of(opt) -> str:
    """Where the samples are stored: DATAPATH/persona_agents."""
    return os.path.join(opt["datapath"], "persona_agents")


def path_of(folder: str, task: str, made_from: dict, split: str) -> str:
    """Where a split is stored. Another version of the same source replaces the one before."""
    same = {**made_from, "files": [stamp and stamp[:2] for stamp in made_from["files"]]}
    digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode("utf-8")).hexdigest()[:16]
    return os.path.join(folder, f"{task}-{digest}-{split}.json")


def load(folder: str | None, task: str, made_from: dict, split: str, build):
    """
    The samples of a split, from the cache if they are there, else from `build`, and stored.

    :param folder: of the cache; None: build, store nothing
    :param str task: name of the task
    :param dict made_from: all that decides what the samples are: `files` (their stamps), settings
    :param str split: which
    :param build: called without arguments; returns {split: samples or episodes} and a Report
    :return: a sequence of samples or episodes; lengths and report need no reading of the rest
    """
    if folder is None or sum(stamp[2] for stamp in made_from["files"] if stamp) < LARGE:
        return build()[0][split]
    made_from = json.loads(json.dumps({**made_from, "format": FORMAT}))  # as it will be read back
    path = path_of(folder, task, made_from, split)
    stored = _open(path, made_from)
    if stored is not None:
        if skipped := sum(stored.report["skipped"].values()):
            logging.info(f"{skipped} bad lines were left out when {path} was made.")
        return stored
    parts = None
    try:
        os.makedirs(folder, exist_ok=True)
        with locked(path_of(folder, task, made_from, "lock"), "which builds the same samples"):
            stored = _open(path, made_from)  # another process may have built it meanwhile
            if stored is not None:
                return stored
            parts, report = build()
            for name, items in parts.items():
                _write(path_of(folder, task, made_from, name), items, made_from, report)
    except OSError as error:
        logging.warning(
            f"The samples cannot be stored in {folder} ({error}), so they are made again at each "
            "start. Make room there, or name another folder with --datapath."
        )
    return (parts or build()[0])[split]


def _open(path: str, made_from: dict) -> StoredSamples | None:
    """A stored split, None unless it is there, complete, and made from just this."""
    try:
        with open(path, "rb") as file:
            first = file.readline()
            header = json.loads(first)
            whole = os.fstat(file.fileno()).st_size == len(first) + header["bytes"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return StoredSamples(path, header) if whole and header["made_from"] == made_from else None


def _write(path: str, items: list, made_from: dict, report) -> None:
    """Store a split; either all of it or nothing."""
    texts: dict[str, int] = {}
    personas: dict[tuple, int] = {}
    numbers: list[int] = []
    lengths = None if not items or isinstance(items[0], Sample) else [len(item) for item in items]
    for persona, query, response in (
        items if lengths is None else (s for item in items for s in item)
    ):
        numbers.append(personas.setdefault(persona, len(personas)))
        numbers.append(texts.setdefault(query, len(texts)))
        numbers.append(texts.setdefault(response, len(texts)))
    tables = (list(texts), list(personas), numbers, lengths)
    body = "".join(json.dumps(table, ensure_ascii=False) + "\n" for table in tables).encode("utf-8")
    header = {
        "made_from": made_from,
        "items": len(items),
        "examples": len(numbers) // 3,
        "report": report.to_dict(),
        "bytes": len(body),
    }
    temporary = f"{path}.new"
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps(header, ensure_ascii=False).encode("utf-8") + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
