"""A web chat in a thread of the test's process, and a client for its JSON endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from typing import NamedTuple

from persona_agents.web import server


class Answer(NamedTuple):
    """What came back."""

    status: int
    data: dict
    headers: dict


class Client:
    """Talks to one server; each call opens a connection of its own, so threads may share it."""

    def __init__(self, port: int):
        self.port = port

    def request(self, method, path, body=None, headers=None) -> tuple[int, bytes, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read(), dict(response.getheaders())
        finally:
            connection.close()

    def post_raw(self, path: str, body: bytes, **headers) -> Answer:
        """POST some bytes as JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = {"Content-Type": "application/json", **named}
        status, found, headers = self.request("POST", f"/api/{path}", body, headers)
        return Answer(status, json.loads(found.decode("utf-8")), headers)

    def post(self, path: str, **data) -> Answer:
        """POST an object."""
        return self.post_raw(path, json.dumps(data).encode("utf-8"))

    def error(self, path: str, **data) -> tuple[int, str]:
        """Status and code of a refused request."""
        answer = self.post(path, **data)
        return answer.status, answer.data["error"]["code"]


@contextlib.contextmanager
def serving(service_of, host: str = "127.0.0.1"):
    """
    Serve while the context lasts; gives a Client.

    :param service_of: makes the Service, within the server's thread and event loop.
    """
    ready, state = threading.Event(), {}

    async def run():
        service = service_of()
        listening, state["port"] = server.listen(service, host, 0)
        state["service"], state["loop"] = service, asyncio.get_running_loop()
        state["stop"] = asyncio.Event()
        running = asyncio.ensure_future(service.run())
        ready.set()
        await state["stop"].wait()
        listening.stop()
        running.cancel()
        await listening.close_all_connections()

    def target():
        try:
            asyncio.run(run())
        finally:
            ready.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert ready.wait(60) and "stop" in state, "the server did not start"
    client = Client(state["port"])
    client.service = state["service"]
    try:
        yield client
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(30)
