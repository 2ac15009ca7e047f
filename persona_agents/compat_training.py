"""Mends of ParlAI 1.7.2's train loop that let a training be interrupted and repeated.

They hold for every agent. Installed by :mod:`persona_agents.compat`, which says how mends work.
"""

from __future__ import annotations

import functools
import json
import math


def mend_seed(train_model) -> None:
    """``--seed`` is set after the weights were drawn, never for numpy, and not at all by several
    workers.

    Here it is set before an agent is created and once more before the first step, where each worker
    adds its rank, so that dropout differs among workers. Can go when ParlAI seeds before it builds.
    """
    from persona_agents import checkpoint

    create_agent = train_model.create_agent

    @functools.wraps(create_agent)
    def create_seeded_agent(opt, *args, **kwargs):
        if opt.get("seed") is not None:
            checkpoint.seed(opt["seed"])
        return create_agent(opt, *args, **kwargs)

    train_model.create_agent = create_seeded_agent
    loop_class = train_model.TrainLoop
    train_steps = loop_class.train_steps

    def seeded_train_steps(self):
        if self.opt.get("seed") is not None:
            checkpoint.seed(self.opt["seed"] + train_model.get_rank())
        yield from train_steps(self)

    loop_class.train_steps = seeded_train_steps


# -- which epoch is the best -----------------------------------------------------------------------

# Of these 1.0 is the best possible value, so that a model which reaches it can stop.
_SHARES = ("accuracy", "f1", "hits@", "bleu-", "token_acc", "token_em", "rouge_")
_LESS_IS_BETTER = ("loss", "ppl", "mean_rank")


def mend_validation_metric(train_model) -> None:
    """``--validation-cutoff`` is 1.0 by default, whatever the metric: one above 1 or a loss below 1
    ends the training at the first validation. ``task/ppl`` is maximised, a first NaN is never
    beaten, and a metric that validation does not report is a KeyError.

    Here the default cutoff counts only where 1.0 is the best possible value, losses and
    perplexities are minimised also under a task's name, and NaN loses against any number. Can go
    when ParlAI's loop knows what its metrics mean.
    """
    from persona_agents.errors import PersonaAgentsError

    loop_class = train_model.TrainLoop
    init, validate = loop_class.__init__, loop_class.validate

    def __init__(self, opt):
        metric = opt["validation_metric"].rsplit("/", 1)[-1]
        if opt.get("validation_metric_mode") is None:
            less = any(name in metric for name in _LESS_IS_BETTER)
            opt["validation_metric_mode"] = "min" if less else "max"
        default = opt["validation_cutoff"] == 1.0 and "validation_cutoff" not in opt.get(
            "override", {}
        )
        init(self, opt)
        if default and not metric.startswith(_SHARES):
            opt["validation_cutoff"] = self.valid_optim * math.inf

    def validate_known_metric(self):
        if self.best_valid is not None and math.isnan(self.best_valid):
            self.best_valid = None
        try:
            return validate(self)
        except KeyError as error:
            metric = self.opt["validation_metric"]
            if error.args != (metric,):
                raise
            raise PersonaAgentsError(
                f"--validation-metric {metric}: validation does not report it. It reports "
                f"{', '.join(sorted(self.valid_reports[-1]))}. Metrics of replies need generation: "
                "no --skip-generation true."
            ) from None

    loop_class.__init__ = __init__
    loop_class.validate = validate_known_metric


# -- going on --------------------------------------------------------------------------------------


def mend_resume(train_model) -> None:
    """A resumed run is not the run that was interrupted.

    ParlAI restores neither random states nor the position in the data nor when it last validated;
    forgets that the model file holds the best weights, and overwrites them; resumes from an older
    ``.checkpoint`` beside a newer model file; evaluates the ``.checkpoint`` in the end instead of
    the best model; and trains on when a finished command is started again.

    Here counters, random states and position lie in the file of the weights, which is replaced in
    one step; the newer of the two files is resumed; a finished command trains no further and only
    evaluates its model again (raising the limit that ended it goes on). Can go when ParlAI saves
    and restores its loop.
    """
    from persona_agents import checkpoint

    loop_class = train_model.TrainLoop
    init, save_model = loop_class.__init__, loop_class.save_model
    train_steps, get_time = loop_class.train_steps, loop_class._get_time

    def __init__(self, opt):
        files = _saved_files(opt)
        point, stats, self._finished_before = _where_to_go_on(opt, files)
        if opt["load_from_checkpoint"]:
            opt["load_from_checkpoint"] = point == ".checkpoint"
        init(self, opt)
        # At its end the loop loads the best model with these options, and not the checkpoint.
        opt["load_from_checkpoint"] = False
        if stats is not None:
            _restore_counters(self, stats)
        self._resumed = None if self._finished_before else files.get(point)
        self.saved = self.best_valid is not None and "" in files

    def save_model_with_progress(self, suffix=None):
        state_dict = getattr(self.agent, "state_dict", None)
        if state_dict is None:
            save_model(self, suffix)
            return
        progress = {
            "stats": json.dumps(_counters(self)),
            "random": train_model.all_gather_list(checkpoint.random_states()),
            "positions": [teacher.index.value for teacher in _teachers(self.world)],
        }
        self.agent.state_dict = lambda: {**state_dict(), checkpoint.PROGRESS: progress}
        try:
            save_model(self, suffix)
        finally:
            del self.agent.state_dict

    def resumed_train_steps(self):
        if self._finished_before:
            train_model.logging.info(
                "this run has finished before: evaluating its model. To train on, raise the limit "
                "that ended it, for instance --num-epochs"
            )
            self._total_epochs = self._preempted_epochs
            self._total_exs = round(self._total_epochs * self.world.num_examples())
            return
        if self._resumed is not None:
            _restore(self, self._resumed)
        yield from train_steps(self)

    def _restore(self, progress):
        states = progress["random"]
        if len(states) == train_model.num_workers():
            checkpoint.restore_random_states(states[train_model.get_rank()])
        teachers = _teachers(self.world)
        if len(teachers) == len(progress["positions"]):
            for teacher, position in zip(teachers, progress["positions"]):
                teacher.index.value = position

    def _get_time(self, world):
        # Epochs are sums of fractions, which rounding may leave just short of a limit.
        times = get_time(self, world)
        examples = world.num_examples()
        if examples:
            whole = round(self._total_epochs * examples)
            if math.isclose(self._total_epochs * examples, whole, rel_tol=1e-9):
                self._total_epochs = whole / examples
        return times

    loop_class.__init__ = __init__
    loop_class.save_model = save_model_with_progress
    loop_class.train_steps = resumed_train_steps
    loop_class._get_time = _get_time


_COUNTERS = ("parleys", "train_reports", "valid_reports", "best_valid", "impatience")


def _counters(loop) -> dict:
    """What ParlAI writes to ``.trainstats``, less the final reports."""
    return {
        **{name: getattr(loop, name) for name in _COUNTERS},
        "train_time": loop.train_time.time(),
        "train_steps": loop._train_steps,
        "total_epochs": loop._total_epochs,
    }


def _restore_counters(loop, stats: dict) -> None:
    for name in _COUNTERS:
        setattr(loop, name, stats[name])
    loop.train_time.total = stats["train_time"]
    loop._train_steps = stats["train_steps"]
    loop._preempted_epochs = stats["total_epochs"]
    # Batches that were gathered for an unfinished update are lost, and no update is counted twice.
    loop.parleys -= loop.parleys % loop.update_freq
    if loop.valid_reports:
        loop.last_valid_epoch = loop.valid_reports[-1]["total_epochs"]
        loop._last_valid_steps = loop.valid_reports[-1]["train_steps"]


def _saved_files(opt) -> dict:
    """The weights' files of a run, as suffix -> its progress (None in ParlAI's own files)."""
    from persona_agents import checkpoint

    model_file, files = opt.get("model_file"), {}
    suffixes = ("", ".checkpoint") if opt["load_from_checkpoint"] else ("",)
    for suffix in suffixes if model_file and "://" not in model_file else ():
        path = model_file + suffix
        if _exists(path):
            files[suffix] = checkpoint.read_progress(path)
            if files[suffix] is not None:
                files[suffix]["stats"] = json.loads(files[suffix]["stats"])
        if _exists(f"{path}.trainstats"):
            checkpoint.read_json(f"{path}.trainstats", "statistics of a training")
    return files


def _exists(path: str) -> bool:
    from parlai.utils.io import PathManager

    return PathManager.exists(path)


def _where_to_go_on(opt, files: dict):
    """(suffix of the file to load, counters to restore or None, whether the run has finished)."""
    from persona_agents import checkpoint

    stats = {suffix: progress["stats"] for suffix, progress in files.items() if progress}
    ended = list(stats.values())
    final = f"{opt.get('model_file')}.trainstats"
    if "" in files and _exists(final):  # written last, with the counters of the whole run
        ended.append(checkpoint.read_json(final, "statistics of a training"))
    ended = [counters for counters in ended if _has_reached_a_limit(opt, counters)]
    if "" in files and ended:
        return "", max(ended, key=lambda counters: counters.get("parleys", 0)), True
    point = ".checkpoint" if ".checkpoint" in files else ""
    if len(stats) == 2 and stats[""]["parleys"] > stats[".checkpoint"]["parleys"]:
        point = ""  # the run was stopped between saving the one and the other
    return point, stats.get(point), False


def _has_reached_a_limit(opt, stats: dict) -> bool:
    limits = {
        "total_epochs": "num_epochs",
        "train_steps": "max_train_steps",
        "train_time": "max_train_time",
        "impatience": "validation_patience",
    }
    return any(0 < opt.get(limit, -1) <= stats.get(count, 0) for count, limit in limits.items())


def _teachers(world) -> list:
    """The teachers of a training world that draw by a counter, always in the same order."""
    world = getattr(world, "world", world)  # BatchWorld and DynamicBatchWorld hold copies of one
    found = []
    for single in getattr(world, "worlds", None) or [world]:  # one for each task
        teacher = single.get_task_agent()
        found += getattr(teacher, "tasks", [teacher])
    return [teacher for teacher in found if hasattr(teacher, "index")]


def mend_rates(torch_agent) -> None:
    """The learning rate of a resumed run jumps back to its peak, and without a scheduler the count
    of updates starts anew.

    Building a scheduler sets the rates, and ParlAI does not put back those that were saved. Can go
    when it does.
    """
    agent = torch_agent.TorchAgent
    build_lr_scheduler = agent.build_lr_scheduler

    def build(self, states=None, hard_reset=False):
        groups = self.optimizer.param_groups
        rates = [group["lr"] for group in groups]  # as loaded with the optimiser's states
        build_lr_scheduler(self, states, hard_reset)
        if not states or hard_reset or "number_training_updates" not in states:
            return
        self._number_training_updates = states["number_training_updates"]
        if states.get("lr_scheduler_type", self.opt["lr_scheduler"]) == self.opt["lr_scheduler"]:
            for group, rate in zip(groups, rates):
                group["lr"] = rate

    agent.build_lr_scheduler = build
