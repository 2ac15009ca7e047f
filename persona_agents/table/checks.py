"""Every kind of command of a table is parsed before the first one is run."""

from __future__ import annotations

from persona_agents.table import plan
from persona_agents.table.commands import check_sizes, parse
from persona_agents.table.config import Config


def check(config: Config, jobs) -> None:
    """Raise PersonaAgentsError for the first command that cannot be, naming file and key."""
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
                arguments = plan.agent(job.system, job.task) + arguments
            where = plan.place(config, job.task, job.system, step.name)
            check_sizes(parse(scripts[name], arguments, where), where)
