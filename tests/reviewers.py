"""Simulated reviewers: what the rating page does, over HTTP, without a browser."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Reviewer:
    """One reviewer; `judge` gives the answers about an item.

    Attributes:
        acknowledged: item id -> answers that the server has said to be saved
        refusals: reasons that the server gave
    """

    def __init__(self, port, name, judge):
        self.url, self.name, self.judge = f"http://127.0.0.1:{port}/", name, judge
        self.acknowledged, self.refusals = {}, []
        self.registration = None
        self.agent = None

    def post(self, path, body, timeout=30):
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        for _ in range(1200):
            request = urllib.request.Request(self.url + path, data, kind)
            try:
                with OPENER.open(request, timeout=timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # Mephisto is not ready yet
                    raise
            time.sleep(0.1)
        raise TimeoutError("Mephisto does not connect")

    def provider_data(self):
        if self.registration is None:
            self.registration = uuid.uuid4().hex
        return {
            "worker_name": self.name,
            "agent_registration_id": f"{self.registration}-{self.name}",
            "assignment_id": self.registration,
            "provider_type": "mock",
        }

    def ask(self):
        """Ask for work, or for the state of the work at hand."""
        data = self.post("request_agent", {"provider_data": self.provider_data()})["data"]
        self.agent = data.get("agent_id")
        return data

    def send(self, data, agent=None):
        self.post("submit_task", {"USED_AGENT_ID": agent or self.agent, "final_data": data})

    def onboard(self, examples, answers=None):
        """Answer the examples rightly, or with `answers`."""
        answers = answers or [example["en"]["answers"] for example in examples]
        data = {
            **self.provider_data(),
            "USED_AGENT_ID": self.agent,
            "onboarding_data": {"answers": answers},
        }
        data = self.post("submit_onboarding", {"provider_data": data})["data"]
        self.agent = data.get("agent_id")
        return data

    def rate_one(self):
        """Rate one item. Returns False if there is none."""
        data = self.ask()
        task = data["init_task_data"]
        if task and "examples" in task:
            data = self.onboard(task["examples"])
            task = data["init_task_data"]
        if not task or task["duplicate"] or task["accepted"] or task["refused"]:
            self.registration = None
            return bool(task)
        item = task["item"]
        answers = self.judge(item)
        state = {"accepted": False, "refused": None}
        while not state["accepted"] and not state["refused"]:
            self.send({"item": item["id"], "answers": answers})
            state = self.ask()["init_task_data"]
        self.registration = None
        if state["accepted"]:
            assert item["id"] not in self.acknowledged
            self.acknowledged[item["id"]] = answers
        else:
            self.refusals.append(state["refused"])
        return True

    def work(self, stop=lambda: False):
        """Rate until nothing is left, the server goes away, or `stop()` is true."""
        try:
            while not stop() and self.rate_one():
                pass
        except (OSError, urllib.error.URLError, json.JSONDecodeError):
            pass


def wait_for_server(port, seconds=120, alive=None):
    """Wait until the page's server answers; `alive` is the process that shall start it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (alive is None or alive.poll() is None):
        try:
            OPENER.open(f"http://127.0.0.1:{port}/is_alive", timeout=2).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"nothing answers on port {port}")


def work_together(reviewers, stop=lambda: False):
    """Let all reviewers work at once until each has nothing left."""
    threads = [threading.Thread(target=reviewer.work, args=(stop,)) for reviewer in reviewers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def make_study(folder, samples=4, systems=("alpha", "beta"), replies=None, **options):
    """
    A study of replies that name their system.

    :param replies: other texts for the replies, taken in turn
    """
    from persona_agents.crowdsourcing.prepare import prepare
    from persona_agents.crowdsourcing.study import read_study

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for system in systems:
        files[system] = folder / f"{system}.jsonl"
        lines = [
            {
                "persona": [f"i am number {n} ."],
                "query": f"who are you , {n} ?",
                "reply": replies[n % len(replies)] if replies else f"{system} answers {n}",
            }
            for n in range(samples)
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        files[system].write_text(text, encoding="utf-8")
    prepare(files, folder / "study", samples=samples, **options)
    return read_study(folder / "study")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def processes_of(folder):
    """Processes that work in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if where.startswith(str(folder)):
            found.append(process.name)
    return found


class Launch:
    """`parlai persona_rate launch` in a process of its own."""

    def __init__(self, study, *settings, port=None):
        self.study, self.port = study, port or free_port()
        settings = (f"mephisto.architect.port={self.port}", *settings)
        command = ["persona_rate", "launch", str(study.folder), "--set", *settings]
        code = f"from parlai.core.script import superscript_main; superscript_main({command!r})"
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        # not below the study, where only the page's server shall be found
        self.log = study.folder.with_name(f"launch-{self.port}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONPATH": path},
                cwd=study.folder.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self):
        try:
            wait_for_server(self.port, alive=self.process)
        except Exception:
            self.process.kill()
            print(self.output())
            raise
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if any(error):
            print(self.output())

    def output(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds=60):
        return self.process.wait(timeout=seconds)


def stored_answers(study):
    """Item -> reviewer -> answers, read from Mephisto's database."""
    from persona_agents.crowdsourcing.compat import import_mephisto

    import_mephisto()
    from persona_agents.crowdsourcing.persona_rating import blueprint  # noqa: F401 (registers it)
    from persona_agents.crowdsourcing.persona_rating.database import open_database
    from persona_agents.crowdsourcing.persona_rating.ledger import read_answers

    table = {item["id"]: {} for item in study.items}
    for answer in read_answers(open_database(study), study):
        reviewer = answer.reviewer.removesuffix("_sandbox")
        assert reviewer not in table[answer.item]
        table[answer.item][reviewer] = answer.answers
    return table
