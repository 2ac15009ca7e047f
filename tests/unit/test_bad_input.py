"""What the user gets for each fault of CPC's raw files: a message that names the line, or a count."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile

import pytest
from persona_agents.tasks import cache, files
from persona_agents.tasks.cpc import build
from persona_agents.tasks.cpc.build import Settings, Source
from persona_agents.tasks.files import DataFile, Report

from persona_agents.errors import PersonaAgentsError
from tests.unit.corpora import GOOD, numbered, teacher, variant, write, write_zip

TURN = GOOD["conversation"]


def said(*turns) -> str:
    return variant(conversation=list(turns))


# fault: (the bytes of the line, what the message says, in which count the line is when skipped)
STOPS = {
    "cut off": (variant()[:-9], "not a complete JSON object", "not JSON"),
    "no JSON": ("你好", "not a complete JSON object", "not JSON"),
    "control character": (variant().replace("猫", "\0"), "not a complete JSON object", "not JSON"),
    "nested too deep": ("[" * 100_000, "not a complete JSON object", "not JSON"),
    "a list": ("[1, 2]", "a JSON object is expected, not a list", "not an object"),
    "missing key": ('{"p1_persona": [], "p2_persona": []}', "the key 'conver", "missing key"),
    "official sample": ('{"profile": {}, "history": []}', "-t cpc:official", "not a dialogue"),
    "persona is text": (variant(p1_persona="我"), "'p1_persona' is not a list", "wrong type"),
    "persona is null": (variant(p2_persona=None), "'p2_persona' is not a list", "wrong type"),
    "number in persona": (variant(p2_persona=[3]), "'p2_persona' is not a list", "wrong type"),
    "turn is no text": (said(TURN[0], {}), "'conversation' is not a list", "wrong type"),
    "speaker twice": (said("p1 : 好", "p1 : 好"), "1 and 2 are both by p1", "speakers not in turn"),
    "empty turn": (said("p1 : 好", "p2 : "), "turn 2 is empty", "empty turn"),
    "only the speaker": (said("p1 : 好", "p2 :"), "turn 2 is empty", "empty turn"),
    "turn of spaces": (said("p1 : 好", "p2 : \u3000 \t"), "turn 2 is empty", "empty turn"),
    "empty string": (said("p1 : 好", ""), "turn 2 does not begin with", "no speaker"),
    "no speaker": (said("p1 : 好", "好"), "turn 2 does not begin with 'p1 :'", "no speaker"),
    "third speaker": (said("p3 : 好"), "turn 1 does not begin with 'p1 :'", "no speaker"),
    "half a surrogate": (said("p1 : 好", "p2 : @").replace("@", "\\ud83d"), "half", "surrogates"),
    "GB18030": (variant().encode("gb18030"), "not UTF-8 .*iconv -f gb18030", "not UTF-8"),
    "Latin 1": (variant(x="é").encode("latin-1", "replace"), "not UTF-8", "not UTF-8"),
    "cut in a character": ('{"p1_persona": ["我'.encode()[:-1], "not UTF-8", "not UTF-8"),
}

# what is read all the same: (the line, how many pairs it gives, the note in the report if any)
TOLERATED = {
    "no spaces in the prefix": (said("p1:好", "p2:好"), 1, None),
    "full-width colon": (said("p1：好", "p2 ：好"), 1, None),
    "CRLF": (variant() + "\r", 2, None),
    "whole surrogate pair": (said("p1 : 好", "p2 : @").replace("@", "\\ud83d\\ude00"), 1, None),
    "other keys": (variant(id=3), 2, "dialogues with other keys, which are not read"),
    "no persona": (variant(p1_persona=[]), 2, "dialogues with a speaker without persona"),
    "60 sentences": (variant(p1_persona=[f"我 有 {i} 只 猫" for i in range(60)]), 2, None),
    "1 MiB in a line": (said("p1 : 好", "p2 : " + "我 有 猫 ，" * 80_000), 1, None),
    "not segmented": (variant().replace(" ", ""), 2, None),
    "empty sentence": (
        variant(p1_persona=["我 有 猫", " "]),
        2,
        "dialogues with an empty persona sentence, which is left out",
    ),
    "one turn": (
        said("p1 : 好"),
        0,
        "dialogues of fewer than two turns, which give no pair",
    ),
    "no turn": (said(), 0, "dialogues of fewer than two turns, which give no pair"),
    "repeated": (
        numbered(1)[0],
        1,
        "dialogues that occur before in the file, kept",
    ),
}


def put(folder, line) -> DataFile:
    """A dev file of a good dialogue, the line, and another good one."""
    one, two = (text.encode() for text in numbered(2))
    line = line if isinstance(line, bytes) else line.encode()
    (folder / "Persona_dev.json").write_bytes(b"\n".join((one, line, two)) + b"\n")
    return DataFile(str(folder / "Persona_dev.json"))


def read(file: DataFile, skip_bad=False) -> tuple[list, Report]:
    parts, report = build.build(Source(file, ("valid",)), Settings(skip_bad=skip_bad))
    assert report.adds_up()
    assert sum(report.dialogues.values()) == report.read
    assert report.pairs["valid"]["kept"] == len(parts["valid"])
    return parts["valid"], report


@pytest.mark.parametrize("fault", STOPS)
def test_a_bad_line_stops_the_reading_or_is_counted(tmp_path, fault):
    line, message, kind = STOPS[fault]
    file = put(tmp_path, line)
    with pytest.raises(PersonaAgentsError, match=f"^{file}, line 2: .*{message}") as caught:
        read(file)
    assert "--skip-bad-lines true" in str(caught.value)
    samples, report = read(file, skip_bad=True)
    assert [sample.query for sample in samples] == ["第 0 个", "第 1 个"]
    assert report.skipped == {kind: 1}
    assert report.lines == 3


@pytest.mark.parametrize("oddity", TOLERATED)
def test_what_is_odd_is_read_and_noted(tmp_path, oddity):
    line, pairs, note = TOLERATED[oddity]
    samples, report = read(put(tmp_path, line))
    assert len(samples) == 2 + pairs
    assert dict(report.notes) == ({note: 1} if note else {})
    assert not report.skipped


def test_a_persona_of_60_sentences_is_kept_whole(tmp_path):
    samples, _ = read(put(tmp_path, TOLERATED["60 sentences"][0]))
    assert max(len(sample.persona) for sample in samples) == 60


def test_byte_order_mark_and_blank_lines(tmp_path):
    (tmp_path / "Persona_dev.json").write_bytes(
        b"\xef\xbb\xbf" + "\r\n\n  \n".join(numbered(2)).encode()
    )
    samples, report = read(DataFile(str(tmp_path / "Persona_dev.json")))
    assert len(samples) == 2
    assert (report.lines, report.blank, report.read) == (4, 2, 2)


def test_utf_16(tmp_path):
    (tmp_path / "Persona_dev.json").write_bytes(variant().encode("utf-16"))
    with pytest.raises(PersonaAgentsError, match="line 1: not UTF-8 .*utf-16"):
        build.load(str(tmp_path), "valid")


@pytest.mark.parametrize("text", ["", "\n\n \n"])
def test_nothing_in_the_file(tmp_path, text):
    (tmp_path / "Persona_dev.json").write_text(text)
    with pytest.raises(PersonaAgentsError, match="gives no sample for the split 'valid'"):
        build.load(str(tmp_path), "valid")


def test_a_train_dialogue_in_dev_is_counted(tmp_path):
    write(tmp_path, numbered(50), "Persona_train.json")
    write(tmp_path, numbered(3), "Persona_dev.json")
    _, report = build.build(build.locate(str(tmp_path), "train"), Settings())
    assert report.dialogues["left out: also in the dev file"] == 3
    assert sum(report.dialogues.values()) == report.read == 50


@pytest.mark.parametrize("make", ["folder", "dangling link"])
def test_no_file_where_one_should_be(tmp_path, make):
    if make == "folder":
        (tmp_path / "Persona_dev.json").mkdir()
    else:
        (tmp_path / "Persona_dev.json").symlink_to(tmp_path / "gone")
    with pytest.raises(
        PersonaAgentsError, match=r"Persona_dev.json cannot be read: (Is a dir|No s)"
    ):
        build.load(str(tmp_path), "valid")


def in_a_child(action, user=None) -> str:
    """What `action` returns or raises, as text, in a new process of another user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            text = str(action())
            os.write(writer, text.encode())
        except PersonaAgentsError as error:
            text = f"{type(error).__name__}: {error}"
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def open_folder():
    """A folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder


@pytest.mark.skipif(sys.platform == "win32", reason="no such permissions")
@pytest.mark.parametrize("what", ["file", "folder", "zip"])
def test_no_permission(open_folder, what):
    from pathlib import Path

    folder = Path(open_folder)
    inner = folder / "CPC"
    if what == "zip":
        closed = Path(write_zip(inner / "Dialog_dev.zip", Persona_dev=numbered(2)))
    else:
        write(inner, numbered(2))
        closed = inner / "Persona_dev.json" if what == "file" else inner
    closed.chmod(0)
    user = 65534 if os.geteuid() == 0 else None  # nobody; root may read everything
    message = in_a_child(lambda: len(build.load(str(inner), "valid")), user)
    closed.chmod(0o700)
    assert f"{closed} cannot be read: Permission denied" in message, message
    assert "PersonaAgentsError" in message


@pytest.fixture
def everything_is_large(monkeypatch):
    """Store the samples of small files too."""
    monkeypatch.setattr(cache, "LARGE", 0)


def test_a_full_disk_while_building(tmp_path, everything_is_large):
    write(tmp_path / "CPC", numbered(200))

    def run():
        # No file may grow beyond 2 kB: writing fails in the middle, as on a full disk.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        return len(build.load(str(tmp_path / "CPC"), "valid", folder=str(tmp_path / "cache")))

    assert in_a_child(run) == "200", "the samples are used all the same"
    left = [name for name in os.listdir(tmp_path / "cache") if not name.endswith("lock.json")]
    assert left == [], "and nothing half-written is left"
    assert len(build.load(str(tmp_path / "CPC"), "valid", folder=str(tmp_path / "cache"))) == 200


def test_a_full_disk_is_said(tmp_path, everything_is_large, monkeypatch, caplog):
    write(tmp_path / "CPC", numbered(2))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write", full)
    warnings = []
    monkeypatch.setattr(cache.logging, "warning", warnings.append)
    assert teacher(datapath=str(tmp_path)).num_examples() == 2
    assert "No space left" in warnings[0] and "--datapath" in warnings[0]


def test_the_option_skips_through_parlai(tmp_path):
    put(tmp_path, STOPS["cut off"][0])
    with pytest.raises(PersonaAgentsError, match="line 2"):
        teacher(cpc_path=str(tmp_path))
    assert teacher(cpc_path=str(tmp_path), skip_bad_lines=True).num_examples() == 2


def test_progress_and_report_of_a_large_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "LARGE", 0)
    put(tmp_path, json.dumps(GOOD))
    build.load(str(tmp_path), "valid")
    assert "Reading Persona_dev.json: 100%" in capsys.readouterr().err
