"""A study: what reviewers are asked about, in one folder.

items.json  what reviewers see: form, language, reviewers per item, items with opaque ids
key.json    what they must not see: which system wrote what, checks, seed and source files
mephisto/   Mephisto's database with the answers, made by the launch
results/    tables and picture, made by the compile step
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

from persona_agents.errors import PersonaAgentsError

ASPECTS = ("fluency", "relevance", "consistency")
# form of a study -> the values that an answer may have, from the lowest to the highest
VALUES = {"scales": (0, 1, 2), "pairs": ("a", "equal", "b")}
LANGUAGES = ("en", "zh")
TEXTS = Path(__file__).parent / "persona_rating" / "frontend" / "texts.json"


class StudyError(PersonaAgentsError, ValueError):
    """The folder of a study is missing, incomplete or was changed by hand."""


@dataclass(frozen=True)
class Study:
    """What :func:`read_study` finds in a folder. Items are the dictionaries that the page gets."""

    folder: Path
    name: str
    form: str
    language: str
    reviewers: int
    items: tuple[dict, ...]

    @property
    def database(self) -> Path:
        """Where Mephisto keeps this study's answers."""
        return self.folder / "mephisto" / "database.db"

    @property
    def task_name(self) -> str:
        """The name of the study's task in Mephisto's database."""
        return f"persona_rating_{self.name}"

    @functools.cached_property
    def key(self) -> dict:
        """key.json: which system wrote what."""
        return _read_json(self.folder / "key.json")


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StudyError(
            f"There is no {path}. Make a study first: parlai persona_rate prepare "
            f"{path.parent} --systems NAME=FILE ..."
        ) from error
    except ValueError as error:
        raise StudyError(f"{path} is not valid JSON: {error}") from error


def read_study(folder) -> Study:
    """
    Read the folder that `parlai persona_rate prepare` made.

    :raises StudyError: if it is not one
    """
    folder = Path(folder).expanduser().resolve()
    path = folder / "items.json"
    content = _read_json(path)
    try:
        study = Study(
            folder,
            content["name"],
            content["form"],
            content["language"],
            content["reviewers"],
            tuple(content["items"]),
        )
        ids = [item["id"] for item in study.items]
    except (KeyError, TypeError) as error:
        raise StudyError(f"{path} lacks {error}: prepare the study again") from error
    if study.form not in VALUES or study.language not in LANGUAGES or not ids:
        raise StudyError(f"{path} has an unknown form or language, or no items")
    if len(set(ids)) != len(ids):
        raise StudyError(f"{path} has an item twice")
    return study


def write_json(path: Path, content) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)


def texts(language: str) -> dict:
    """The page's texts; onboarding examples and their right answers among them."""
    return json.loads(TEXTS.read_text(encoding="utf-8"))[language]


def onboarding_examples(form: str, language: str) -> list[dict]:
    """The examples that a reviewer must answer rightly before the first item."""
    return texts(language)["examples"][form]


def fault_of_answers(answers, form: str) -> str | None:
    """What is wrong with the answers about one item, None if nothing is."""
    if not isinstance(answers, dict) or set(answers) != set(ASPECTS):
        return f"answers to exactly {', '.join(ASPECTS)} are needed"
    for aspect, value in answers.items():
        # True == 1, so the type is part of the comparison
        if not any(value == v and type(value) is type(v) for v in VALUES[form]):
            return f"{aspect} must be one of {', '.join(map(str, VALUES[form]))}"
    return None


def fault_of_submission(data, item: dict, form: str) -> str | None:
    """What is wrong with what a browser sent for `item`, None if nothing is."""
    if not isinstance(data, dict) or set(data) != {"item", "answers"}:
        return "a submission holds item and answers, nothing else"
    if data["item"] != item["id"]:
        return "the answers are about another item"
    return fault_of_answers(data["answers"], form)


def onboarding_is_right(data, form: str, language: str) -> bool:
    """Whether all answers to the onboarding examples are the right ones."""
    examples = onboarding_examples(form, language)
    return (
        isinstance(data, dict)
        and data.get("answers") == [example["answers"] for example in examples]
        and all(fault_of_answers(answers, form) is None for answers in data["answers"])
    )
