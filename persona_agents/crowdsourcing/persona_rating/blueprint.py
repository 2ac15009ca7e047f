"""The task as Mephisto knows it: items of a study, a page without a build step, onboarding."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from mephisto.abstractions.blueprint import Blueprint, TaskBuilder
from mephisto.abstractions.blueprints.static_html_task.static_html_blueprint import (
    StaticHTMLBlueprint,
    StaticHTMLBlueprintArgs,
)
from mephisto.data_model.assignment import InitializationData
from mephisto.operations.registry import register_mephisto_abstraction
from omegaconf import MISSING

from persona_agents.crowdsourcing.persona_rating.ledger import Ledger
from persona_agents.crowdsourcing.persona_rating.state import RatingRunner, RatingState
from persona_agents.crowdsourcing.study import (
    LANGUAGES,
    onboarding_examples,
    onboarding_is_right,
    read_study,
)

BLUEPRINT_TYPE = "persona_rating"
FRONTEND = Path(__file__).parent / "frontend"


@dataclass
class PersonaRatingArgs(StaticHTMLBlueprintArgs):
    """Options of the task beside those of any static page."""

    _blueprint_type: str = BLUEPRINT_TYPE
    _group: str = field(
        default="PersonaRating",
        metadata={"help": "Rating of a persona dialogue system's replies"},
    )
    study: str = field(
        default=MISSING,
        metadata={
            "help": "Folder that parlai persona_rate prepare has made",
            "required": True,
        },
    )
    task_source: str = str(FRONTEND / "index.html")
    # hydra evaluates these types, and Python 3.9 has no `str | None`
    preview_source: Optional[str] = None  # noqa: UP045
    onboarding_source: Optional[str] = None  # noqa: UP045
    extra_source_dir: Optional[str] = None  # noqa: UP045


class PersonaRatingBuilder(TaskBuilder):
    """Copies the page. It has no build step: neither npm nor webpack runs."""

    def build_in_dir(self, build_dir: str) -> None:
        static = Path(build_dir) / "static"
        static.mkdir(exist_ok=True)
        for path in FRONTEND.iterdir():
            shutil.copy(path, static / path.name)


@register_mephisto_abstraction()
class PersonaRatingBlueprint(StaticHTMLBlueprint):
    """Rating of replies, one item a task, as many reviewers as the study says."""

    AgentStateClass = RatingState
    OnboardingAgentStateClass = RatingState
    TaskBuilderClass = PersonaRatingBuilder
    TaskRunnerClass = RatingRunner
    ArgsClass = PersonaRatingArgs
    BLUEPRINT_TYPE = BLUEPRINT_TYPE

    def __init__(self, task_run, args, shared_state):
        super().__init__(task_run, args, shared_state)
        self.study = read_study(args.blueprint.study)
        self.ledger = Ledger(task_run.db, self.study)
        self._items_by_assignment: dict[str, dict] = {}
        # units learn from their agents that they are finished, but only when asked
        shared_state.on_unit_submitted = lambda unit: unit.get_status()

    @classmethod
    def assert_task_args(cls, args, shared_state) -> None:
        """Check the study before anything is written. The page and the items come from us."""
        Blueprint.assert_task_args(args, shared_state)
        read_study(args.blueprint.study)

    def get_initialization_data(self) -> list[InitializationData]:
        """One assignment for each item that lacks ratings, with one unit for each that it lacks."""
        self._handed_out = [i for i in self.study.items if self.ledger.missing(i["id"])]
        return [
            InitializationData(shared=item, unit_data=[{}] * self.ledger.missing(item["id"]))
            for item in self._handed_out
        ]

    def note_assignments(self, assignments) -> None:
        """Keep which assignment has which item: Mephisto would read a file each time."""
        for assignment, item in zip(assignments, self._handed_out):
            self._items_by_assignment[assignment.db_id] = item

    def item_of(self, unit) -> dict:
        """The item of a unit."""
        item = self._items_by_assignment.get(unit.assignment_id)
        return item or unit.get_assignment_data().shared

    def get_frontend_args(self) -> dict[str, Any]:
        """What the page can read before a reviewer has begun."""
        return {
            **super().get_frontend_args(),
            "form": self.study.form,
            "language": self.study.language,
        }

    def get_onboarding_data(self, worker_id: str) -> dict[str, Any]:
        """The examples, in every language of the page. They are there to teach, answers included."""
        languages = [onboarding_examples(self.study.form, language) for language in LANGUAGES]
        return {"examples": [dict(zip(LANGUAGES, example)) for example in zip(*languages)]}

    def validate_onboarding(self, worker, onboarding_agent) -> bool:
        """Whether every example was answered rightly; the answers are the same in all languages."""
        outputs = onboarding_agent.state.get_data()["outputs"]
        return onboarding_is_right(outputs, self.study.form, self.study.language)
