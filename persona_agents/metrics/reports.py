"""The metrics inside ParlAI: what teachers add to their reports."""

from __future__ import annotations

from collections.abc import Mapping

from parlai.core.message import Message
from parlai.core.metrics import ALL_METRICS, METRICS_DISPLAY_DATA, AverageMetric, Metric, SumMetric
from parlai.utils import logging
from parlai.utils.data import DatatypeHelper

from persona_agents import persona
from persona_agents.metrics import scorer as scoring
from persona_agents.metrics.base import Reply
from persona_agents.metrics.options import settings_of
from persona_agents.text import task_language

# What ParlAI's own teachers and agents report, and its names for several of them.
PARLAI_GROUPS = {"default", "rouge", "bleu", "distinct", "all"}
PARLAI_NAMES = ALL_METRICS | METRICS_DISPLAY_DATA.keys() | {"ppl", "hits@10", "hits@100"}
LOG_FROM = 256  # replies that are worth a line in the log when they are scored


class _Log:
    """Replies in the order in which they came, shared by the sums that hold a beginning of them."""

    def __init__(self, replies: list[Reply]):
        self.replies = replies
        self.summed, self.total = 0, None  # the sum of the first ones


class ReplyMetric(Metric):
    """
    One output of a metric over some replies, as ParlAI's Metric.

    It holds the replies; a value is asked of it at each report, and then only replies that have
    not been scored yet are, all that wait in one go. Sums are new objects; like a slice, they share
    their list with the sum that they began with. Pickled (between workers) it is scored and shrinks
    to the sum of its statistics.

    :param kind: the metric's class
    :param output: the name of the value among `kind.outputs`
    :param log: replies, of which the first `length` count
    :param base: a sum of statistics to which they are added, or None
    """

    __slots__ = ("base", "kind", "length", "log", "output", "scorer")

    def __init__(self, kind, output: str, scorer=None, log=None, length: int = 0, base=None):
        self.kind, self.output, self.scorer = kind, output, scorer
        self.log, self.length, self.base = log, length, base

    def total(self):
        """The sum of the statistics of all its replies."""
        if not self.length:
            return self.base
        log = self.log
        if log.summed > self.length:  # a later sum was asked first
            total = self.kind.total(self._statistics(0))
        else:
            if log.summed < self.length:
                new = self.kind.total(self._statistics(log.summed))
                log.total = new if log.total is None else self.kind.add(log.total, new)
                log.summed = self.length
            total = log.total
        return total if self.base is None else self.kind.add(self.base, total)

    def _statistics(self, begin: int) -> list:
        replies = self.log.replies[begin : self.length]
        if any(self.kind.key not in reply.statistics for reply in replies):
            waiting = len(self.scorer.waiting)
            if waiting >= LOG_FROM:
                logging.info(f"Scoring {waiting} replies: {', '.join(self.scorer.names)}")
            self.scorer.flush()
        return [reply.statistics[self.kind.key] for reply in replies]

    def value(self) -> float:
        """The value of the output over all its replies."""
        return self.kind.values(self.total())[self.kind.outputs.index(self.output)]

    def __add__(self, other: ReplyMetric | None) -> ReplyMetric:
        if other is None:
            return self
        base, others = self.base, []
        if other.base is not None or (other.length and other.scorer is not self.scorer):
            # from another process, or judged by other models
            base = other.total() if base is None else self.kind.add(base, other.total())
        elif other.length:
            others = other.log.replies[: other.length]
        if not others:
            made = (self.scorer, self.log, self.length, base)
        else:
            log = self.log
            if log is None or len(log.replies) != self.length:  # another sum went on from here
                log = _Log(log.replies[: self.length] if log else [])
            log.replies.extend(others)
            made = (self.scorer, log, len(log.replies), base)
        return ReplyMetric(self.kind, self.output, *made)

    def __reduce__(self):
        return ReplyMetric, (self.kind, self.output, None, None, 0, self.total())


class Signature(Metric):
    """A text in a report; the sum of different ones names them all."""

    __slots__ = ("texts",)

    def __init__(self, *texts: str):
        self.texts = texts

    def value(self) -> str:
        return " + ".join(self.texts)

    def __add__(self, other: Signature | None) -> Signature:
        if other is None:
            return self
        return Signature(*dict.fromkeys((*self.texts, *other.texts)))

    def __str__(self) -> str:
        return self.value()

    def __repr__(self) -> str:
        return f"Signature({self.value()!r})"


def chosen_by(opt) -> tuple[str, ...]:
    """
    The metrics of this package that `--metrics` and `--validation-metric` ask for.

    :raises PersonaAgentsError: for a name in `--metrics` that neither ParlAI nor this package knows
    """
    ours = []
    for name in (opt.get("metrics") or "").split(","):
        name = name.strip()
        if name in scoring.NAMES or name in scoring.GROUPS:
            ours.append(name)
        elif name and name not in PARLAI_GROUPS and name not in PARLAI_NAMES:
            scoring.reject_name(name, [*PARLAI_GROUPS, *PARLAI_NAMES])
    wanted = (opt.get("validation_metric") or "").rsplit("/", 1)[-1]
    ours += [name for name, outputs in scoring.OUTPUTS.items() if wanted in outputs]
    return scoring.choose(ours)


def without_ours(metrics: str | None) -> str:
    """A value of `--metrics` less this package's names."""
    names = [name.strip() for name in (metrics or "default").split(",")]
    theirs = [n for n in names if n not in scoring.NAMES and n not in scoring.GROUPS]
    return ",".join(theirs) or "accuracy"


class Recorder:
    """
    What a teacher needs to report the chosen metrics: it is told of each question and each answer.

    Made with the teacher, so that a model or baseline that is missing ends the command before
    anything is evaluated. Copies of the teacher share its scorer, each with a recorder of its own.

    :param opt: the task's options
    :param shared: the `scorer` of the teacher that this one is a copy of
    """

    def __init__(self, opt, shared=None):
        self.scorer = shared
        if shared is None and opt.get("background_index") is None:
            names = chosen_by(opt)
            if names:
                settings = settings_of(opt, task_language(opt.get("task") or ""))
                self.scorer = scoring.scorer_for(names, settings)
        # a training teacher only makes sure that the validation's models can be had
        self.active = self.scorer is not None and not DatatypeHelper.is_training(
            opt.get("datatype") or ""
        )
        self.reset()

    def reset(self) -> None:
        """Forget the present episode."""
        self._persona: tuple[str, ...] = ()
        self._query, self._ended = "", False

    def asked(self, action: Mapping) -> None:
        """The teacher says this; the persona may come with the first message of an episode only."""
        if not self.active:
            return
        if self._ended:
            self.reset()
        self._persona = persona.persona_of(action) or self._persona
        self._query = persona.parse_turn(action.get("text") or "").query
        self._ended = bool(action.get("episode_done"))

    def answered(self, labels, response: Mapping) -> dict[str, Metric]:
        """Metrics of the model's answer; none if none are wanted or it neither spoke nor scored."""
        if not self.active:
            return {}
        labels = tuple(label for label in labels or () if label is not None)
        loss = _loss_of(response, labels)
        reply = Reply(response.get("text"), labels, self._persona, self._query, loss)
        found: dict[str, Metric] = {}
        for name, metrics in self.scorer.by_name.items():
            fit = [metric for metric in metrics if metric.fits(reply)]
            for metric in fit:
                for output in metric.outputs:
                    log = _Log([reply])
                    found[output] = ReplyMetric(type(metric), output, self.scorer, log, 1)
            if fit:
                found[f"{name}_signature"] = Signature(self.scorer.signatures[name])
        if found:
            self.scorer.hand_in(reply)
        if reply.text is not None:
            counts = scoring.counts_of(reply)
            found.update((name, SumMetric(number)) for name, number in counts.items())
        return found


def _loss_of(response: Mapping, labels) -> float | None:
    """The summed loss of a single, whole reference, as ParlAI's generators report it."""
    reported = response.get("metrics") or {}
    loss, cut = reported.get("loss"), reported.get("ltrunc")
    if not isinstance(loss, AverageMetric) or len(labels) != 1 or (cut is not None and cut.value()):
        return None
    return float(loss._numer)


def note(metrics, response: Message, found: dict[str, Metric]) -> None:
    """Add metrics to a teacher's, and to the message that logs show."""
    for name, metric in found.items():
        metrics.add(name, metric)
    recent = metrics.report_recent()
    if recent:
        if "metrics" in response:
            response.pop("metrics")
        response["metrics"] = recent
