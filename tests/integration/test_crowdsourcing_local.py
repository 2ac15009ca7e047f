"""The rating task on this machine: local server, simulated reviewers, interruptions."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from reviewers import (
    OPENER,
    Launch,
    Reviewer,
    make_study,
    port_is_free,
    processes_of,
    stored_answers,
    work_together,
)

from persona_agents.crowdsourcing.study import ASPECTS

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("mephisto") is None,
        reason="Mephisto is not installed: make test-crowdsourcing",
    ),
    pytest.mark.skipif(shutil.which("node") is None, reason="there is no node"),
]


def at_random(item):
    return {aspect: random.randrange(3) for aspect in ASPECTS}


def reviewers(port, count=3, judge=at_random):
    return [Reviewer(port, f"reviewer{n}", judge) for n in range(count)]


def each_item_has(study, count, *runs):
    """Every item is rated `count` times, and all that was acknowledged is stored as it was sent."""
    stored = stored_answers(study)
    assert {len(ratings) for ratings in stored.values()} == {count}
    for people in runs:
        for person in people:
            for item, answers in person.acknowledged.items():
                assert stored[item][person.name] == answers
    return stored


def nothing_is_left(launch):
    assert port_is_free(launch.port)
    assert processes_of(launch.study.folder) == []


def test_three_reviewers_rate_everything_and_the_run_ends(tmp_path):
    study = make_study(tmp_path)
    with Launch(study) as launch:
        people = reviewers(launch.port)
        work_together(people)
        assert launch.wait() == 0
    assert [len(person.acknowledged) for person in people] == [8, 8, 8]
    assert not any(person.refusals for person in people)
    each_item_has(study, 3, people)
    nothing_is_left(launch)
    assert "All ratings are there" in launch.output()
    assert "Traceback" not in launch.output()
    # again: there is nothing to do, and it says so without starting a server
    again = Launch(study)
    assert again.wait() == 0
    assert "24 of 24 ratings are there" in again.output()


def test_killed_halfway_and_started_again(tmp_path):
    study = make_study(tmp_path)
    enough = threading.Event()
    with Launch(study) as launch:
        first = reviewers(launch.port, 5)

        def half():
            return sum(len(person.acknowledged) for person in first) >= 12

        def kill():
            while not half():
                time.sleep(0.005)
            launch.process.send_signal(signal.SIGKILL)
            enough.set()

        killer = threading.Thread(target=kill)
        killer.start()
        work_together(first, stop=enough.is_set)
        killer.join()
        launch.wait()
    acknowledged = sum(len(person.acknowledged) for person in first)
    assert 12 <= acknowledged < 24
    end = time.monotonic() + 10
    while not port_is_free(launch.port) and time.monotonic() < end:
        time.sleep(0.1)
    nothing_is_left(launch)  # the server does not outlive a killed parent

    with Launch(study) as launch:
        second = reviewers(launch.port, 5)
        work_together(second)
        assert launch.wait() == 0
    stored = each_item_has(study, 3, first, second)
    assert sum(len(person.acknowledged) for person in second) <= 24 - acknowledged
    nothing_is_left(launch)
    assert {name for ratings in stored.values() for name in ratings} <= {
        person.name for person in first
    }
    _database_is_in_order(study)


def _database_is_in_order(study):
    """Mephisto's own browser finds the same answers in units that are completed."""
    from mephisto.abstractions.databases.local_database import LocalMephistoDB
    from mephisto.tools.data_browser import DataBrowser

    db = LocalMephistoDB(str(study.database))
    units = DataBrowser(db).get_units_for_task_name(study.task_name)
    assert len(units) == len(study.items) * study.reviewers
    seen = {(u.get_assignment_data().shared["id"], u.worker_id) for u in units}
    assert len(seen) == len(units)
    data = [DataBrowser(db).get_data_from_unit(unit)["data"] for unit in units]
    assert all(entry["outputs"]["item"] == entry["inputs"]["id"] for entry in data)


def test_killed_between_the_status_of_an_agent_and_of_its_unit(tmp_path):
    from mephisto.data_model.constants.assignment_state import AssignmentState

    from persona_agents.crowdsourcing.persona_rating.database import open_database
    from persona_agents.crowdsourcing.persona_rating.ledger import settle_old_runs

    study = make_study(tmp_path, samples=1)
    with Launch(study) as launch:
        work_together(reviewers(launch.port))
        assert launch.wait() == 0
    db = open_database(study)
    (task,) = db.find_tasks(task_name=study.task_name)
    for unit in db.find_units(task_id=task.db_id):
        unit.set_db_status(AssignmentState.ASSIGNED)
    db = open_database(study)
    settle_old_runs(db, study)
    units = db.find_units(task_id=task.db_id)
    assert [unit.db_status for unit in units] == [AssignmentState.COMPLETED] * 6
    _database_is_in_order(study)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_twice_cleans_up_and_goes_on(tmp_path, number):
    study = make_study(tmp_path, samples=2)
    with Launch(study) as launch:
        (person,) = people = reviewers(launch.port, 1)
        assert person.rate_one()
        person.ask()  # has an item open while the run is interrupted
        for _ in range(3):
            launch.process.send_signal(number)
            time.sleep(0.2)
        assert launch.wait(40) == 0
    nothing_is_left(launch)
    assert "11 ratings are missing" in launch.output()
    with Launch(study) as launch:
        second = reviewers(launch.port, 3)
        work_together(second)
        assert launch.wait() == 0
    each_item_has(study, 3, people, second)


def test_bad_submissions_are_refused_and_leave_the_others_alone(tmp_path):
    study = make_study(tmp_path, samples=3)
    with Launch(study) as launch:
        people = reviewers(launch.port)
        first, second = people[:2]
        assert first.rate_one()
        (done,) = first.acknowledged
        finished_agent = first.agent
        task = first.ask()["init_task_data"]
        item = task["item"]["id"]
        good = {"fluency": 1, "relevance": 2, "consistency": 0}
        for bad in (
            None,
            "text",
            {},
            [1],
            {"item": item, "answers": {**good, "fluency": 3}},
            {"item": item, "answers": {**good, "fluency": "1"}},
            {"item": done, "answers": good},
            {"item": item, "answers": good, "system": "alpha"},
            {"item": item, "answers": {**good, "x" * 50_000: 1}},
            {"item": item, "answers": good, "files": [{"filename": "../../etc/passwd"}]},
        ):
            first.send(bad)
            state = first.ask()["init_task_data"]
            assert not state["accepted"], bad
        assert "malformed" in state["refused"]
        # answers about what was rated before, or by an agent that does not exist
        first.send({"item": done, "answers": {**good, "relevance": 0}}, agent=finished_agent)
        first.send({"item": item, "answers": good}, agent="12345")
        first.send({"item": item, "answers": good}, agent={"a": [None]})
        for body in (b"{", b'{"final_string_data": "{"}', b"[]", b"\xff\xfe"):
            for path in ("submit_task", "submit_onboarding"):
                request = urllib.request.Request(
                    first.url + path, body, {"Content-Type": "application/json"}
                )
                try:
                    OPENER.open(request, timeout=2).close()
                except (urllib.error.HTTPError, TimeoutError):
                    pass
        # meanwhile others are served, and the right answers are still taken, once
        assert second.rate_one()
        first.send({"item": item, "answers": good})
        assert first.ask()["init_task_data"]["accepted"]
        first.acknowledged[item] = good
        first.send({"item": item, "answers": {**good, "fluency": 0}})
        assert first.ask()["init_task_data"]["accepted"]
        first.registration = None
        work_together(people)
        assert launch.wait() == 0
    each_item_has(study, 3, people)


def test_onboarding_that_is_wrong_ends_it(tmp_path):
    study = make_study(tmp_path, samples=1)
    with Launch(study) as launch:
        careless = Reviewer(launch.port, "careless", at_random)
        examples = careless.ask()["init_task_data"]["examples"]
        wrong = [{aspect: 0 for aspect in ASPECTS} for _ in examples]
        result = careless.onboard(examples, wrong)
        assert not result["init_task_data"]
        assert "not currently qualified" in result["failure_reason"]
        careless.registration = None
        assert "not currently qualified" in careless.ask()["failure_reason"]
        people = reviewers(launch.port)
        work_together(people)
        assert launch.wait() == 0
    each_item_has(study, 3, people)


def test_one_reviewer_in_many_windows_gets_no_item_twice(tmp_path):
    study = make_study(tmp_path, samples=3)
    with Launch(study) as launch:
        windows = [Reviewer(launch.port, "anna", at_random) for _ in range(6)]
        windows[0].rate_one()
        work_together(windows)
        own = [item for window in windows for item in window.acknowledged]
        assert len(own) == len(set(own)) == 6
        people = reviewers(launch.port, 2)
        work_together(people)
        assert launch.wait() == 0
    each_item_has(study, 3, windows, people)


def test_an_item_that_is_left_open_goes_to_somebody_else(tmp_path):
    study = make_study(tmp_path, samples=1, systems=["alpha"], reviewers=1)
    with Launch(study, "mephisto.task.assignment_duration_in_seconds=3") as launch:
        slow, quick = reviewers(launch.port, 2)
        slow.onboard(slow.ask()["init_task_data"]["examples"])
        item = slow.ask()["init_task_data"]["item"]["id"]
        assert "no available work" in quick.ask()["failure_reason"]
        time.sleep(4)
        slow.send({"item": item, "answers": at_random(None)})
        state = slow.ask()["init_task_data"]
        assert not state["accepted"]
        assert "time" in state["refused"]
        quick.registration = None
        assert quick.rate_one()
        assert launch.wait() == 0
    assert list(stored_answers(study)[item]) == ["reviewer1"]


def test_server_is_closed_to_others(tmp_path):
    study = make_study(tmp_path, samples=1)
    with Launch(study) as launch:
        person = Reviewer(launch.port, "anna", at_random)
        person.ask()
        # a web page elsewhere, or anybody who is not Mephisto, must not take the answers' socket
        with socket.create_connection(("127.0.0.1", launch.port)) as connection:
            connection.sendall(
                b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                b"Origin: http://evil.example\r\n\r\n"
            )
            try:
                assert connection.recv(100) == b""
            except ConnectionResetError:
                pass
        for path in ("download_file/..%2f..%2fetc%2fpasswd", "download_file/x", "../../etc/passwd"):
            with pytest.raises(urllib.error.HTTPError):
                OPENER.open(f"{person.url}{path}", timeout=10)
        others = [
            address[4][0]
            for address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            if not address[4][0].startswith("127.")
        ]
        for address in others:
            with socket.socket() as probe:
                assert probe.connect_ex((address, launch.port)) != 0
        with OPENER.open(f"{person.url}task_config.json?mephisto_task_version=2.0.3") as config:
            assert json.load(config)["form"] == "scales"


def test_run_ends_with_its_server(tmp_path):
    study = make_study(tmp_path, samples=1)
    with Launch(study) as launch:
        Reviewer(launch.port, "anna", at_random).ask()  # Mephisto has connected
        (server,) = processes_of(study.folder)
        os.kill(int(server), signal.SIGKILL)
        assert launch.wait() == 0
    assert "the page's server has ended" in launch.output()
    nothing_is_left(launch)


def test_launch_that_cannot_begin_says_why(tmp_path):
    study = make_study(tmp_path, samples=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        launch = Launch(study, f"mephisto.architect.port={port}")
        assert launch.wait() == 1
    last = launch.output().strip().splitlines()[-1]
    assert f"127.0.0.1:{port} cannot be used" in last
    assert f"mephisto.architect.port={port + 1}" in last
    launch = Launch(study, "mephisto.no_such_setting=1")
    assert launch.wait() == 1
    assert "--set or --config" in launch.output()
    with Launch(study) as first:
        second = Launch(study)
        assert second.wait() == 1
        assert "is being run by another process" in second.output()
        first.process.terminate()
        assert first.wait() == 0


@pytest.mark.slow
def test_four_hundred_items_by_three_reviewers(tmp_path):
    """Prints the rate: `pytest -s -m slow -k four_hundred`."""
    study = make_study(tmp_path, samples=200)
    with Launch(study) as launch:
        people = reviewers(launch.port, 12)
        start = time.monotonic()
        work_together(people)
        seconds = time.monotonic() - start
        assert launch.wait(300) == 0
    assert sum(len(person.acknowledged) for person in people) == 1200
    each_item_has(study, 3, people)
    nothing_is_left(launch)
    print(f"\n1,200 ratings by 12 reviewers in {seconds:.1f} s: {1200 / seconds:.1f} a second")
