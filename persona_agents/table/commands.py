"""Looking at ParlAI commands before they are run: an unknown option must not show after an hour."""

from __future__ import annotations

import contextlib
import io

from persona_agents.errors import PersonaAgentsError
from persona_agents.table import plan
from persona_agents.table.config import Config, System, Task


def parse(script, arguments, where: str):
    """
    The options of a ParlAI command.

    :param script: its ParlaiScript class
    :param arguments: what follows its name
    :param where: how an error calls the place that they come from
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return script.setup_args().parse_args(list(arguments))
    except SystemExit:  # argparse has said what is wrong, in the last line
        reason = (said.getvalue().strip().splitlines() or ["it cannot be parsed"])[-1]
    except Exception as error:  # noqa: BLE001 - whatever the import of an agent or task raises
        reason = f"{type(error).__name__}: {error}"
    raise PersonaAgentsError(f"{where}: {reason.strip()}")


def check(config: Config, jobs) -> None:
    """Parse every kind of command of the table; raises PersonaAgentsError for the first bad one."""
    from parlai.scripts.eval_model import EvalModel
    from parlai.scripts.train_model import TrainModel

    scripts = {"train_model": TrainModel, "eval_model": EvalModel}
    seen = set()
    for job in jobs:
        if (job.task.name, job.system.name) in seen:  # another seed of it
            continue
        seen.add((job.task.name, job.system.name))
        for step in job.steps:
            name, *arguments = step.arguments
            if "-mf" in arguments and name == "eval_model":
                # the model is not there yet, and its options are known by its agent alone
                arguments = plan.agent(job.system) + arguments
            parse(scripts[name], arguments, _where(config, job.task, job.system, step))


def _where(config: Config, task: Task, system: System, step: plan.Step) -> str:
    kind = {"system": "systems.", "ablation": "ablations.", "anchor": "anchors, "}[system.kind]
    return f"{config.path}: {kind}{system.name} ({step.name}, task {task.name})"
