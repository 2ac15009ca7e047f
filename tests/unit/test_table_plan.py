"""From the YAML file to commands: what each says, and that a row's script repeats it."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from conftest import ROOT

from persona_agents import AGENTS
from persona_agents.errors import PersonaAgentsError
from persona_agents.table import checks, config, plan


@pytest.fixture
def jobs(tmp_path):
    """The jobs of a YAML text, anchors left out unless it wants them."""

    def make(text):
        path = tmp_path / "table.yml"
        path.write_text(text + "\nanchors: false\n" * ("anchors" not in text), encoding="utf-8")
        make.config = config.read(str(path))
        return plan.jobs_of(make.config)

    return make


def options(step) -> dict[str, str]:
    """{option: value} of a step's arguments."""
    _, *arguments = step.arguments
    return dict(zip(arguments[::2], arguments[1::2]))


SMALL = "tasks: [cpc:mini]\nsystems: {hcm: }\n"


class TestTraining:
    @pytest.mark.parametrize(
        "budget, steps, epochs",
        [("{steps: 7}", "7", "-1"), ("{examples: 33}", "3", "-1"), ("{epochs: 0.5}", None, "0.5")],
    )
    def test_budget(self, jobs, budget, steps, epochs):
        (job,) = jobs(SMALL + f"budget: {budget}")
        found = options(job.steps[0])
        assert found.get("--max-train-steps") == steps and found["--num-epochs"] == epochs
        assert job.target == (("steps", float(steps)) if steps else ("epochs", float(epochs)))

    def test_examples_count_what_an_update_takes(self, jobs):
        (job,) = jobs(SMALL + "budget: {examples: 100}\noptions: {batchsize: 5, update_freq: 2}")
        assert options(job.steps[0])["--max-train-steps"] == "10"

    def test_own_options_go_over_common_ones_and_null_leaves_one_out(self, jobs):
        (job,) = jobs(
            "tasks: {cpc:mini: {options: {dropout: 0.2}}}\n"
            "systems: {hcm: {options: {dropout: 0.3, copy: null, batchsize: 4}}}\n"
            "options: {copy: flat, learningrate: 1e-3, dropout: 0.1}\nbudget: {steps: 1}"
        )
        found = options(job.steps[0])
        assert found["--dropout"] == "0.3" and found["--batchsize"] == "4"
        assert found["--learningrate"] == "1e-3" and "--copy" not in found

    def test_seeds_are_jobs(self, jobs):
        found = jobs(SMALL + "seeds: [4, 2]\nbudget: {steps: 1}")
        assert [job.folder for job in found] == ["cpc_mini/hcm/seed4", "cpc_mini/hcm/seed2"]
        assert [options(job.steps[0])["--seed"] for job in found] == ["4", "2"]

    def test_other_agents_select_by_perplexity_and_can_be_gone_on_with(self, jobs):
        (job,) = jobs("tasks: [cpc:mini]\nsystems: {s: {model: seq2seq}}\nbudget: {steps: 1}")
        found = options(job.steps[0])
        assert found["--validation-metric"] == "ppl" and found["--save-after-valid"] == "true"

    def test_examples_by_the_batch_size_of_the_agent(self, jobs):
        hcm, dvs2s, other = jobs(
            "tasks: [cpc:mini]\nsystems: {hcm: , dvs2s: , s: {model: seq2seq}}\nbudget: {examples: 128}"
        )
        found = [options(job.steps[0])["--max-train-steps"] for job in (hcm, dvs2s, other)]
        assert found == ["8", "2", "8"]

    def test_preset_of_each_task(self, jobs):
        found = jobs(
            "tasks: ['cpc:mini', convai2]\nsystems: {s: {preset: 'a/b_{task}'}}\nbudget: {steps: 1}"
        )
        assert [options(job.steps[0])["-o"] for job in found] == ["a/b_cpc", "a/b_convai2"]

    def test_preset(self, jobs):
        (job,) = jobs("tasks: [cpc:mini]\nsystems: {s: {preset: a/b}}\nbudget: {steps: 1}")
        found = options(job.steps[0])
        assert found["-o"] == "a/b" and "-m" not in found and "--validation-metric" not in found


class TestEvaluations:
    def test_of_all_test_sets_and_with_swapped_personas(self, jobs):
        (job,) = jobs("tasks: [cpc]\nsystems: {hcm: }\nbudget: {steps: 1}\noptions: {copy: flat}")
        names = [step.name for step in job.steps]
        assert names == ["train", "test set filtered", "test set whole", "swapped personas"]
        filtered, whole, swapped = map(options, job.steps[1:])
        assert filtered["-t"] == swapped["-t"] == "cpc" and whole["-t"] == "cpc:raw"
        assert swapped["--mutators"] == "swap_persona" and "--mutators" not in filtered
        assert filtered["-mf"] == "$JOB/model" and "--copy" not in filtered
        assert filtered["--world-logs"] == "$JOB/filtered/replies.jsonl"
        assert job.steps[1].outputs == ("filtered/replies.jsonl", "filtered/report.json")
        assert job.sets == ("filtered", "whole", "swapped")

    def test_without_swapped_personas(self, jobs):
        (job,) = jobs(SMALL + "budget: {steps: 1}\nswapped_personas: false")
        assert job.sets == ("test",) and len(job.steps) == 2

    def test_of_an_agent_without_training(self, jobs):
        (job,) = jobs(
            "tasks: [cpc:mini]\nbudget: {steps: 1}\noptions: {dropout: 0.1}\n"
            "systems: {echo: {model: repeat_query, train: false, options: {a: b}}}"
        )
        found = options(job.steps[0])
        assert found["-m"] == "repeat_query" and found["--a"] == "b" and "--dropout" not in found

    def test_anchors_come_first_for_each_task(self, jobs):
        found = jobs(
            "tasks: ['cpc:mini', 'personachat_single_turn:mini']\nsystems: [hcm]\n"
            "budget: {steps: 1}\nanchors: true"
        )
        assert [job.system.name for job in found[:5]] == [*config.ANCHORS, "hcm"]
        constants = [options(job.steps[0]) for job in found if job.system.name == "constant reply"]
        assert [c["--fixed-response"] for c in constants] == ["我不知道。", "i do not know ."]


class TestCommands:
    def test_folder_and_shell(self, tmp_path):
        step = plan.Step("x", ("eval_model", "-mf", "$JOB/a b", "--text", "it's $JOB/no"), ())
        assert step.command(tmp_path) == [
            "eval_model",
            "-mf",
            f"{tmp_path}/a b",
            "--text",
            "it's $JOB/no",
        ]
        said = subprocess.run(
            ["sh", "-c", f'JOB="{tmp_path}/x y"; parlai() {{ printf "%s\\n" "$@"; }}; {step.shell()}'],
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        assert said == step.command(tmp_path / "x y"), "shell and runner mean the same"

    def test_script_repeats_all_of_a_job(self, jobs, tmp_path):
        (job,) = jobs(SMALL + "budget: {steps: 1}\nscoring: {metrics: p_cover}")
        script = plan.script(job, {"OMP_NUM_THREADS": "1"})
        lines = [line for line in script.splitlines() if line.startswith("parlai ")]
        commands_ = [shlex.split(line)[1] for line in lines]
        assert commands_ == [
            "train_model",
            "eval_model",
            "eval_model",
            "persona_score",
            "persona_score",
        ]
        assert "export OMP_NUM_THREADS=1" in script and "--metrics p_cover" in lines[-1]
        assert "--language zh" in lines[-1]


class TestCheck:
    @pytest.mark.parametrize(
        "text, where, reason",
        [
            ("systems: {hcm: {options: {nonsense: 1}}}", "systems.hcm (train", "--nonsense 1"),
            ("systems: {hcm: {options: {copy: deep}}}", "systems.hcm (train", "'deep'"),
            ("systems: {x: {model: no/such}}", "systems.x (train", "agents.no"),
            ("systems: {x: {preset: no/such}}", "systems.x (train", "no/such"),
            ("systems: [hcm]\nevaluation: {beam_sise: 2}", "systems.hcm (test set", "--beam-sise 2"),
            ("systems: {e: {model: repeat_label, train: false, options: {q: 1}}}", "systems.e (test", "--q 1"),
            ("systems: [hcm]\nablations: {x: {model: 'persona_agents:hcm', options: {copy: 1}}}",
             "ablations.x (train", "'1'"),
        ],
    )  # fmt: skip
    def test_command_that_cannot_be(self, jobs, text, where, reason):
        found = jobs(f"tasks: ['cpc:mini']\nbudget: {{steps: 1}}\n{text}")
        with pytest.raises(PersonaAgentsError) as error:
            checks.check(jobs.config, found)
        message = str(error.value)
        assert where in message and reason in message and "\n" not in message

    @pytest.mark.parametrize(
        "text, reason",
        [
            ("budget: {examples: 9}\noptions: {batchsize: 0}", "systems.hcm (train.*batchsize 0"),
            ("budget: {examples: 9}\noptions: {update_freq: -1}", "systems.hcm (.*update_freq -1"),
            ("budget: {steps: 1}\noptions: {batchsize: -4}", "systems.hcm (train.*batchsize -4"),
            (
                "budget: {steps: 1}\nevaluation: {batchsize: 0}",
                "systems.hcm (test set.*batchsize 0",
            ),
        ],
    )
    def test_no_batch(self, jobs, text, reason):
        with pytest.raises(PersonaAgentsError, match=reason.replace("(", r"\(")) as error:
            found = jobs(SMALL + text)
            checks.check(jobs.config, found)
        assert "table.yml: " in str(error.value) and "at least 1" in str(error.value)

    def test_commands_that_can(self, jobs):
        found = jobs(
            SMALL + "budget: {steps: 1}\nevaluation: {beam_size: 2, inference: beam}\nanchors: true"
        )
        checks.check(jobs.config, found)

    def test_the_example_file(self, monkeypatch):
        monkeypatch.setenv("PERSONA_AGENTS_DATA", "/data")
        monkeypatch.setenv("PERSONA_AGENTS_BERT", "/bert")
        found = config.read(str(ROOT / "benchmarks" / "personachat_table.yml"))
        jobs = plan.jobs_of(found)
        checks.check(found, jobs)
        seeds = {}
        for job in jobs:
            seeds.setdefault(job.system.name, []).append(job.seed)
        for name in ("hcm", "w/o HCM", "bert2bert", "pgn"):
            assert len(seeds[name]) >= 3
        assert set(AGENTS) <= set(seeds), "all systems of this package"
        trained = [job for job in jobs if job.target]
        assert len({job.target for job in trained}) == 1, "all see equally many examples"
