"""
What the server answers: one page, and the JSON endpoint that the page itself uses.

Requests to ``/api/…`` are POST with a JSON object, answers are JSON objects. ``FIELDS`` says which
fields each path takes. Errors have a status of 400 or more and the body
``{"error": {"code": …, "message": …}}``.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from tornado.web import HTTPError, RequestHandler, StaticFileHandler

from persona_agents.chat import clean
from persona_agents.persona import parse_turn
from persona_agents.web.batcher import BusyError
from persona_agents.web.sessions import FullError, Service, Session

STATIC = Path(__file__).parent / "static"
BODY = 64 * 1024  # bytes of a request
MESSAGE = 2000  # characters
SENTENCES, SENTENCE = 20, 300  # of a persona: number, and characters of each

STRING, STRINGS, BOOLEAN = "a string", "a list of strings", "true or false"
FIELDS = {
    "session": {"persona": STRINGS},
    "chat": {"session": STRING, "message": STRING, "persona": STRINGS, "search": STRING},
    "persona": {"session": STRING, "persona": STRINGS, "draw": BOOLEAN},
    "reset": {"session": STRING},
}
CHECKS = {
    STRING: lambda value: isinstance(value, str),
    STRINGS: lambda v: isinstance(v, list) and all(isinstance(item, str) for item in v),
    BOOLEAN: lambda value: isinstance(value, bool),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Refusal(HTTPError):
    """A request that is answered with an error: a code for programs, a message for people."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(status)
        self.code, self.message = code, message


class Guarded(RequestHandler):
    """Refuses what other sites' pages ask; errors are JSON."""

    def set_default_headers(self):
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self):
        # A page elsewhere may let its own name point to this machine (DNS rebinding).
        names = self.settings["host_names"]
        if names is not None and self.request.host_name.strip("[]").lower() not in names:
            raise Refusal(403, "forbidden", "This server does not answer to that name.")
        origin = self.request.headers.get("Origin")
        if origin is not None and _host_of(origin) != self.request.host:
            raise Refusal(403, "forbidden", "Pages of other sites cannot use this server.")

    def write_error(self, status_code, **kwargs):
        error = kwargs.get("exc_info", (None, None))[1]
        refusal = isinstance(error, Refusal)
        code = error.code if refusal else "failed"
        message = error.message if refusal else "This could not be answered."
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.finish(json.dumps({"error": {"code": code, "message": message}}))


def _host_of(origin: str) -> str | None:
    """Host and port of an Origin header; None for what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # such as http://[
        return None


class Page(Guarded):
    """The one page."""

    def get(self):
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish((STATIC / "index.html").read_bytes())


class Files(Guarded, StaticFileHandler):
    """The page's style and scripts."""

    def validate_absolute_path(self, root, absolute_path):
        try:
            return super().validate_absolute_path(root, absolute_path)
        except (OSError, ValueError):  # no name of a file: with a null in it, or too long
            raise Refusal(404, "not_found", "There is nothing here.") from None


class Nothing(Guarded):
    """Every other path."""

    def prepare(self):
        super().prepare()
        raise Refusal(404, "not_found", "There is nothing here.")


class Endpoint(Guarded):
    """The paths below ``/api``."""

    def initialize(self, service: Service, path: str):
        self.service, self.path = service, path

    def prepare(self):
        super().prepare()
        if self.request.method != "POST":
            raise Refusal(405, "method", "Only POST is answered here.")
        kind = self.request.headers.get("Content-Type", "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "content_type", "The body must be application/json.")
        if len(self.request.body) > BODY:
            raise Refusal(413, "too_large", f"A request may have {BODY} bytes.")
        self.data = self._fields()

    async def post(self):
        try:
            answer = await getattr(self, f"post_{self.path}")()
        except FullError:
            raise Refusal(503, "full", "There are too many chats. Try again later.") from None
        except BusyError:
            raise Refusal(503, "busy", "Too many messages are waiting. Try again later.") from None
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.finish(json.dumps(answer, ensure_ascii=False))

    # -- fields ----------------------------------------------------------------------------------

    def _fields(self) -> dict:
        """The request's JSON object, each field of its type and its texts clean."""
        try:
            data = json.loads(self.request.body.decode("utf-8"))
        except (ValueError, RecursionError):
            raise Refusal(400, "json", "The body is not JSON in UTF-8.") from None
        if not isinstance(data, dict):
            raise Refusal(400, "json", "The body must be a JSON object.")
        known = FIELDS[self.path]
        for name, value in data.items():
            if name not in known:
                fields = ", ".join(known)
                raise Refusal(400, "field", f"Unknown field. /api/{self.path} takes: {fields}.")
            if not CHECKS[known[name]](value):
                raise Refusal(400, "field", f"{name} must be {known[name]}.")
        return data

    def _needed(self, name: str):
        if name not in self.data:
            raise Refusal(400, "field", f"The field {name} is missing.")
        return self.data[name]

    def _session(self) -> Session:
        session = self.service.sessions.get(self._needed("session"))
        if session is None:
            raise Refusal(404, "session", "There is no such chat, or it was not used for too long.")
        return session

    def _search(self) -> str | None:
        search, known = self.data.get("search"), self.service.searches
        if search is not None and search not in known:
            names = ", ".join(known) or "none can be chosen with this model"
            raise Refusal(400, "search", f"search: {names}.")
        return search

    def _message(self) -> tuple[tuple[str, ...] | None, str]:
        """What is said, and the persona if the message brings one in `your persona:` lines."""
        text = clean(self._needed("message"))
        if len(text) > MESSAGE:
            raise Refusal(413, "message_too_long", f"A message may have {MESSAGE} characters.")
        turn = parse_turn(text)
        if not turn.query:
            raise Refusal(400, "empty", "The message is empty.")
        return (checked_persona(turn.persona) if turn.persona else None), turn.query

    # -- paths -----------------------------------------------------------------------------------

    async def post_session(self) -> dict:
        """A new chat."""
        session = await self._new_session()
        return {
            "session": session.id,
            "persona": session.persona,
            "can_draw": self.service.draw is not None,
            "searches": self.service.searches,
            "language": self.service.language,
        }

    async def _new_session(self) -> Session:
        given = self.data.get("persona")
        persona = self.service.first_persona() if given is None else checked_persona(given)
        return await self.service.sessions.create(persona)

    async def post_chat(self) -> dict:
        """The reply to a message; in a new chat, unless one is named."""
        brought, query = self._message()
        search = self._search()
        persona = checked_persona(self.data["persona"]) if "persona" in self.data else brought
        session = self._session() if "session" in self.data else await self._new_session()
        async with session.turn():  # the messages of one chat are answered one after the other
            if persona is not None:
                session.set_persona(persona)
            answer = await session.answer(query, search)
            return {
                "session": session.id,
                "persona": session.persona,
                "reply": answer.get("text"),
                "provenance": answer.get("provenance"),
            }

    async def post_persona(self) -> dict:
        """Another persona for a chat, given or drawn."""
        session = self._session()
        if self.data.get("draw"):
            if self.service.draw is None:
                raise Refusal(400, "draw", "There are no data to draw a persona from.")
            persona = tuple(self.service.draw())
        else:
            persona = checked_persona(self._needed("persona"))
        async with session.turn():
            began_anew = session.set_persona(persona)
            return {"session": session.id, "persona": session.persona, "reset": began_anew}

    async def post_reset(self) -> dict:
        """The chat is forgotten, its persona stays."""
        session = self._session()
        async with session.turn():
            session.reset()
            return {"session": session.id, "persona": session.persona, "reset": True}


def checked_persona(sentences) -> tuple[str, ...]:
    """A persona's sentences, cleaned, each one line, empty ones dropped; too long ones are refused."""
    lines = [" ".join(clean(sentence).split()) for sentence in sentences]
    lines = [line for line in lines if line]
    if len(lines) > SENTENCES or any(len(line) > SENTENCE for line in lines):
        raise Refusal(
            413,
            "persona_too_long",
            f"A persona may have {SENTENCES} sentences of {SENTENCE} characters.",
        )
    return tuple(lines)
