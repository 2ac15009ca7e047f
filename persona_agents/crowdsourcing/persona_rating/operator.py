"""Mephisto's operator, with an end: it stops when all is rated, and cleans up in any case."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from mephisto.operations.operator import Operator
from mephisto.utils.logger_core import get_logger

from persona_agents.crowdsourcing.persona_rating.database import take_back

logger = get_logger(name=__name__)

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_BETWEEN_PLATFORM_LOOKS = 60
# the last reviewer's page still asks whether its answers are saved
SECONDS_FOR_LAST_PAGES = 3


class RatingOperator(Operator):
    """
    Runs one study.

    Mephisto's own loop asks for every unit's state again and again, is blocked meanwhile, and its
    cleaning up is cut short by a second Ctrl-C, which leaves the web server behind.
    """

    @property
    def run(self):
        """The run that was launched."""
        (run,) = self.get_running_task_runs().values()
        return run

    async def _track_and_kill_runs(self):
        """Nothing: :meth:`serve` watches the run."""

    def serve(self, stop: threading.Event, patience: float, report=lambda: None) -> str:
        """
        Handle reviewers' requests until the end.

        :param stop: set to stop
        :param patience: seconds without a new answer after which the run stops
        :param report: called now and then
        :return: why it ended
        """
        asyncio.set_event_loop(self._event_loop)
        return self._event_loop.run_until_complete(self._watch(stop, patience, report))

    async def _watch(self, stop, patience, report) -> str:
        runner, run = self.run.task_runner, self.run
        looked = time.monotonic()
        while not stop.is_set():
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            report()
            if not runner.ledger.total_missing() and not runner.running_units:
                await asyncio.sleep(SECONDS_FOR_LAST_PAGES)
                return "complete"
            server = getattr(run.architect, "server_process", None)
            if server is not None and server.poll() is not None:
                return "the page's server has ended"
            if run.force_shutdown:
                return "the connection to the page's server was lost"
            if time.time() - runner.last_answer > patience:
                return f"no answer in {patience:.0f} seconds"
            if (
                run.provider.PROVIDER_TYPE != "mock"
                and time.monotonic() - looked > SECONDS_BETWEEN_PLATFORM_LOOKS
            ):
                looked = time.monotonic()
                run.task_run.update_completion_progress(task_launcher=run.task_launcher)
                if run.task_run.get_is_completed():
                    return "no task is open on the platform any more"
        return "interrupted"

    def close(self) -> None:
        """End all threads, connections and processes of the run; what fails does not stop the rest."""
        for run in self._task_runs_tracked.values():
            steps = [
                run.task_runner.shutdown,  # answers that are stored become completed units
                run.worker_pool.disconnect_active_agents,
                self._handle_what_waits,  # messages to pages, while there is a connection
                run.task_launcher.shutdown,
                lambda run=run: [take_back(unit) for unit in run.task_launcher.units],
                run.client_io.shutdown,
                run.worker_pool.shutdown,
                run.architect.shutdown,
            ]
            for step in steps:
                try:
                    step()
                except Exception:
                    logger.exception(f"{step} failed while the run was cleaned up")
        self.is_shutdown = True
        with contextlib.suppress(asyncio.CancelledError):
            self._event_loop.run_until_complete(self._drain())
        self._event_loop.close()

    def _handle_what_waits(self) -> None:
        self._event_loop.run_until_complete(asyncio.sleep(0.1))

    async def _drain(self) -> None:
        """Let what is queued on the loop end."""
        own = asyncio.current_task()
        await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
