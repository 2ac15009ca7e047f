"""`parlai persona_table` as a user gives it: a whole table, mistakes, kills, a row repeated by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
import yaml
from conftest import subprocess_environment

from persona_agents.table import config

SIZES = {**tiny.SIZES, "learningrate": 0.01, "batchsize": 4, "label_truncate": 8, "dropout": 0.3}


@pytest.fixture
def table(tmp_path):
    """Writes a YAML file about a tiny corpus; returns the arguments of `parlai`."""

    def write(**keys):
        task = tiny.write_corpus(tmp_path / "corpus", tiny.samples("en")[:12])
        test_sets = {"test": {}}
        path = {"personachat_path": task["personachat_path"]}
        content = {
            "tasks": {task["task"]: {"options": path, "test_sets": test_sets}},
            "budget": {"steps": 8},
            "options": {**SIZES, "validation_every_n_steps": 2},
            "scoring": {"metrics": "corpus_bleu,char_f1,p_cover,length"},
            **keys,
        }
        file = tmp_path / "table.yml"
        file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        return "persona_table", "--table-file", str(file), "--output-folder"

    return write


def contents(folder) -> dict[str, bytes]:
    """The tables of a folder, pictures apart."""
    files = [folder / "tables.md", *(folder / "tables").iterdir()]
    return {f.name: f.read_bytes() for f in files if f.suffix != ".png"}


def numbers(folder) -> dict[str, float]:
    """What `parlai persona_score` wrote for a job's test set, and the perplexities of its report."""
    report = json.loads((folder / "test" / "report.json").read_text(encoding="utf-8"))["report"]
    scores = json.loads((folder / "test" / "persona_score.json").read_text(encoding="utf-8"))
    values = scores["scores"]["first"]["values"]
    return {**values, **{key: report[key] for key in ("ppl", "char_ppl") if key in report}}


def row_of(folder, label: str) -> dict[str, float]:
    """A system's means in results.json."""
    tables = json.loads((folder / "results.json").read_text(encoding="utf-8"))["tables"]
    found = {}
    for one in tables:
        for row in one["rows"] if one["name"].endswith(("systems", "beside")) else ():
            if row["label"] == label:
                found.update({key: cell["mean"] for key, cell in row["cells"].items()})
    return found


def test_a_table_with_a_failed_job(run_parlai, table, tmp_path):
    broken = {"model": "persona_agents:hcm", "options": {"n_heads": 3}}
    arguments = table(systems={"hcm": {"label": "HCM 模型"}, "broken": broken}, anchors=False)
    out = tmp_path / "out"
    done = run_parlai(*arguments, out, "--jobs", 2)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "1 of 2 jobs failed" in done.stderr and "broken" in done.stderr
    assert "--n-heads 3" in done.stdout, "the end of its log is shown"
    page = (out / "tables.md").read_text(encoding="utf-8")
    assert "| HCM 模型 |" in page and "Failed" in page and "ppl, swapped" in page
    job = out / "personachat_single_turn" / "hcm" / "seed1"
    for name in ("job.json", "repeat.sh", "model.opt", "test/replies.jsonl", "test/report.json",
                 "test/scores.json", "swapped/replies.jsonl", "logs/train.txt"):  # fmt: skip
        assert (job / name).is_file(), name
    versions = json.loads((out / "versions.json").read_text(encoding="utf-8"))
    assert versions["parlai"] == "1.7.2" and versions["torch"]
    entry = json.loads((out / "results.json").read_text(encoding="utf-8"))["jobs"][0]
    assert [point["steps"] for point in entry["curve"]] == [2, 4, 6, 8]
    assert entry["training_steps"] == 8 and entry["training_seconds"] > 0
    assert (out / "tables" / "personachat_single_turn-curves.png").is_file()


def test_mistakes_are_one_message_and_leave_nothing(run_parlai, table, tmp_path):
    out = tmp_path / "out"
    arguments = table(systems={"hcm": {"options": {"dropuot": 0.1}}})
    done = run_parlai(*arguments, out)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    message = done.stderr.strip().splitlines()[-1]
    assert "table.yml: systems.hcm (train" in message and "--dropuot 0.1" in message
    assert not out.exists()


def test_help_shows_the_keys(run_parlai):
    said = run_parlai("persona_table", "--help").stdout
    assert all(line in said for line in config.SCHEMA.splitlines())


def start(arguments) -> subprocess.Popen:
    """The `parlai` command, running; stopped with its commands it needs no more care."""
    command = [sys.executable, "-m", "parlai", *arguments]
    return subprocess.Popen(command, env=subprocess_environment(), stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_table(run_parlai, table, tmp_path):
    ablation = {"model": "persona_agents:hcm", "options": {"copy": "none"}, "seeds": [1]}
    arguments = table(systems=["hcm"], ablations={"w/o HCM": ablation}, seeds=[1, 2], anchors=False)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_parlai(*arguments, whole, "--jobs", 2, timeout=900).returncode == 0
    # killed within the first training, between its end and the evaluations, and late
    moments = [("*/*/*/model.checkpoint", 1), ("*/*/*/done/*.json", 1), ("*/*/*/done/*.json", 5)]
    for pattern, count in moments:
        process = start([*arguments, str(killed), "--jobs", "2"])
        while process.poll() is None and len(list(killed.glob(pattern))) < count:
            time.sleep(0.02)
        assert process.poll() is None, "it was killed too late"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert run_parlai(*arguments, killed, "--jobs", 2, timeout=900).returncode == 0
    assert contents(killed) == contents(whole)


@pytest.mark.slow
def test_a_row_repeated_by_hand_gives_the_same_numbers(run_parlai, table, tmp_path):
    arguments = table(systems=["hcm"])
    out, again = tmp_path / "out", tmp_path / "again"
    assert run_parlai(*arguments, out, timeout=900).returncode == 0
    for job, label in (("hcm/seed1", "hcm"), ("shuffled_gold", "shuffled gold")):
        script = out / "personachat_single_turn" / job / "repeat.sh"
        subprocess.run(["sh", script, again / job], check=True, env=subprocess_environment())
        row, by_hand = row_of(out, label), numbers(again / job)
        assert len(row) > 5 and row == {key: by_hand[key] for key in row}
