"""Jobs as sub-processes: order, resuming after a kill, failures, locks. A small script acts ParlAI."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, subprocess_environment

from persona_agents.errors import PersonaAgentsError
from persona_agents.table import config, plan
from persona_agents.table.files import read_json, write_json
from persona_agents.table.runner import Runner, last_lines, locked

# Stands for `python -m parlai`: writes down its call, then does what the options ask for.
PARLAI = """
import os, sys, time
journal, command, *arguments = sys.argv[1:]
options = dict(zip(arguments[::2], arguments[1::2]))
def note(what):
    with open(journal, "a") as file:
        file.write(f"{what} {command} {options.get('-m', '')} {os.getpid()} {time.time()}\\n")
note("begin")
print("first line\\n\\nlast line", flush=True)
time.sleep(float(options.get("--sleep", 0)))
if os.path.exists(options.get("--fail-while", "/nowhere")):
    sys.exit(3)
for name in ("-mf", "--world-logs", "--report-filename"):
    if name in options and options.get("--silent") != command and not (
        name == "-mf" and command == "eval_model"
    ):
        for ending in ("", ".opt", ".checkpoint") if name == "-mf" else ("",):
            with open(options[name] + ending, "w") as file:
                file.write("written")
note("end")
"""
YAML = """
tasks: [cpc:mini]
budget: {steps: 1}
anchors: false
swapped_personas: false
"""


class Table:
    """A folder with a YAML file and the script that acts ParlAI."""

    def __init__(self, folder: Path, text: str):
        self.folder, self.journal = folder / "out", folder / "journal"
        self.folder.mkdir(exist_ok=True)
        (folder / "parlai.py").write_text(PARLAI, encoding="utf-8")
        self.command = (sys.executable, str(folder / "parlai.py"), str(self.journal))
        self.path = folder / "table.yml"
        self.write(text)

    def write(self, text: str):
        self.path.write_text(YAML + text, encoding="utf-8")

    def run(self, side_by_side=1) -> Runner:
        found = config.read(str(self.path))
        with locked(self.folder) as lock:
            runner = Runner(self.folder, lock, found.threads, found.keep_models)
            runner.parlai = self.command
            runner.run(plan.jobs_of(found), side_by_side)
        return runner

    def calls(self, what="begin") -> list[str]:
        """The commands that were begun (or came to their end), with their agents."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [" ".join(line.split()[1:-2]) for line in lines if line.startswith(what)]

    def times(self) -> list[tuple[str, float]]:
        lines = self.journal.read_text().splitlines()
        return [(line.split()[0], float(line.split()[-1])) for line in lines]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr("persona_agents.table.runner.POLL", 0.01)
    return Table(tmp_path, "systems: {a: {model: A}, b: {model: B}}\n")


def test_all_steps_in_order_and_never_twice(table):
    assert not table.run().failures
    calls = ["train_model A", "eval_model", "train_model B", "eval_model"]
    assert table.calls() == calls
    job = table.folder / "cpc_mini" / "a" / "seed1"
    assert {path.name for path in (job / "done").iterdir()} == {"train.json", "test_set_test.json"}
    assert read_json(job / "done" / "train.json")["seconds"] >= 0
    assert "last line" in (job / "logs" / "train.txt").read_text()
    assert not (job / "model.checkpoint").exists(), "it is for trainings that are gone on with"
    assert "train_model" in read_json(job / "job.json")["commands"]["train"]
    assert not table.run().failures and table.calls() == calls


def test_a_damaged_marker_is_named(table):
    table.run()
    marker = table.folder / "cpc_mini" / "a" / "seed1" / "done" / "train.json"
    marker.write_text('{"command": "tr', encoding="utf-8")
    with pytest.raises(PersonaAgentsError, match="a/seed1/done/train.json is damaged: .*Remove"):
        table.run()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000], ids=range(4))
def test_damaged_json(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(PersonaAgentsError, match="x.json is damaged"):
        read_json(tmp_path / "x.json")


def test_json_has_null_for_what_is_no_finite_number(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": [math.nan, (1.5, -math.inf)], "b": {"c": math.inf}, "d": "NaN", "e": 10})
    assert read_json(path) == {"a": [None, [1.5, None]], "b": {"c": None}, "d": "NaN", "e": 10}


def test_a_new_system_is_added(table):
    table.run()
    table.write("systems: {a: {model: A}, b: {model: B}, c: {model: C}}\n")
    table.run()
    assert table.calls()[4:] == ["train_model C", "eval_model"]


def test_side_by_side(table):
    table.write(
        "systems: {a: {model: A, options: {sleep: 0.5}}, b: {model: B, options: {sleep: 0.5}}}\n"
    )
    table.run(side_by_side=2)
    assert [what for what, _ in table.times()[:2]] == ["begin", "begin"]


def test_a_failed_job_costs_only_itself_and_is_tried_again(table, tmp_path, capsys):
    fault = tmp_path / "fault"
    fault.touch()
    table.write(
        f"systems: {{a: {{model: A, options: {{fail_while: {fault}}}}}, b: {{model: B}}}}\n"
    )
    (failure,) = table.run().failures
    assert failure.job.system.name == "a" and failure.step == "train" and failure.status == 3
    assert failure.last_lines == "first line\nlast line"
    said = capsys.readouterr().out
    assert "a on cpc:mini, seed 1: train failed (exit status 3)" in said and "last line" in said
    assert "1 of 2 jobs done, 1 failed" in said
    assert table.calls("end") == ["train_model B", "eval_model"]
    fault.unlink()
    assert not table.run().failures
    assert table.calls("end")[2:] == ["train_model A", "eval_model"]


def test_a_command_that_writes_nothing_has_failed(table):
    table.write("systems: {a: {model: A, options: {silent: train_model}}}\n")
    (failure,) = table.run().failures
    assert failure.status == 0 and "did not write model, model.opt" in failure.last_lines


def test_another_training_is_refused(table):
    table.run()
    table.write("systems: {a: {model: A}, b: {model: B, options: {lr: 3}}}\n")
    with pytest.raises(PersonaAgentsError) as error:
        table.run()
    message = str(error.value)
    assert str(table.folder / "cpc_mini" / "b" / "seed1") in message and "--lr 3" in message
    assert len(table.calls()) == 4


def test_other_threads_are_refused(table):
    table.run()
    table.write("systems: {a: {model: A}}\nthreads: 2\n")
    with pytest.raises(PersonaAgentsError, match="OMP_NUM_THREADS"):
        table.run()


def test_a_training_that_failed_at_once_can_be_corrected(table, tmp_path):
    (tmp_path / "fault").touch()
    table.write(f"systems: {{a: {{model: A, options: {{fail_while: {tmp_path / 'fault'}}}}}}}\n")
    assert table.run().failures
    table.write("systems: {a: {model: A}}\n")
    assert not table.run().failures


def test_what_a_lost_model_left_is_not_gone_on_with(table):
    table.run()
    folder = table.folder / "cpc_mini" / "a" / "seed1"
    (folder / "model").unlink()
    (folder / "model.trainstats").write_text("{}")
    (folder / "test" / "report.json").unlink()
    table.run()
    assert table.calls()[4:] == ["train_model A", "eval_model"]
    assert not (folder / "model.trainstats").exists()


def test_scoring_that_changed_is_written_down(table):
    table.run()
    table.write("systems: {a: {model: A}}\nscoring: {metrics: p_cover}\n")
    table.run()
    assert (
        "--metrics p_cover" in (table.folder / "cpc_mini" / "a" / "seed1" / "repeat.sh").read_text()
    )
    assert len(table.calls()) == 4


def test_another_evaluation_needs_no_training(table):
    table.run()
    table.write("systems: {a: {model: A}}\nevaluation: {beam_size: 3}\n")
    table.run()
    assert table.calls()[4:] == ["eval_model"]


class TestModelsThatAreNotKept:
    TEXT = "systems: {a: {model: A}}\nkeep_models: false\n"

    def test_are_deleted_and_not_trained_again(self, table):
        table.write(self.TEXT)
        table.run()
        assert not (table.folder / "cpc_mini" / "a" / "seed1" / "model").exists()
        table.run()
        assert table.calls() == ["train_model A", "eval_model"]

    def test_are_trained_again_for_another_test_set(self, table):
        table.write(self.TEXT)
        table.run()
        more = "tasks: {'cpc:mini': {test_sets: {test: , other: }}}"
        text = (YAML + self.TEXT).replace("tasks: [cpc:mini]", more)
        table.path.write_text(text, encoding="utf-8")
        table.run()
        assert table.calls()[2:] == ["train_model A", "eval_model", "eval_model"]


def test_a_step_whose_file_was_removed_is_done_again(table):
    table.run()
    (table.folder / "cpc_mini" / "a" / "seed1" / "test" / "replies.jsonl").unlink()
    table.run()
    assert table.calls()[4:] == ["eval_model"]


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_table_runner import Table
Table(Path({folder!r}), {text!r}).run(2)
"""


@pytest.fixture
def started(table, tmp_path):
    """Starts a run of two long trainings in a process of its own; returns it once both run."""
    text = "systems: {a: {model: A, options: {sleep: 30}}, b: {model: B, options: {sleep: 30}}}\n"
    table.write(text)
    code = RUN.format(here=str(ROOT / "tests" / "unit"), folder=str(tmp_path), text=text)
    environment = subprocess_environment()
    environment["PYTHONPATH"] += os.pathsep + str(ROOT / "tests")
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_for(lambda: len(table.calls()) == 2)
    yield process
    process.kill()
    process.wait()


def wait_for(condition, seconds=60):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_with_all_its_commands_and_gone_on_with(table, started, number):
    children = [int(line.split()[-2]) for line in table.journal.read_text().splitlines()]
    os.kill(started.pid, number)
    started.wait(30)
    wait_for(lambda: not any(map(is_alive, children)))
    assert table.calls("end") == []
    table.command = (
        sys.executable,
        "-c",
        PARLAI.replace("time.sleep(", "time.sleep(0 * "),
        *table.command[2:],
    )
    assert not table.run(2).failures
    assert sorted(table.calls("end")) == [
        "eval_model",
        "eval_model",
        "train_model A",
        "train_model B",
    ]


def test_two_runs_do_not_mix(table, started):
    with pytest.raises(PersonaAgentsError, match=f"in use .*process {started.pid} on "):
        table.run()
    assert len(table.calls()) == 2


def test_last_lines_of_a_long_log(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(
        b"x" * 100_000 + "人\n".encode() + b"".join(b"line %d\n\n" % i for i in range(40))
    )
    assert last_lines(log).splitlines() == [f"line {i}" for i in range(28, 40)]
