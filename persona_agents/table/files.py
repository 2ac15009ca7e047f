"""Writing a table's files: whole or not at all."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from persona_agents.errors import PersonaAgentsError


def write_text(path: Path, text: str) -> None:
    """Write a text file under another name, then put it in place."""
    new = path.with_name(path.name + ".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def write_json(path: Path, data, indent: int | None = 1) -> None:
    """The same with data as JSON, which knows no infinity: null stands for it and for NaN."""
    text = json.dumps(_finite(data), ensure_ascii=False, indent=indent, allow_nan=False)
    write_text(path, text + "\n")


def _finite(data):
    """The same data with None for each number that is none or infinite."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def read_json(path: Path) -> dict | None:
    """The object in a JSON file, None if it is not there; raises PersonaAgentsError if damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no JSON object")  # noqa: TRY004 - the file is wrong
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise PersonaAgentsError(
            f"{path} is damaged: {error}. Remove this file and give the command again: it is made "
            "anew."
        ) from None
    return data
