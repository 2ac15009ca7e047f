"""Fetching from a mirror that stalls, cuts off, lies, and does not resume: a server on the loopback."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
import time

import pytest
from persona_agents.tasks import download

from persona_agents.errors import PersonaAgentsError
from tests.unit.corpora import numbered, teacher, write_zip

DATA = os.urandom(50_000)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves DATA; the server's list `faults` says what goes wrong in the next requests."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        data = server.data
        fault = server.faults.pop(0) if server.faults else None
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if isinstance(fault, int):
            self.send_error(fault)
            return
        start = 0
        if asked and fault != "no ranges":
            start = int(asked[len("bytes=") : -1])
            if start >= len(data):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(data)}")
                self.end_headers()
                return
            self.send_response(206)
        else:
            self.send_response(200)
        body = data[start:]
        if fault == "other bytes":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("cut", "stall"):
            self.wfile.write(body[:8192])
            self.wfile.flush()
            if fault == "stall":
                time.sleep(1.5)
            return
        if fault != "nothing":
            self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.5)
    monkeypatch.setattr(download, "PAUSE", 0.001)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.data, server.faults, server.requests = DATA, [], []
    server.url = f"http://127.0.0.1:{server.server_port}/some/Dialog_dev.zip"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetch(server, tmp_path, checksum=None) -> bytes:
    (path,) = download.fetch(f"{server.url}#sha256={checksum or sha(DATA)}", str(tmp_path))
    assert path == str(tmp_path / "Dialog_dev.zip")
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("faults", "ranges"),
    [
        ([], [None]),
        (["cut"], [None, "bytes=8192-"]),
        (["cut"] * 4, [None, *(f"bytes={n * 8192}-" for n in (1, 2, 3, 4))]),
        (["stall", "cut"], [None, "bytes=8192-", "bytes=16384-"]),
        (["cut", "no ranges"], [None, "bytes=8192-"]),
        ([503, "nothing", 500], [None] * 4),
        (["no length"], [None]),
    ],
)
def test_it_arrives_whole(server, tmp_path, faults, ranges):
    server.faults = list(faults)
    assert fetch(server, tmp_path) == DATA
    assert server.requests == ranges
    assert sorted(os.listdir(tmp_path)) == ["Dialog_dev.zip", "Dialog_dev.zip.lock"]
    assert fetch(server, tmp_path) == DATA
    assert server.requests == ranges, "it is fetched once"


def test_a_wrong_checksum(server, tmp_path):
    server.faults = ["other bytes"]
    with pytest.raises(PersonaAgentsError, match=f"but {sha(DATA)} is expected. It was deleted"):
        fetch(server, tmp_path)
    assert os.listdir(tmp_path) == ["Dialog_dev.zip.lock"], "nothing is left to be taken for data"
    assert fetch(server, tmp_path) == DATA


def test_the_rest_of_something_else(server, tmp_path):
    (tmp_path / "Dialog_dev.zip.part").write_bytes(b"x" * 100)
    assert fetch(server, tmp_path) == DATA
    assert server.requests == ["bytes=100-", None]


@pytest.mark.parametrize("have", [DATA, DATA + b"more"])
def test_a_complete_or_too_long_part(server, tmp_path, have):
    (tmp_path / "Dialog_dev.zip.part").write_bytes(have)
    assert fetch(server, tmp_path) == DATA


def test_giving_up_keeps_what_came(server, tmp_path):
    server.faults = ["cut"] + ["nothing"] * 99
    with pytest.raises(PersonaAgentsError, match="the same command goes on from there"):
        fetch(server, tmp_path)
    assert (tmp_path / "Dialog_dev.zip.part").read_bytes() == DATA[:8192]
    assert len(server.requests) == 1 + download.ATTEMPTS
    server.faults = []
    assert fetch(server, tmp_path) == DATA
    assert server.requests[-1] == "bytes=8192-"


def test_not_found_is_said_at_once(server, tmp_path):
    server.faults = [404]
    with pytest.raises(PersonaAgentsError, match="the server answers 404 Not Found. Check the add"):
        fetch(server, tmp_path)
    assert len(server.requests) == 1


def test_nobody_there(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    with pytest.raises(PersonaAgentsError, match="cannot be fetched"):
        download.fetch("http://127.0.0.1:9/Dialog_dev.zip", str(tmp_path))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/a.zip",
        "a.zip",
        "http://host/",
        "http://host/a.zip#sha256=12",
        "http://host/a.zip#md5=12",
    ],
)
def test_addresses(tmp_path, url):
    with pytest.raises(PersonaAgentsError, match="is no address of a file"):
        download.fetch(url, str(tmp_path))


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PersonaAgentsError, match="cannot be stored in"):
        fetch(server, tmp_path / "file")


def test_without_a_checksum_it_is_told(server, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(download.logging, "warning", told.append)
    download.fetch(server.url, str(tmp_path))
    assert f"#sha256={sha(DATA)}" in told[0]


def test_through_parlai(server, tmp_path):
    path = write_zip(tmp_path / "mirror.zip", Persona_dev=numbered(7))
    with open(path, "rb") as file:
        server.data = file.read()
    url = f"{server.url}#sha256={sha(server.data)}"
    for _ in range(2):
        one = teacher("cpc:raw", datapath=str(tmp_path), cpc_url=url)
        assert one.num_examples() == 7
    assert (tmp_path / "CPC" / "Dialog_dev.zip").exists()
    assert len(server.requests) == 1
    two = teacher("cpc:raw", cpc_path=str(tmp_path / "x"), cpc_url=f"{url},{server.url[:-7]}x.zip")
    assert two.num_examples() == 7, "of several files the folder is searched"
    assert sorted(name for name in os.listdir(tmp_path / "x") if name.endswith("zip")) == [
        "Dialog_dev.zip",
        "Dialog_x.zip",
    ]
