"""Mephisto's local server, for a laptop: one address, one folder, no process left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from mephisto.abstractions.architects.local_architect import LocalArchitect, LocalArchitectArgs
from mephisto.abstractions.architects.router.build_router import NODE_SERVER_SOURCE_ROOT
from mephisto.operations.registry import register_mephisto_abstraction

from persona_agents.errors import PersonaAgentsError

ROUTER = Path(__file__).parent / "router" / "server.js"
SECONDS_TO_START = 30


class ServerError(PersonaAgentsError):
    """The local server cannot be set up."""


def installed_router() -> Path:
    """
    A folder with Mephisto's router and the npm packages it needs; made once for each version.

    Mephisto itself runs npm inside site-packages at each launch. The folder lies in the user's
    cache (`XDG_CACHE_HOME`, `~/.cache`).

    :raises ServerError: if node or npm is missing or npm fails
    """
    source = Path(NODE_SERVER_SOURCE_ROOT)
    files = [source / "server.js", source / "package.json", source / "package-lock.json", ROUTER]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "persona_agents"
    target = cache / f"mephisto-router-{digest}"
    if target.is_dir():
        return target
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise ServerError(
                f"The page's server needs {program}, which is not installed (Node.js)"
            )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        new = Path(temporary) / "router"
        (new / "static").mkdir(parents=True)
        shutil.copy(source / "server.js", new / "router.js")
        shutil.copy(ROUTER, new / "server.js")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, new / name)
        npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        result = subprocess.run(npm, cwd=new, capture_output=True, text=True, check=False)
        if result.returncode:
            raise ServerError(f"npm could not install the server's packages:\n{result.stderr}")
        if not target.exists():
            shutil.move(str(new), str(target))
    return target


def require_free_port(host: str, port: int) -> None:
    """Say what to do when another program has the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServerError(
                f"{host}:{port} cannot be used ({error.strerror}). Choose another port: "
                f"parlai persona_rate launch ... --set mephisto.architect.port={port + 1}"
            ) from error


@dataclass
class PilotArchitectArgs(LocalArchitectArgs):
    """As the local architect's; `hostname` is also the one address that is listened on."""

    _architect_type: str = "persona_local"
    hostname: str = "127.0.0.1"


@register_mephisto_abstraction()
class PilotArchitect(LocalArchitect):
    """The local architect with its files in the run's own folder and a server that ends with us."""

    ArgsClass = PilotArchitectArgs
    ARCHITECT_TYPE = "persona_local"

    def __init__(self, db, args, shared_state, task_run, build_dir_root):
        super().__init__(db, args, shared_state, task_run, build_dir_root)
        self.server_source_path = str(installed_router())

    def _get_socket_urls(self):
        """Mephisto's own connection stays on the loopback where that is listened on."""
        host = "127.0.0.1" if self.hostname == "0.0.0.0" else self.hostname
        return [f"ws://{host}:{self.port}/"]

    def download_file(self, target_filename: str, save_dir: str) -> None:
        """Nothing: reviewers send no files, and in a forged submission the name is a path."""

    def deploy(self) -> str:
        """Start the server and wait until it answers."""
        require_free_port(self.hostname, int(self.port))
        self.running_dir = os.path.join(self.build_dir, "server")
        os.rename(self.server_dir, self.running_dir)
        with open(os.path.join(self.build_dir, "server.log"), "ab") as log:
            self.server_process = subprocess.Popen(
                ["node", "server.js"],
                cwd=self.running_dir,
                env={**os.environ, "PORT": str(self.port), "PERSONA_RATING_HOST": self.hostname},
                stdin=subprocess.PIPE,  # never written to: see router/server.js
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: the server ends when we say so
            )
        self.server_process_pid = self.server_process.pid
        self._wait_for_server()
        return f"{self.hostname}:{self.port}"

    def _wait_for_server(self) -> None:
        url = self._get_socket_urls()[0].replace("ws:", "http:") + "is_alive"
        end = time.monotonic() + SECONDS_TO_START
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while self.server_process.poll() is None and time.monotonic() < end:
            try:
                opener.open(url, timeout=2).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        log = Path(self.build_dir, "server.log").read_text(encoding="utf-8", errors="replace")
        self.shutdown()
        raise ServerError(f"The page's server did not start:\n{log[-2000:]}")

    def cleanup(self) -> None:
        """Nothing: the built files are the running ones."""

    def shutdown(self) -> None:
        """End the server and remove its files; harmless when repeated."""
        process = self.server_process
        if process is not None:
            process.stdin.close()
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.running_dir is not None:
            shutil.rmtree(self.running_dir, ignore_errors=True)
