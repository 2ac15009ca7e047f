"""Who has rated what, read from Mephisto's database: the answers there are the only record."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass

from mephisto.abstractions.blueprint import AgentState
from mephisto.data_model.constants.assignment_state import AssignmentState

from persona_agents.crowdsourcing.persona_rating.database import take_back
from persona_agents.crowdsourcing.study import Study, fault_of_submission

# Answers that a requester has turned down are asked for again.
TURNED_DOWN = (AgentState.STATUS_REJECTED, AgentState.STATUS_SOFT_REJECTED)


@dataclass(frozen=True)
class Answer:
    """One reviewer's answers about one item; `seconds` is None where a time is missing."""

    item: str
    reviewer: str
    answers: dict
    seconds: float | None


def _stored(agent) -> dict | None:
    """What an agent has stored; None for one that was cut off before anything was."""
    try:
        return agent.state.get_data()
    except ValueError:  # the process was killed while an older version wrote the file
        return None


def read_answers(db, study: Study) -> list[Answer]:
    """
    Every answer that is stored, of all runs of this study, each reviewer and item once.

    What counts is that the answers are on disk, not the agent's status: that is written later, and
    a killed run may not have come to it.
    """
    items = {item["id"]: item for item in study.items}
    answers = {}
    for task in db.find_tasks(task_name=study.task_name):
        for agent in db.find_agents(task_id=task.db_id):
            data = None if agent.db_status in TURNED_DOWN else _stored(agent)
            outputs = data and data.get("outputs")
            item = items.get(((data or {}).get("inputs") or {}).get("id"))
            if not outputs or item is None or fault_of_submission(outputs, item, study.form):
                continue
            worker = agent.get_worker()
            times = agent.state.get_task_start(), agent.state.get_task_end()
            answers.setdefault(
                (worker.db_id, item["id"]),
                Answer(
                    item["id"],
                    worker.worker_name,
                    outputs["answers"],
                    None if None in times else round(times[1] - times[0], 1),
                ),
            )
    return list(answers.values())


class Ledger:
    """
    The live view of a study while it runs: answers are added as they are stored.

    Safe to use from several threads.
    """

    def __init__(self, db, study: Study):
        self.study = study
        self.lock = threading.RLock()
        self._reviewers = defaultdict(set)  # item -> names of its reviewers
        self._count = Counter()  # reviewer -> how many items
        for answer in read_answers(db, study):
            self.add(answer.item, answer.reviewer)

    def add(self, item: str, reviewer: str) -> None:
        """Record that a reviewer's answers about an item are stored."""
        with self.lock:
            self._reviewers[item].add(reviewer)
            self._count[reviewer] += 1

    def has(self, item: str, reviewer: str) -> bool:
        """Whether the reviewer has rated the item."""
        return reviewer in self._reviewers[item]

    def missing(self, item: str) -> int:
        """How many reviewers an item still needs."""
        return max(0, self.study.reviewers - len(self._reviewers[item]))

    def total_missing(self) -> int:
        """How many ratings the study still needs."""
        return sum(self.missing(item["id"]) for item in self.study.items)

    def progress(self, reviewer: str) -> dict:
        """For the page: how far this reviewer is."""
        own = self._count[reviewer]
        free = sum(
            1
            for item in self.study.items
            if self.missing(item["id"]) and not self.has(item["id"], reviewer)
        )
        return {"done": own, "total": own + free}


def settle_old_runs(db, study: Study) -> None:
    """
    Bring the database in order after a run that was interrupted, even killed.

    Agents whose answers are stored become completed; other open agents are disconnected and open
    units expire (on Mechanical Turk this takes the tasks off the market).
    """
    for task in db.find_tasks(task_name=study.task_name):
        for agent in db.find_agents(task_id=task.db_id):
            data = _stored(agent)
            if data and data.get("outputs"):
                if agent.db_status not in (
                    AgentState.STATUS_COMPLETED,
                    AgentState.STATUS_APPROVED,
                    *TURNED_DOWN,
                ):
                    agent.update_status(AgentState.STATUS_COMPLETED)
                unit = agent.get_unit()
                if unit.get_db_status() in AssignmentState.incomplete():
                    # Mephisto writes it after the agent's; get_status takes it from the agent.
                    unit.get_status()
            elif agent.db_status not in AgentState.complete():
                agent.update_status(AgentState.STATUS_DISCONNECT)
        for unit in db.find_units(task_id=task.db_id):
            take_back(unit)
