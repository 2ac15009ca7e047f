"""`-t persona_eval:TASK`: any persona task of ParlAI's, with this package's metrics.

TASK is whatever `-t` takes, its own variants and options included: `persona_eval:convai2`,
`persona_eval:xpersona:Zh`, `persona_eval:msc:include_last_session=true`.
"""

from __future__ import annotations

from copy import deepcopy

from parlai.core.agents import create_agent_from_shared
from parlai.core.message import Message
from parlai.core.metrics import SumMetric, aggregate_unnamed_reports
from parlai.core.teachers import Teacher, create_task_agent_from_taskname

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import options, reports

NAME = "persona_eval"
PREFIX = f"{NAME}:"


def inner_task(task: str) -> str:
    """The task within: "convai2" of "persona_eval:convai2"."""
    inner = task.strip()[len(PREFIX) :]
    if not task.strip().startswith(PREFIX) or not inner:
        raise PersonaAgentsError(
            f"-t {task}: name the task to be evaluated, for instance -t persona_eval:convai2."
        )
    if inner.split(":")[0] == NAME:
        raise PersonaAgentsError(f"-t {task}: {NAME} stands there twice; once is enough.")
    return inner


class PersonaEvalTeacher(Teacher):
    """
    Hands on what the task within says, and adds this package's metrics to its report.

    ParlAI's own wrapper tasks name the task within by one global option, so only one can be in use,
    and leave its samples without a label out.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        options.add_cmdline_args(parser)
        tasks = ((partial_opt or {}).get("task") or "").split(",")
        for task in (task.strip() for task in tasks):
            if task.startswith(PREFIX):
                parser.add_task_args(inner_task(task), partial_opt)
        return parser

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = opt["task"]
        if shared:
            self.inner = create_agent_from_shared(shared["inner"])
        else:
            inner_opt = deepcopy(opt)
            inner_opt["task"] = inner_task(opt["task"])
            # the task within may be one of this package's, which reports these metrics itself
            inner_opt["metrics"] = reports.without_ours(opt.get("metrics"))
            inner_opt["validation_metric"] = None
            (self.inner,) = create_task_agent_from_taskname(inner_opt)
        self.recorder = reports.Recorder(opt, shared["recorder"] if shared else None)
        self._labels, self._waits = None, False

    @property
    def index(self):
        """Where the task within stands in its data, for a training that is resumed."""
        return self.inner.index

    def share(self):
        shared = super().share()
        shared.update(inner=self.inner.share(), recorder=self.recorder.scorer)
        return shared

    def act(self) -> Message:
        action = self.inner.act()
        labels = action.get("labels", action.get("eval_labels"))
        if labels is None:
            labels = getattr(self.inner, "lastY", None)  # --hide-labels true
        if labels is not None and not labels:  # ParlAI and its agents stumble over an empty list
            labels = self.inner.lastY = None
            action.pop("eval_labels", action.pop("labels", None))
        self._labels, self._waits = labels, not Message(action).is_padding()
        if self._waits:
            self.recorder.asked(action)
        return action

    def observe(self, observation):
        if not self._waits:
            return self.inner.observe(observation)
        self._waits = False
        self.metrics.clear_recent()
        found = self.recorder.answered(self._labels, observation)
        if not self._labels:
            found["exs"] = SumMetric(1)
        observation = self.inner.observe(observation)
        theirs = dict(observation.get("metrics") or {})
        reports.note(self.metrics, observation, found)
        if "metrics" in observation:
            observation["metrics"].update({**theirs, **found})
        return observation

    def report(self):
        return aggregate_unnamed_reports([self.inner.report(), self.metrics.report()])

    def reset(self):
        super().reset()
        self.inner.reset()
        self.recorder.reset()
        self._waits = False

    def reset_metrics(self):
        super().reset_metrics()
        self.inner.reset_metrics()

    def num_examples(self):
        return self.inner.num_examples()

    def num_episodes(self):
        return self.inner.num_episodes()

    def epoch_done(self) -> bool:
        return self.inner.epoch_done()


def __getattr__(name: str):
    """ParlAI asks for `Convai2Teacher` when `-t persona_eval:convai2` is given."""
    if name.endswith("Teacher"):
        return PersonaEvalTeacher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
