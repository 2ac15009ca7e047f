"""DVS2S through the ``parlai`` command: tasks with and without persona, both languages, T shown."""

from __future__ import annotations

import pytest

from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts.persona_vocab import PersonaVocab

TINY = ["--embedding-size", "8", "--hidden-size", "8", "-bs", "8", "--seed", "1"]
SHORT = ["--max-train-steps", "4", "--dvs-pretrain-epochs", "0", "--dvs-top-k", "30"]
QUIET = ["--skip-generation", "true", "-veps", "-1", "-ltim", "-1"]


@pytest.fixture
def plain_task(tmp_path):
    """A dialogue task of ParlAI's own, in a file: several turns, nobody has a persona."""
    turns = [f"text:how is number {i} ?\tlabels:number {i} sleeps well" for i in range(24)]
    turns[-1] += "\tepisode_done:True"
    path = tmp_path / "plain.txt"
    path.write_text("\n".join(turns) + "\n", encoding="utf-8")
    return ["-t", "fromfile:parlaiformat", "--fromfile-datapath", str(path)]


@pytest.mark.parametrize("task", ["cpc:mini", "personachat_single_turn:mini", "plain"])
def test_train_evaluate_and_show(run_parlai_commands, plain_task, tmp_path, task):
    task = plain_task if task == "plain" else ["-t", task]
    model = ["-mf", tmp_path / "model"]
    query = "你喜欢什么？" if task[1].startswith("cpc") else "how is your number ?"
    done = run_parlai_commands(
        ["train_model", "-m", "persona_agents:dvs2s", *model, *task, *TINY, *SHORT, *QUIET],
        ["eval_model", *model, *task, "-ne", "6", "-bs", "3", "--world-logs", tmp_path / "log"],
        ["persona_vocab", *model, "--query", query, "--show-words", "5", "--dvs-top-k", "7"],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("t_size", "t_recall", "predictor_loss", "reward", "ppl_full"):
        assert name in done.stdout
    assert "content words;" in done.stdout and "|T| = " in done.stdout
    log = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert '"vocabulary_size": ' in log and '"missed_words": ' in log


def test_other_models_are_refused(run_parlai_commands, tmp_path):
    from tiny import SIZES

    sizes = [
        part for name, value in SIZES.items() for part in (f"--{name}".replace("_", "-"), value)
    ]
    done = run_parlai_commands(
        ["train_model", "-m", "persona_agents:hcm", "-mf", tmp_path / "model", "-t", "cpc:mini"]
        + ["--max-train-steps", "1", *QUIET, *sizes],
        ["persona_vocab", "-mf", tmp_path / "model"],
    )
    assert done.returncode == 1
    assert "reads models of persona_agents:dvs2s" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loglevel": "error"}, "needs a model: -mf FILE"),
        ({"model_file": "no/model"}, "--model-file no/model: this file does not exist"),
        ({"model_file": "no/model", "show_words": -3}, "--show-words -3: .* 0 or more"),
    ],
)
def test_wrong_options_of_persona_vocab(options, message):
    with pytest.raises(PersonaAgentsError, match=message):
        PersonaVocab.main(**options)


def test_bert_is_refused(run_parlai, tmp_path):
    done = run_parlai(
        *["train_model", "-m", "persona_agents:dvs2s", "-t", "cpc:mini", "-mf", tmp_path / "model"],
        *["--bert-model", "bert-base-chinese"],
    )
    assert done.returncode == 1
    assert "\n--bert-model bert-base-chinese: dvs2s works on words" in "\n" + done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("model*"))
