"""Answers messages that arrive together in one batch, outside the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from parlai.core.message import Message
from parlai.core.torch_generator_agent import TorchGeneratorAgent
from parlai.utils import logging

BATCH = 32  # messages answered at once
WINDOW = 0.03  # seconds that a first message waits for others
WAITING = 256  # messages that may wait
BEAM_SIZE = 5  # of "beam", where the model's options name no size


class BusyError(Exception):
    """Too many messages are waiting."""


class Job(NamedTuple):
    """One visitor's message."""

    clone: object  # the visitor's agent, which knows the chat so far
    message: Message
    search: str | None
    answer: asyncio.Future


def searches(agent) -> list[str]:
    """The searches that a visitor can choose from, the agent's own first; none without a generator."""
    if not isinstance(agent, TorchGeneratorAgent):
        return []
    return list(dict.fromkeys((agent.opt.get("inference") or "greedy", "greedy", "beam")))


@contextlib.contextmanager
def searching(agent, search: str | None):
    """Let the agent search in another way for a while."""
    if search is None or search == agent.opt.get("inference"):
        yield
        return
    before = agent.opt.get("inference"), agent.opt.get("beam_size"), agent.beam_size
    size = agent.opt.get("beam_size") or 1
    size = 1 if search == "greedy" else max(size, BEAM_SIZE if size == 1 else size)
    agent.opt["inference"], agent.opt["beam_size"], agent.beam_size = search, size, size
    try:
        yield
    finally:
        agent.opt["inference"], agent.opt["beam_size"], agent.beam_size = before


class Batcher:
    """
    The one place where the model computes.

    :param agent: the root agent, whose clones the visitors have.
    :param limit: greatest number of messages in a batch.
    :param window: seconds to wait for further messages when the model is idle.
    """

    def __init__(self, agent, limit: int = BATCH, window: float = WINDOW):
        self.agent, self.limit, self.window = agent, limit, window
        self.jobs: asyncio.Queue[Job] = asyncio.Queue(WAITING)
        self.thread = ThreadPoolExecutor(1, "model")
        self.sizes: list[int] = []  # of the batches so far, the last hundred

    async def answer(self, clone, message: Message, search: str | None = None) -> Message:
        """
        The clone's answer to a message.

        :raise BusyError: when too many are waiting.
        :raise Exception: whatever the agent raised for this message.
        """
        future = asyncio.get_running_loop().create_future()
        try:
            self.jobs.put_nowait(Job(clone, message, search, future))
        except asyncio.QueueFull:
            raise BusyError from None
        return await future

    async def clone(self):
        """A new clone of the agent, made while the model is idle: that touches the root's options."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, self.agent.clone)

    async def run(self) -> None:
        """Answer until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self.jobs.get()]
            if self.jobs.qsize() + 1 < self.limit:
                await asyncio.sleep(self.window)
            while len(batch) < self.limit and not self.jobs.empty():
                batch.append(self.jobs.get_nowait())
            self.sizes = [*self.sizes[-99:], len(batch)]
            answers = await loop.run_in_executor(self.thread, self._act, batch)
            for job, answer in zip(batch, answers):
                if job.answer.done():  # cancelled: the visitor has gone
                    continue
                if isinstance(answer, Exception):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)

    def close(self) -> None:
        """Let the thread end after its present batch."""
        self.thread.shutdown(wait=False)

    # -- in the model's thread -------------------------------------------------------------------

    def _act(self, jobs: list[Job]) -> list[Message | Exception]:
        """Answers, or what went wrong, in the order of the jobs."""
        answers: dict[int, Message | Exception] = {}
        for search in dict.fromkeys(job.search for job in jobs):
            chosen = [i for i, job in enumerate(jobs) if job.search == search]
            with searching(self.agent, search):
                answers.update(zip(chosen, self._act_alike([jobs[i] for i in chosen])))
        return [answers[i] for i in range(len(jobs))]

    def _act_alike(self, jobs: list[Job]) -> list[Message | Exception]:
        found: list[Message | Exception | None] = [None] * len(jobs)
        observed = []
        for i, job in enumerate(jobs):
            try:
                observed.append((i, job.clone, job.clone.observe(job.message)))
            except Exception as error:  # noqa: BLE001 - one visitor's message stops no other's
                found[i] = _logged(error)
        for i, answer in zip((i for i, *_ in observed), self._answers(observed)):
            found[i] = answer
        return found

    def _answers(self, observed) -> list[Message | Exception]:
        """Answers to (number, clone, observation); one by one where the whole batch fails."""
        if not observed:
            return []
        try:
            if len(observed) == 1 or not hasattr(self.agent, "batch_act"):
                return [self._alone(clone, observation) for _, clone, observation in observed]
            answers = self.agent.batch_act([observation for *_, observation in observed])
        except Exception as error:  # noqa: BLE001
            if len(observed) == 1:
                return [_logged(error)]
            return [answer for one in observed for answer in self._answers([one])]
        return [_heard(clone, answer) for (_, clone, _), answer in zip(observed, answers)]

    def _alone(self, clone, observation) -> Message:
        if not hasattr(self.agent, "batch_act"):
            return clone.act()
        return _heard(clone, self.agent.batch_act([observation])[0])


def _heard(clone, answer) -> Message:
    """The answer, which the clone now knows that it gave."""
    clone.self_observe(answer)
    return answer


def _logged(error: Exception) -> Exception:
    logging.error(f"A message was not answered: {type(error).__name__}: {error}")
    return error
