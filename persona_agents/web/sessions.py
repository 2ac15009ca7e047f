"""The visitors' chats: one clone of the agent, one persona and one history each."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

from parlai.core.message import Message

from persona_agents.agents.history import PersonaHistory
from persona_agents.persona import format_turn
from persona_agents.web.batcher import BATCH, Batcher, BusyError, searches

MOST = 1000  # chats at a time
LIFETIME = 30 * 60  # seconds after which an unused chat is forgotten
IMPATIENT = 8  # messages of one chat that may wait for each other
SWEEP = 60  # seconds between looks for such chats


class FullError(Exception):
    """There are as many chats as there may be."""


class Session:
    """One visitor's chat. Whoever speaks to it or changes it does so within :meth:`turn`."""

    def __init__(self, batcher: Batcher, clone, persona: tuple[str, ...]):
        self.batcher = batcher
        self.id = secrets.token_urlsafe(16)
        self.clone = clone
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.used = time.monotonic()
        # Our own agents keep the persona apart from the turns; others are told it in the first turn.
        history = getattr(clone, "history", None)
        self.history = history if isinstance(history, PersonaHistory) else None
        self.persona: tuple[str, ...] = ()
        self.told = False
        self.set_persona(persona)

    @contextlib.asynccontextmanager
    async def turn(self):
        """Hold the lock; BusyError when too many of this chat's requests wait for it already."""
        if self.waiting >= IMPATIENT:
            raise BusyError
        self.waiting += 1
        try:
            async with self.lock:
                yield
        finally:
            self.waiting -= 1

    def set_persona(self, persona: tuple[str, ...]) -> bool:
        """Give the agent a persona; whether it had to begin a new chat for that."""
        if self.history is not None:
            self.persona = self.history.persona = persona
            return False
        if persona != self.persona:
            self.persona = persona
            self.reset()
            return True
        return False

    def reset(self) -> None:
        """Forget what was said, but not the persona."""
        self.clone.reset()
        self.told = False
        if self.history is not None:
            self.history.persona = self.persona

    async def answer(self, query: str, search: str | None) -> Message:
        """The agent's answer to what the visitor says; after a failure the chat begins anew."""
        text = query
        if self.history is None and not self.told:
            text = format_turn(self.persona, query)
        message = Message(id="visitor", text=text, episode_done=False)
        try:
            answer = await self.batcher.answer(self.clone, message, search)
        except BusyError:
            raise
        except Exception:
            self.reset()
            raise
        self.told = True
        return answer


class Sessions:
    """All chats, found by their secret names."""

    def __init__(self, batcher: Batcher, most: int = MOST, lifetime: float = LIFETIME):
        self.batcher, self.most, self.lifetime = batcher, most, lifetime
        self.chats: dict[str, Session] = {}

    async def create(self, persona: tuple[str, ...]) -> Session:
        """A new chat; raises FullError when there are too many in use."""
        if len(self.chats) >= self.most:
            self.forget_unused()
        clone = await self.batcher.clone()
        if len(self.chats) >= self.most:
            raise FullError
        session = Session(self.batcher, clone, persona)
        self.chats[session.id] = session
        return session

    def get(self, name: str) -> Session | None:
        """The chat of that name, unless it is unknown or was not used for too long."""
        session = self.chats.get(name)
        if session is None or self._is_unused(session):
            return None
        session.used = time.monotonic()
        return session

    def forget_unused(self) -> None:
        """Drop the chats that nobody has used for a while."""
        for name in [name for name, chat in self.chats.items() if self._is_unused(chat)]:
            del self.chats[name]

    def _is_unused(self, session: Session) -> bool:
        idle = time.monotonic() - session.used
        return idle > self.lifetime and not session.lock.locked()


class Service:
    """What all requests share: the agent behind its queue, the chats, and personas to begin with."""

    def __init__(self, agent, language: str = "en", draw=None, persona=(), limit: int = BATCH):
        """
        :param language: 'en' or 'zh', in which the page is shown at first.
        :param draw: a function that draws a persona, None without data.
        :param persona: every chat's persona at the beginning; without one it is drawn.
        :param limit: greatest number of messages that are answered in one batch.
        """
        if hasattr(agent, "explain_last") and not agent.why_not():
            agent.opt["provenance"] = True
        self.batcher = Batcher(agent, limit)
        self.sessions = Sessions(self.batcher)
        self.language, self.draw, self.persona = language, draw, tuple(persona)
        self.searches = searches(agent)

    def first_persona(self) -> tuple[str, ...]:
        """The persona that a new chat begins with."""
        return self.persona or (tuple(self.draw()) if self.draw else ())

    async def run(self) -> None:
        """Answer messages and forget unused chats, until cancelled."""

        async def sweep():
            while True:
                await asyncio.sleep(SWEEP)
                self.sessions.forget_unused()

        try:
            await asyncio.gather(self.batcher.run(), sweep())
        finally:
            self.batcher.close()
