"""The contest's own test file: with no gold reply a model replies and nothing is compared."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from parlai.core.metrics import ExactMatchMetric
from parlai.scripts.display_data import DisplayData
from parlai.scripts.eval_model import EvalModel
from persona_agents.tasks.cpc import official
from persona_agents.tasks.cpc.official import OfficialSample

from persona_agents.errors import PersonaAgentsError
from tests.unit.corpora import teacher, variant, write, write_zip

PROFILE = {"爱好": "我 喜欢 钓鱼", "tag": "我 养 猫"}
HISTORY = ["你好 ， 你 是 谁 ？", "我 是 老师 。", "你 有 宠物 吗 ？"]


def line(**changes) -> str:
    raw = {"profile": PROFILE, "history": HISTORY, **changes}
    return json.dumps({key: raw[key] for key in raw if raw[key] != "absent"}, ensure_ascii=False)


PERSONA, TURNS = ("我喜欢钓鱼", "我养猫"), ("你好，你是谁？", "我是老师。", "你有宠物吗？")
FORMS = {
    "no response": (line(), None),
    "response": (line(response="我 养 了 猫 。"), "我养了猫。"),
    "empty response": (line(response=""), None),
    "response of spaces": (line(response=" "), None),
    "null response": (line(response=None), None),
    "list for profile": (line(profile=list(PROFILE.values())), None),
    "speakers": (
        line(history=["p1 : 你好 ， 你 是 谁 ？", "p2：我 是 老师 。", "p1:你 有 宠物 吗 ？"]),
        None,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    text, response = FORMS[form]
    notes = Counter()
    assert official.parse_sample(text, notes) == OfficialSample(PERSONA, TURNS, response)
    assert not notes


def test_an_empty_persona_sentence_is_counted():
    notes = Counter()
    sample = official.parse_sample(line(profile={**PROFILE, "x": " "}), notes)
    assert sample.persona == PERSONA
    assert notes == {"samples with an empty persona sentence, which is left out": 1}


def test_what_the_log_says(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(official.logging, "info", told.append)
    write(tmp_path, [line(), line(response="好"), "{}"], "Persona_test.json")
    official.load(str(tmp_path), skip_bad=True)
    assert "2 samples; 1 lines skipped (missing key); 1 samples without an answer" in told[0]


BAD = {
    "no profile": (line(profile="absent"), "the key 'profile' is missing"),
    "no history": (line(history="absent"), "the key 'history' is missing"),
    "empty history": (line(history=[]), "the history is empty"),
    "empty turn": (line(history=["好", " "]), "turn 2 of the history is empty"),
    "wrong profile": (line(profile={"a": 1}), "'profile' is not a list of strings"),
    "wrong response": (line(response=["好"]), "'response' is not a string"),
    "a dialogue": (variant(), "use -t cpc:raw"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_lines(tmp_path, fault):
    write(tmp_path, [line(), BAD[fault][0]], "Persona_test.json")
    with pytest.raises(PersonaAgentsError, match="Persona_test.json, line 2: .*" + BAD[fault][1]):
        official.load(str(tmp_path))
    assert len(official.load(str(tmp_path), skip_bad=True)) == 1


@pytest.mark.parametrize("name", ["Persona_test.json", "Persona_testA.json", "persona_test_B.txt"])
def test_names(tmp_path, name):
    write(tmp_path / "folder", [line()], name)
    for place in (tmp_path / "folder", tmp_path / "folder" / name):
        assert len(official.load(str(place))) == 1


@pytest.mark.parametrize("name", ["Dialog_test.zip", "Dialog_testA.zip", "dialog_test_a.zip"])
def test_zips(tmp_path, name):
    path = write_zip(tmp_path / name, Persona_testA=[line()], duconv_test=["{}"])
    assert len(official.load(str(tmp_path))) == len(official.load(path)) == 1


def test_missing(tmp_path):
    for place in (tmp_path, tmp_path / "no"):
        with pytest.raises(PersonaAgentsError, match="Persona_testB.json or its zip"):
            official.load(str(place))


def test_messages(tmp_path):
    write(tmp_path, [line(), line(response="猫")], "Persona_test.json")
    one = teacher("cpc:official_test", "test", cpc_path=str(tmp_path))
    first, second = one
    assert first["text"] == "\n".join([*(f"your persona: {s}" for s in PERSONA), *TURNS])
    assert "eval_labels" not in first and "labels" not in first
    assert second["eval_labels"] == ["猫"]


@pytest.mark.parametrize(("size", "turns"), [(1, 1), (2, 2), (-1, 3), (9, 3)])
def test_history_size_of_the_agent(tmp_path, size, turns):
    write(tmp_path, [line()], "Persona_test.json")
    one = teacher("cpc:official_test", "test", cpc_path=str(tmp_path))
    one.opt["history_size"] = size
    assert one.act()["text"].split("\n")[2:] == list(TURNS[-turns:])


def test_it_is_not_for_training(tmp_path):
    write(tmp_path, [line()], "Persona_test.json")
    for datatype in ("train", "train:ordered"):
        with pytest.raises(PersonaAgentsError, match="no training data"):
            teacher("cpc:official_test", datatype, cpc_path=str(tmp_path))


@pytest.mark.parametrize("batchsize", [1, 3])
@pytest.mark.parametrize("labelled", [0, 2])
def test_evaluation(tmp_path, batchsize, labelled):
    lines = [line()] * 5 + [line(response="hello")] * labelled
    write(tmp_path, lines, "Persona_test.json")
    report = EvalModel.main(
        task="cpc:official_test",
        datatype="test",
        model="fixed_response",
        fixed_response="hello",
        cpc_path=str(tmp_path),
        batchsize=batchsize,
        world_logs=str(tmp_path / "log.jsonl"),
        save_format="conversations",
    )
    assert report["exs"] == 5 + labelled
    if labelled:
        assert report["accuracy"] == ExactMatchMetric(1), "over those that have a reference"
    else:
        assert not {"accuracy", "f1", "bleu-4", "precision"} & set(report)
    logged = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    replies = [entry["dialog"][0][1]["text"] for entry in map(json.loads, logged)]
    assert replies == ["hello"] * (5 + labelled)


def test_display(tmp_path, capsys):
    write(tmp_path, [line()], "Persona_test.json")
    DisplayData.main(task="cpc:official_test", datatype="test", cpc_path=str(tmp_path))
    assert TURNS[0] in capsys.readouterr().out
