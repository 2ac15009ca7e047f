"""The reader of Persona-Chat's text format, its messages about bad input, and the task."""

from __future__ import annotations

import os

import pytest
from parlai.core.params import ParlaiParser
from parlai.core.teachers import FbDeprecatedDialogTeacher
from parlai.core.worlds import create_task
from persona_agents.tasks.base import Sample

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn

TASK = "personachat_single_turn"
GOOD = """\
1 your persona: i sew.
2 your persona: i have a cat.
3 __SILENCE__\thi there !
4 hello . any pets ?\ti have a cat .
5 nice .\tthanks : )\t0\tone|two|thanks : )
1 your persona: i ski.
2 hi\ti ski a lot .
"""


def write(folder, text, encoding="utf-8"):
    (folder / "valid_self_original.txt").write_bytes(text.encode(encoding))
    return str(folder)


def teacher(task=TASK, datatype="valid", **settings):
    opt = ParlaiParser(True, False).parse_kwargs(task=task, datatype=datatype, **settings)
    return create_task(opt, []).get_agents()[0]


def samples(folder, **settings):
    return teacher(personachat_path=str(folder), **settings).samples


def test_single_turns(tmp_path):
    write(tmp_path, GOOD)
    assert samples(tmp_path) == [
        Sample(("i sew.", "i have a cat."), "hello . any pets ?", "i have a cat ."),
        Sample(("i sew.", "i have a cat."), "nice .", "thanks : )"),
        Sample(("i ski.",), "hi", "i ski a lot ."),
    ]


def test_message(tmp_path):
    message = teacher(personachat_path=write(tmp_path, GOOD)).act()
    assert (
        message["text"] == "your persona: i sew.\nyour persona: i have a cat.\nhello . any pets ?"
    )
    assert message["eval_labels"] == ["i have a cat ."]
    assert message["episode_done"] is True


def test_filter_is_off_by_default(tmp_path):
    write(tmp_path, GOOD)
    kept = samples(tmp_path, persona_filter=1)
    assert [sample.response for sample in kept] == ["i have a cat .", "i ski a lot ."]


def test_byte_order_mark_and_line_ends(tmp_path):
    write(tmp_path, GOOD)
    plain = list(samples(tmp_path))
    write(tmp_path, "\ufeff" + GOOD.replace("\n", "\r\n"))
    assert samples(tmp_path) == plain


BAD = {
    "no number": ("hi\thello", "it does not begin with a number and a space"),
    "gap": ("4 hi\thello", "it is numbered 4, not 3"),
    "no tab": ("3 hi hello", "neither a persona line nor a query and a reply"),
    "no reply": ("3 hi\t", "no reply"),
    "no query": ("3 \thello", "the query is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_line(tmp_path, case):
    line, reason = BAD[case]
    folder = write(tmp_path, f"1 your persona: i sew.\n2 hi\thello\n{line}\n")
    with pytest.raises(PersonaAgentsError) as caught:
        samples(folder)
    path = os.path.join(folder, "valid_self_original.txt")
    assert str(caught.value).startswith(f"{path}, line 3: {reason}")


def test_wrong_encoding(tmp_path):
    write(tmp_path, "1 your persona: caf\u00e9\n", encoding="latin-1")
    with pytest.raises(PersonaAgentsError, match="line 1: not UTF-8"):
        samples(tmp_path)


def test_nothing_in_the_file(tmp_path):
    write(tmp_path, "1 your persona: i sew.\n2 __SILENCE__\thi\n")
    with pytest.raises(PersonaAgentsError, match="gives no sample"):
        samples(tmp_path)


@pytest.mark.parametrize("datatype", ["train", "valid", "test"])
def test_missing_files(tmp_path, datatype):
    for folder in (tmp_path, tmp_path / "no"):
        with pytest.raises(PersonaAgentsError) as caught:
            teacher(datatype=datatype, personachat_path=str(folder))
        for part in (str(folder), "--personachat-path", f"-t {TASK}:mini"):
            assert part in str(caught.value)


def test_a_failed_download_is_one_message(tmp_path, monkeypatch):
    import parlai.tasks.personachat.build as parlais

    def fail(opt):
        raise ConnectionError("no network")

    monkeypatch.setattr(parlais, "build", fail)
    with pytest.raises(PersonaAgentsError, match=r"could not fetch Persona-Chat .*no network"):
        teacher(datapath=str(tmp_path))


def test_parlais_own_data_is_the_default(tmp_path):
    folder = tmp_path / "Persona-Chat" / "personachat"
    folder.mkdir(parents=True)
    write(folder, GOOD)
    # What ParlAI leaves when it has built its data, so that it does not download again.
    (tmp_path / "Persona-Chat" / ".built").write_text("2020-01-01\nv1.0", encoding="utf-8")
    assert teacher(datapath=str(tmp_path)).num_examples() == 3


def test_mini():
    one = teacher(f"{TASK}:mini", "test")
    assert one.num_examples() == one.num_episodes() == 500
    turn = parse_turn(one.act()["text"])
    assert len(turn.persona) == 4 and turn.query


def test_real_data_agrees_with_parlais_reader(real_data):
    path = real_data / "personachat" / "valid_self_original.txt"
    opt = ParlaiParser(True, False).parse_kwargs(task="fromfile", datatype="valid")
    opt["datafile"] = str(path)
    persona, expected = (), []
    for message in FbDeprecatedDialogTeacher(opt):
        turn = parse_turn(message["text"])
        persona = turn.persona or persona
        if turn.query != "__SILENCE__":
            expected.append(Sample(persona, turn.query, message["eval_labels"][0]))
    assert samples(path.parent) == expected
    # 378 turns of 50 dialogues, each of which begins with a silence
    assert len(expected) == 378 - 50
    sizes = {
        split: teacher(datatype=split, personachat_path=str(path.parent)).num_examples()
        for split in ("train", "test")
    }
    assert sizes == {"train": 6577 - 900, "test": 361 - 50}
