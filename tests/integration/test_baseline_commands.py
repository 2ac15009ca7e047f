"""The baselines through the `parlai` command, in a new process and an empty folder."""

from __future__ import annotations

import json

import systems
import tiny

MINE = ("s2sa", "pgn", "transformer")


def arguments(name: str) -> list[str]:
    """A system's options as they are typed."""
    typed = []
    for option, value in systems.SYSTEMS[name].settings.items():
        typed += [f"--{option.replace('_', '-')}", str(value)]
    return typed


def test_one_command_trains_and_the_model_file_alone_evaluates(run_parlai_commands, tmp_path):
    task = tiny.write_corpus(tmp_path / "data", tiny.samples("en")[:40:5])
    given = ["-t", task["task"], "--personachat-path", task["personachat_path"]]
    commands = []
    for name in MINE:
        model_file, report = tmp_path / name, tmp_path / f"{name}.json"
        commands.append(
            ["train_model", "-m", f"persona_agents:{name}", *given, "-mf", model_file]
            + ["--max-train-steps", 3, "--label-truncate", 16, *arguments(name)]
        )
        commands.append(
            ["eval_model", "-mf", model_file, *given, "-dt", "test", "-bs", 3]
            + ["--report-filename", report, "--metrics", "ppl,corpus_bleu,p_cover"]
        )
    done = run_parlai_commands(*commands)
    assert done.returncode == 0, done.stderr[-2000:]
    for name in MINE:
        report = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))["report"]
        assert report["exs"] == 8 and 1 < report["ppl"] < 1e6 and report["gen_n_toks"] > 0
        assert {"corpus_bleu_4", "p_cover"} <= report.keys()


def test_wrong_options_end_with_one_line(run_parlai, tmp_path):
    done = run_parlai(
        *("train_model", "-m", "persona_agents:transformer", "-t", "cpc:mini"),
        *("-mf", tmp_path / "model", "--bert-model", "none", "--n-heads", 7),
    )
    assert done.returncode == 1
    assert "--embedding-size 512 cannot be divided among --n-heads 7" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.glob("model*"))
