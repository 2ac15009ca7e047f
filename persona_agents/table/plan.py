"""From the YAML file to jobs: for each task, system and seed a chain of ordinary ParlAI commands."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from persona_agents.table import anchors
from persona_agents.table.commands import check_sizes, parse
from persona_agents.table.config import Config, Options, System, Task, TestSet, slug
from persona_agents.text import task_language

JOB = "$JOB"  # stands for the job's folder in a command, as in the shell script that repeats it
REPLIES, REPORT = "replies.jsonl", "report.json"
SWAPPED = "swapped"  # folder of the main test set's replies under other samples' personas
SCORES, BY_HAND = "scores.json", "persona_score.json"
LOGGED = "id,text,labels,eval_labels,personas,metrics,episode_done"


@dataclass(frozen=True)
class Step:
    """
    One command of a job.

    Attributes:
        name: what it is for, unique within the job; also the name of its log and of its marker.
        arguments: what follows `parlai`; a folder of the job is written as `$JOB/...`.
        outputs: files that it must leave in the job's folder, by their names there.
    """

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]

    def command(self, folder: Path) -> list[str]:
        """The arguments for a job in a folder."""
        return [_in_folder(argument, folder) for argument in self.arguments]

    def shell(self) -> str:
        """The command as a line of shell script, with $JOB in it."""
        return " ".join(["parlai", *map(_quote, self.arguments)])


def _in_folder(argument: str, folder: Path) -> str:
    return str(folder) + argument[len(JOB) :] if _is_path(argument) else argument


def _is_path(argument: str) -> bool:
    return argument.startswith(f"{JOB}/")


def _quote(argument: str) -> str:
    return (
        f'"{JOB}"{shlex.quote(argument[len(JOB) :])}'
        if _is_path(argument)
        else shlex.quote(argument)
    )


@dataclass(frozen=True)
class Job:
    """A system trained with one seed on one task, or an anchor row; its steps are done in turn."""

    task: Task
    system: System
    seed: int
    steps: tuple[Step, ...]
    sets: tuple[str, ...]  # the folders of its replies, the main test set first
    scoring: tuple[str, ...]  # options of `parlai persona_score` for them
    target: tuple[str, float] | None  # ('steps' or 'epochs', how many) of its training

    @property
    def folder(self) -> str:
        """Where it lies below the table's folder."""
        parts = [slug(self.task.name), slug(self.system.name)]
        return "/".join([*parts, f"seed{self.seed}"] if self.system.kind != "anchor" else parts)

    @property
    def name(self) -> str:
        """How progress and errors call it."""
        seed = f", seed {self.seed}" if self.system.train else ""
        return f"{self.system.name} on {self.task.name}{seed}"


def flags(*layers: Options) -> list[str]:
    """Options as arguments; a later layer goes over an earlier one, and None leaves one out."""
    merged = {name: value for layer in layers for name, value in layer.items()}
    return [
        part
        for name, value in merged.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", value)
    ]


def agent(system: System, task: Task) -> list[str]:
    """The arguments that choose a system's agent."""
    if system.preset is None:
        return ["-m", system.model]
    return ["-o", system.preset.replace("{task}", task.name.split(":")[0])]


def place(config: Config, task: Task, system: System, step: str) -> str:
    """How an error names what in the YAML file a command comes from."""
    kind = {"system": "systems.", "ablation": "ablations.", "anchor": "anchors, "}[system.kind]
    return f"{config.path}: {kind}{system.name} ({step}, task {task.name})"


def jobs_of(config: Config) -> list[Job]:
    """All jobs of a table, the anchors first: they show within a minute that the data are there."""
    found = []
    for task in config.tasks:
        if config.anchors:
            found += [_anchor(config, task, anchor) for anchor in anchors.systems(config, task)]
        found += [
            _job(config, task, system, seed) for system in config.systems for seed in system.seeds
        ]
    return found


def _job(config: Config, task: Task, system: System, seed: int) -> Job:
    steps, target = [], None
    if system.train:
        step, target = _training(config, task, system, seed)
        steps.append(step)
    sets = [slug(test_set.name) for test_set in task.test_sets]
    steps += [_evaluation(config, task, system, test_set) for test_set in task.test_sets]
    if config.swapped_personas:
        steps.append(_evaluation(config, task, system, task.test_sets[0], swapped=True))
        sets.append(SWAPPED)
    return Job(task, system, seed, tuple(steps), tuple(sets), scoring(config, task), target)


def _anchor(config: Config, task: Task, system: System) -> Job:
    steps = [_evaluation(config, task, system, test_set) for test_set in task.test_sets]
    sets = tuple(slug(test_set.name) for test_set in task.test_sets)
    return Job(task, system, 0, tuple(steps), sets, scoring(config, task), None)


def scoring(config: Config, task: Task) -> tuple[str, ...]:
    """Options of `parlai persona_score` for replies to a task, the language among them."""
    return tuple(flags({"language": task_language(task.name)}, config.scoring))


def _training(config: Config, task: Task, system: System, seed: int):
    options = {**config.options, **task.options, **system.options}
    arguments = ["train_model", *agent(system, task), "-t", task.name, "-mf", f"{JOB}/model"]
    loop: Options = {"seed": str(seed)}
    if system.preset is None and not system.model.startswith("persona_agents:"):
        # what this package's agents have as defaults
        loop.update(validation_metric="ppl", validation_every_n_epochs="1", save_after_valid="true")
        loop.update(batchsize="16")
    ((kind, amount),) = system.budget.items()
    if kind == "examples":
        where = place(config, task, system, "train")
        kind, amount = "steps", _steps(amount, [*arguments, *flags(loop, options)], where)
    if kind == "steps":
        loop.update(num_epochs="-1", max_train_steps=str(amount))
    else:
        loop["num_epochs"] = str(amount)
    step = Step("train", (*arguments, *flags(loop, options)), ("model", "model.opt"))
    return step, (kind, float(amount))


def _steps(examples: int, arguments: list[str], where: str) -> int:
    """How many updates of a training command show so many examples, the last one rounded up."""
    from parlai.scripts.train_model import TrainModel

    opt = parse(TrainModel, arguments[1:], where)  # an agent and a preset have their own batch size
    check_sizes(opt, where)
    return -(-examples // (opt["batchsize"] * opt.get("update_freq", 1)))


def _evaluation(
    config: Config, task: Task, system: System, test_set: TestSet, swapped: bool = False
) -> Step:
    folder = f"{JOB}/{SWAPPED if swapped else slug(test_set.name)}"
    if system.train:
        start, options = ["-mf", f"{JOB}/model"], config.evaluation
    else:
        start, options = agent(system, task), {"batchsize": config.evaluation["batchsize"]}
        options = {**options, **system.options}
    files: Options = {
        "datatype": "test",
        "world_logs": f"{folder}/{REPLIES}",
        "report_filename": f"{folder}/{REPORT}",
        "log_keep_fields": LOGGED,
        "metrics": "default,char_ppl",  # what needs the model; the others are scored from replies
    }
    if swapped:
        files["mutators"] = "swap_persona"
    chosen = flags(files, task.options, test_set.options, options)
    name = "swapped personas" if swapped else f"test set {test_set.name}"
    outputs = tuple(f"{folder[len(JOB) + 1 :]}/{file}" for file in (REPLIES, REPORT))
    return Step(name, ("eval_model", *start, "-t", test_set.task, *chosen), outputs)


def script(job: Job, environment: dict[str, str]) -> str:
    """A shell script that repeats a job in a folder of its own."""
    lines = [
        "#!/bin/sh",
        f"# Repeats {job.name} from nothing: sh repeat.sh NEW_FOLDER",
        "set -e",
        'JOB=$(mkdir -p "${1:?give a new folder}" && cd "$1" && pwd)',
        *(f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())),
        f"cd {shlex.quote(os.getcwd())}",  # relative paths in the YAML file are meant from here
        f'parlai() {{ {shlex.quote(sys.executable)} -m parlai "$@"; }}',
        *(f'mkdir -p "$JOB"/{shlex.quote(name)}' for name in job.sets),
        *(step.shell() for step in job.steps),
        *(score_step(job, name).shell() for name in job.sets),
    ]
    return "\n".join(lines) + "\n"


def score_step(job: Job, test_set: str) -> Step:
    """The command that scores one test set's replies by hand; the table does the same itself."""
    replies, scores = f"{JOB}/{test_set}/{REPLIES}", f"{JOB}/{test_set}/{BY_HAND}"
    arguments = ("persona_score", "--replies", replies, "--json-file", scores, *job.scoring)
    return Step(f"scores of {test_set}", arguments, (f"{test_set}/{BY_HAND}",))


def describe(job: Job, environment: dict[str, str]) -> str:
    """The job as JSON for its folder."""
    return json.dumps(
        {
            "task": job.task.name,
            "system": job.system.name,
            "kind": job.system.kind,
            "seed": job.seed if job.system.train else None,
            "environment": environment,
            "commands": {step.name: step.shell() for step in job.steps},
            "scoring": {name: score_step(job, name).shell() for name in job.sets},
        },
        ensure_ascii=False,
        indent=1,
    )
