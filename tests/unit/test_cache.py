"""The cache of built samples: the same samples, built once, and never half of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import pytest
from persona_agents.tasks import cache
from persona_agents.tasks.content_words import Rule
from persona_agents.tasks.cpc import build
from persona_agents.tasks.cpc.build import Settings

from persona_agents.errors import PersonaAgentsError
from tests.unit.corpora import numbered, teacher, variant, write

SPLITS = ("train", "valid", "test")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Raw files of which everything is stored, however small they are."""
    monkeypatch.setattr(cache, "LARGE", 0)
    write(tmp_path / "CPC", numbered(100), "Persona_train.json")
    write(tmp_path / "CPC", [variant(), *numbered(5, 500)], "Persona_dev.json")
    return tmp_path


def load(folder, split="train", **settings):
    """As a new process would."""
    build._load.cache_clear()
    place, store = str(folder / "CPC"), str(folder / "persona_agents")
    return build.load(place, split, settings=Settings(**settings), folder=store)


def stored(folder) -> list[str]:
    names = sorted(os.listdir(folder / "persona_agents"))
    return [name for name in names if not name.endswith("lock.json")]


@pytest.mark.parametrize(
    "settings", [{}, {"rule": Rule("zh", 1)}, {"by": "persona"}, {"whole": True}]
)
def test_stored_samples_are_the_built_ones(data, settings):
    for split in SPLITS if settings.get("by") != "persona" else ("train", "valid"):
        fresh = list(load(data, split, **settings))
        again = load(data, split, **settings)
        assert isinstance(again, cache.StoredSamples)
        assert (
            list(again)
            == fresh
            == build.load(str(data / "CPC"), split, settings=Settings(**settings))
        )
        assert len(again) == len(fresh) and again[3:5] == fresh[3:5] and again[-1] == fresh[-1]


def test_one_pass_stores_all_splits_of_a_file(data, monkeypatch):
    load(data, "train")
    monkeypatch.setattr(build, "build", None)  # whatever is built now fails
    assert len(load(data, "train")) + len(load(data, "test")) == 100
    with pytest.raises(TypeError):
        load(data, "valid")


def test_lengths_and_report_need_the_first_line_only(data):
    samples = len(load(data))
    (path,) = (data / "persona_agents" / name for name in stored(data) if "train" in name)
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first + b"\n" + b"#" * len(rest))  # the rest is gone
    again = load(data)
    assert len(again) == again.num_examples == samples
    assert again.report["pairs"]["train"]["kept"] == samples
    with pytest.raises(PersonaAgentsError, match=f"{path} cannot be read .* Delete it"):
        again[0]


def test_num_examples_of_the_teachers(data):
    for task, count in (("cpc:raw", 7), ("cpc:multi_turn", 13), ("cpc", 7)):
        expected = teacher(task, datapath=str(data))
        assert expected.num_examples() == count
        build._load.cache_clear()
        again = teacher(task, datapath=str(data))
        assert again.num_examples() == count
        assert again.num_episodes() == expected.num_episodes()
        assert again.samples._items is None, "nothing but the header has been read"
        assert [m["text"] for m in again] == [m["text"] for m in expected]


def test_a_changed_source_is_built_again_in_place(data):
    load(data, "valid")
    names = stored(data)
    write(data / "CPC", numbered(3, 900), "Persona_dev.json")
    assert len(load(data, "valid")) == 3
    assert stored(data) == names, "the old version is replaced"
    load(data, "valid", rule=Rule("zh", 1))
    assert len(stored(data)) == len(names) + 1


@pytest.mark.parametrize("damage", ["cut off", "empty", "another format", "no JSON"])
def test_a_damaged_file_is_built_again(data, damage, monkeypatch):
    fresh = list(load(data, "valid"))
    (path,) = (data / "persona_agents" / name for name in stored(data))
    content = path.read_bytes()
    if damage == "cut off":
        path.write_bytes(content[:-1])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no JSON":
        path.write_bytes(b"{" + content)
    else:
        monkeypatch.setattr(cache, "FORMAT", -1)
    assert list(load(data, "valid")) == fresh
    assert cache._open(str(path), json.loads(path.read_bytes().split(b"\n")[0])["made_from"])


def test_replaced_between_header_and_samples(data):
    load(data, "valid")
    waiting = load(data, "valid")
    write(data / "CPC", numbered(3, 900), "Persona_dev.json")
    load(data, "valid")
    with pytest.raises(PersonaAgentsError, match="was made anew from other data"):
        waiting[0]


def _work(folder, log, pause):
    """A process of its own that loads; it says in `log` when it begins to build."""
    original = build.build

    def slow(source, settings):
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(pause)
        return original(source, settings)

    build.build = slow
    os._exit(0 if len(load(folder)) else 1)


def start(data, pause):
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(data, data / "log", pause)
    )
    process.start()
    return process


def wait_for_builders(data, count):
    for _ in range(500):
        if (data / "log").exists() and len((data / "log").read_text().split()) >= count:
            return
        time.sleep(0.02)
    raise AssertionError("nobody builds")


def test_two_processes_build_once(data):
    processes = [start(data, 0.3) for _ in range(3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len((data / "log").read_text().split()) == 1
    assert isinstance(load(data), cache.StoredSamples)


def test_a_killed_builder_leaves_no_samples_and_no_lock(data, monkeypatch):
    killed = start(data, 60)
    wait_for_builders(data, 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(60)
    assert stored(data) == []
    # One that is killed while it writes leaves a file of another name, which nobody reads.
    made_from = {"files": [[str(data), None, 0, 0]], "format": 1}
    monkeypatch.setattr(os, "replace", lambda *args: os._exit(9))
    child = os.fork()
    if child == 0:
        load(data, "valid")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.undo()
    monkeypatch.setattr(cache, "LARGE", 0)
    assert [name.rsplit(".", 1)[-1] for name in stored(data)] == ["new"]
    assert cache._open(str(data / "persona_agents" / stored(data)[0][:-4]), made_from) is None
    assert len(load(data, "valid")) == 7
    assert not any(name.endswith("new") for name in stored(data))


def test_who_waits_is_told_and_gives_up_in_the_end(data, monkeypatch):
    from persona_agents.tasks import files

    load(data)
    lock = str(data / "persona_agents" / "lock")
    told, pause = [], multiprocessing.get_context("fork").Event()
    monkeypatch.setattr(files.logging, "info", told.append)
    monkeypatch.setattr(files, "WAIT", 0.3)
    with files.locked(lock, "which tests"):
        assert told == []
        holder = multiprocessing.get_context("fork").Process(target=_hold, args=(lock, pause))
    holder.start()
    assert pause.wait(30)
    with pytest.raises(OSError, match="no lock on"), files.locked(lock, "which tests"):
        pass
    assert told == ["Waiting for another process, which tests."]
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(60)
    with files.locked(lock, "which tests"):
        assert len(told) == 1, "who is killed gives the lock up"


def _hold(lock, held):
    from persona_agents.tasks import files

    with files.locked(lock, ""):
        held.set()
        time.sleep(60)


def test_later_starts_tell_of_skipped_lines_too(data, monkeypatch):
    write(data / "CPC", [*numbered(3), "[]", "{}"], "Persona_dev.json")
    told = []
    monkeypatch.setattr(cache.logging, "info", told.append)
    load(data, "valid", skip_bad=True)
    assert told == [
        f"{data}/CPC/Persona_dev.json: 1 lines skipped (missing key); 1 lines skipped (not an object)"
    ]
    load(data, "valid", skip_bad=True)
    assert told[1].startswith("2 bad lines were left out when ")


def test_small_sources_are_not_stored(tmp_path):
    write(tmp_path / "CPC", numbered(3))
    assert load(tmp_path, "valid") == build.load(str(tmp_path / "CPC"), "valid")
    assert not (tmp_path / "persona_agents").exists()


def test_a_folder_that_cannot_be_made(data, monkeypatch):
    (data / "persona_agents").write_text("a file is in the way")
    warnings = []
    monkeypatch.setattr(cache.logging, "warning", warnings.append)
    assert len(load(data)) > 90
    assert "cannot be stored" in warnings[0]
