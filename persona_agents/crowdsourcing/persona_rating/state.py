"""How answers are accepted: one at a time, checked, stored before they count, never twice."""

from __future__ import annotations

import os
import threading
import time

from mephisto.abstractions.blueprint import AgentState
from mephisto.abstractions.blueprints.abstract.static_task.static_agent_state import (
    DATA_FILE,
    StaticAgentState,
)
from mephisto.abstractions.blueprints.abstract.static_task.static_task_runner import (
    StaticTaskRunner,
)
from mephisto.data_model.agent import Agent
from mephisto.data_model.exceptions import (
    AgentDisconnectedError,
    AgentReturnedError,
    AgentShutdownError,
    AgentTimeoutError,
)
from mephisto.utils.logger_core import get_logger

from persona_agents.crowdsourcing.study import fault_of_submission

logger = get_logger(name=__name__)

TOO_LATE = "the time for this item was over, or it was given to somebody else"
REPEATED = "this item has been rated by this reviewer before"
MALFORMED = "the submission is malformed"


class RatingState(StaticAgentState):
    """
    What one reviewer was shown (inputs) and answered (outputs) about one item.

    Mephisto takes whatever arrives and overwrites what was there. Here a submission is stored if it
    is the first, well formed, and in time; everything else is refused and changes nothing.
    """

    def __init__(self, agent):
        self.lock = threading.Lock()
        self.is_closed = False
        self.refused: str | None = None
        super().__init__(agent)

    def _save_data(self) -> None:
        """Write the data whole or not at all: a killed run must leave no half of a file."""
        path = os.path.join(self.agent.get_data_dir(), DATA_FILE)
        self.agent.db.write_dict(path + ".new", self.state)
        os.replace(path + ".new", path)

    @property
    def is_accepted(self) -> bool:
        """Whether answers are stored."""
        return bool(self.state["outputs"])

    def update_submit(self, submission_data) -> None:
        """Store the answers of a reviewer, or refuse them with a reason."""
        if not isinstance(self.agent, Agent):  # onboarding: judged by the blueprint
            plain = submission_data if isinstance(submission_data, dict) else {}
            super().update_submit(plain)
            return
        runner = self.agent.get_live_run().task_runner
        ledger, worker = runner.ledger, self.agent.get_worker().worker_name
        item = self.state["inputs"]
        with ledger.lock, self.lock:
            self.refused = self._fault(submission_data, ledger, item, worker)
            if self.refused is None:
                super().update_submit(submission_data)
                ledger.add(item["id"], worker)
                runner.last_answer = time.time()
        if self.refused:
            logger.warning(f"{self.agent}: submission refused: {self.refused}")
        # The thread that waits may have looked before the answers were stored.
        self.agent.did_submit.set()

    def _fault(self, data, ledger, item, worker) -> str | None:
        if self.is_accepted or (item and ledger.has(item["id"], worker)):
            return REPEATED
        if self.is_closed or item is None or self.agent.get_status() in AgentState.complete():
            return TOO_LATE
        fault = fault_of_submission(data, item, ledger.study.form)
        return fault and f"{MALFORMED}: {fault}"

    def close(self) -> bool:
        """
        Stop taking answers.

        :return: False if answers came in before
        """
        with self.lock:
            self.is_closed = not self.is_accepted
            return self.is_closed


class RatingRunner(StaticTaskRunner):
    """Hands items to reviewers and waits for answers that are stored."""

    def __init__(self, task_run, args, shared_state):
        super().__init__(task_run, args, shared_state)
        self.ledger = task_run.get_blueprint().ledger
        self.last_answer = time.time()
        self._holders = {}  # (item, worker) -> id of the agent that holds it
        self._holders_lock = threading.Lock()

    def filter_units_for_worker(self, units, worker):
        """Leave out what this reviewer has rated, in earlier runs too."""
        name = worker.worker_name
        return [unit for unit in units if not self.ledger.has(self._item_of(unit)["id"], name)]

    def _item_of(self, unit) -> dict:
        return self.task_run.get_blueprint().item_of(unit)

    def get_init_data_for_agent(self, agent) -> dict:
        """
        What the page needs: the item, and what has become of the answers.

        The page asks for this again after each submission, so that it only says "saved" when the
        answers are on disk.
        """
        item = self._item_of(agent.get_unit())
        worker = agent.get_worker().worker_name
        with self._holders_lock:
            holder = self._holders.setdefault((item["id"], worker), agent.db_id)
        agent.state.set_init_state(item)
        state = agent.state
        refused = state.refused
        if not state.is_accepted and agent.get_status() in AgentState.complete():
            refused = refused or TOO_LATE
        return {
            "item": item,
            "accepted": state.is_accepted,
            "refused": refused,
            "duplicate": holder != agent.db_id,
            "progress": self.ledger.progress(worker),
        }

    def run_unit(self, unit, agent) -> None:
        """Wait until answers are stored, or the time is over, or the run is stopped."""
        item, worker = self._item_of(unit)["id"], agent.get_worker().worker_name
        try:
            # Two windows of one reviewer that asked in the same moment: only the first is served.
            if self._holders.get((item, worker)) != agent.db_id:
                raise AgentReturnedError(agent.db_id)
            self._wait_for_answers(agent)
        except (AgentReturnedError, AgentTimeoutError, AgentDisconnectedError, AgentShutdownError):
            if agent.state.close():
                with self._holders_lock:
                    if self._holders.get((item, worker)) == agent.db_id:
                        del self._holders[(item, worker)]
                raise

    def _wait_for_answers(self, agent) -> None:
        end = time.monotonic() + self.assignment_duration_in_seconds
        while not agent.state.is_accepted:
            # Mephisto wakes the thread for a refused submission and at shutdown as well, and would
            # take both for a finished task.
            agent.await_submit(max(0.001, end - time.monotonic()))
            if agent.is_shutdown and not agent.state.is_accepted:
                raise AgentShutdownError(agent.db_id)
            agent.did_submit.clear()
        agent.did_submit.set()
