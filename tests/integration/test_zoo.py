"""Zoo and packed models through the `parlai` command, from an installed wheel too."""

from __future__ import annotations

import json
import re

import pytest
import test_install
from conftest import ROOT
from test_install import pip

from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts.persona_zoo import PersonaZoo

ZH, EN = "zoo:persona_agents/hcm_mini_zh/model", "zoo:persona_agents/hcm_mini_en/model"
NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}

TINY = (
    *("-t", "cpc:mini", "--bert-model", "none", "--embedding-size", "8", "--n-heads", "2"),
    *("--ffn-size", "8", "--n-encoder-layers", "1", "--n-decoder-layers", "1", "-bs", "2"),
    *("--dict-maxexs", "20", "--validation-max-exs", "2", "--short-final-eval", "true"),
    *("--skip-generation", "true", "--max-train-steps", "2", "-mf"),
)
PRESET = str(ROOT / "parlai_internal" / "opt_presets" / "persona_agents" / "hcm_cpc.opt")

source, wheel = test_install.source, test_install.wheel  # fixtures


def test_the_wheel_answers(wheel, tmp_path, run_parlai_commands):
    """Right after installation, in an empty folder, without network; presets are found too."""
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel)
    chinese = ("-t", "cpc:mini", "--persona", "我住在萤姿镇|我叫薛息|我上过坚境中学")
    persona = "people call me samuel wallace.|my home is in western temple."
    english = ("-t", "personachat_single_turn:mini", "--persona", persona)
    done = run_parlai_commands(
        ["interactive", "-mf", ZH, *chinese],
        ["interactive", "-mf", EN, *english],
        ["train_model", "-o", "persona_agents/hcm_without_copy_cpc", *TINY, tmp_path / "model"],
        input="你叫什么？\n[EXIT]\nwhere do you live?\n[EXIT]\n",
        env={"PYTHONPATH": str(tmp_path / "site"), "PARLAI_DATAPATH": str(tmp_path), **NO_NETWORK},
    )
    assert done.returncode == 0, done.stderr
    answers = [line for line in done.stdout.splitlines() if "[HCM]:" in line]
    assert len(answers) == 2
    assert "薛息" in answers[0] and "western temple" in answers[1]
    opt = json.loads((tmp_path / "model.opt").read_text(encoding="utf-8"))
    assert (opt["copy"], opt["pretrained_lr"]) == ("none", 7e-6)
    assert not list((tmp_path / "empty").iterdir())


def test_list_pack_and_verify(run_parlai_commands, tmp_path):
    archive, reports = tmp_path / "new" / "mine.zip", [tmp_path / "1.json", tmp_path / "2.json"]
    evaluation = ("-t", "cpc:mini", "-ne", "20", "-bs", "20", "--metrics", "p_cover", "-rf")
    card = ("--card-license", "MIT", "--card-report", reports[0])
    done = run_parlai_commands(
        ["persona_zoo"],
        ["eval_model", "-mf", ZH, "-dt", "test", *evaluation, reports[0]],
        ["persona_zoo", "-mf", ZH, "--pack", archive, *card],
        ["persona_zoo", "--verify", archive, *evaluation, reports[1]],
        env={"PARLAI_DATAPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert ZH in done.stdout and "PERSONA_AGENTS_ZOO_URL is not set" in done.stdout
    assert f"{archive} is sound: persona_agents:hcm with 1,314,210 parameters" in done.stdout
    one, two = (json.loads(path.read_text(encoding="utf-8"))["report"] for path in reports)
    assert one["p_cover"] == two["p_cover"] and one["ppl"] == two["ppl"] and one["exs"] == 20
    line = (tmp_path / "new" / "mine.zip.sha256").read_text(encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{64}  mine\.zip\n", line) and line[:64] in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pack", "x.zip"), "--pack needs --model-file"),
        (("--pack", "x.tar", "-mf", "nothing"), "ends in .zip"),
        (("--pack", "x.zip", "-mf", "nothing"), "nothing is missing"),
        (("--pack", "x.zip", "--verify", "x.zip"), "exclude each other"),
        (("--pack", "x.zip", "-mf", ZH, "--card-report", "no.json"), "no.json cannot be read"),
        (("--pack", "x.zip", "-mf", ZH, "--card-report", PRESET), "this is no report"),
        (("--pack", "x.zip", "-mf", ZH, "--card-license", "see /home/me/x"), "--card-license"),
        (("-mf", "zoo:persona_agents/hcm_cpc/model", "--pack", "x.zip"), "not published yet"),
        (("-mf", "zoo:persona_agents/hcm/model", "--pack", "x.zip"), "There is no such model"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, arguments, message):
    monkeypatch.setenv("PARLAI_DATAPATH", str(tmp_path / "data"))
    monkeypatch.delenv("PERSONA_AGENTS_ZOO_URL", raising=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(PersonaAgentsError, match=re.escape(message)):
        PersonaZoo.main(*arguments)
    assert not list((tmp_path / "empty").iterdir())
