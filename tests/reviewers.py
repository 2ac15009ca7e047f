"""Simulated reviewers: what the rating page does, over HTTP, without a browser."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
import uuid

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
        for _ in range(100):
            request = urllib.request.Request(self.url + path, data, kind)
            try:
                with OPENER.open(request, timeout=timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code != 503:  # Mephisto has not connected yet
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


def wait_for_server(port, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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
