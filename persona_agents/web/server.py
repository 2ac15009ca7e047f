"""Starts the web chat: the agent, where personas come from, and the server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal

from parlai.core.agents import Agent, create_agent
from parlai.core.loader import load_world_module
from parlai.utils import logging
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from persona_agents.errors import PersonaAgentsError
from persona_agents.tasks.worlds import parse_persona
from persona_agents.text import task_language
from persona_agents.web.handlers import FIELDS, STATIC, Endpoint, Files, Nothing, Page
from persona_agents.web.sessions import Service

# Up to this many bytes a request is refused in JSON; a longer one is cut off.
MOST_BYTES = 2 * 1024 * 1024
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def application(service: Service, host: str = "127.0.0.1") -> Application:
    """The web application; bound to this machine alone, it answers to this machine's names alone."""
    return Application(
        [
            (r"/", Page),
            *((f"/api/{path}", Endpoint, {"service": service, "path": path}) for path in FIELDS),
            (r"/static/(.+)", Files, {"path": str(STATIC)}),
        ],
        default_handler_class=Nothing,
        host_names=(*LOCAL_NAMES, host.lower()) if is_local(host) else None,
        log_function=lambda handler: None,  # what visitors ask for is nobody's business
    )


def is_local(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(service: Service, host: str, port: int) -> tuple[HTTPServer, int]:
    """Listen at an address; returns the server and its port, which is chosen for port 0."""
    try:
        if not 0 <= port <= 65535:
            raise ValueError("ports go up to 65535")
        sockets = bind_sockets(port, host)
    except (OSError, ValueError) as error:
        raise PersonaAgentsError(
            f"--host {host} --port {port}: cannot listen there ({error}). Another --port may be free."
        ) from None
    server = HTTPServer(
        application(service, host),
        max_body_size=MOST_BYTES,
        max_header_size=32 * 1024,
        body_timeout=30,
        idle_connection_timeout=600,
    )
    server.add_sockets(sockets)
    return server, sockets[0].getsockname()[1]


async def serve(service: Service, host: str, port: int, stop: asyncio.Event | None = None) -> None:
    """Serve until the event, or until Ctrl-C or SIGTERM."""
    server, port = listen(service, host, port)
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError):  # Windows; another thread
            loop.add_signal_handler(number, stop.set)
    shown = f"[{host}]" if ":" in host else host
    print(f"Chat at http://{shown}:{port}/ (Ctrl-C ends it)", flush=True)
    if not is_local(host):
        logging.warning("Everybody who can reach this machine can chat: there is no password.")
    running = asyncio.ensure_future(service.run())
    stopped = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    for task in (running, stopped):
        task.cancel()
    if running in done:
        running.result()  # raises what went wrong
    await server.close_all_connections()


def drawing(opt, agent):
    """A function that draws a persona as the task's chat does; None without data for it."""
    world_class = load_world_module(opt["task"], interactive_task=True, num_agents=2)
    if not hasattr(world_class, "draw"):
        return None
    try:
        world = world_class(opt, [Agent(opt), agent])
        world.draw()
    except PersonaAgentsError as error:
        if opt.get("persona_file"):
            raise
        logging.warning(f"No personas will be drawn. {error}")
        return None
    return world.draw


def main(opt) -> None:
    """Load the agent and serve it."""
    agent = create_agent(opt, requireModelExists=True)
    service = Service(
        agent,
        task_language(opt["task"]),
        drawing(opt, agent),
        parse_persona(opt.get("persona") or ""),
    )
    asyncio.run(serve(service, opt["host"], opt["port"]))
