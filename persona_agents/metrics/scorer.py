"""Choosing metrics by name, and scoring replies with them."""

from __future__ import annotations

import difflib
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics.base import Metric, Reply

PERSONA = ("corpus_bleu", "char_f1", "bert_score", "p_cover", "p_em")
GROUPS = {"persona": PERSONA}
# what each reports
OUTPUTS = {
    "corpus_bleu": tuple(f"corpus_bleu_{order}" for order in range(1, 5)),
    "char_f1": ("char_f1", "word_f1"),
    "bert_score": ("bert_score_p", "bert_score_r", "bert_score_f"),
    "p_cover": ("p_cover",),
    "p_em": ("p_em",),
    "corpus_distinct": ("corpus_distinct_1", "corpus_distinct_2"),
    "verbatim": ("verbatim_persona", "verbatim_query"),
    "length": ("length",),
    "char_ppl": ("char_ppl",),
    "c_score": ("c_score",),
}
NAMES = tuple(OUTPUTS)
CHUNK = 256  # replies whose vectors are held at a time


@dataclass(frozen=True)
class Settings:
    """
    How metrics are computed; the command-line options of the same names (see options.py).

    `language` is "en" or "zh": it chooses models, their baseline and word splitting. None stands
    for the language's default. `device` is where models run.
    """

    language: str = "en"
    bert_score_model: str | None = None
    bert_score_layer: int | None = None
    bert_score_baseline: str | None = None
    bert_score_rescale: bool = True
    p_em_model: str | None = None
    c_score_model: str | None = None
    f1_average: str = "reply"
    device: str = "cpu"


def choose(names: str | Iterable[str]) -> tuple[str, ...]:
    """
    The metrics that a list of names and groups stands for, each once, in the order of NAMES.

    :raises PersonaAgentsError: for a name that is no metric of this package.
    """
    if isinstance(names, str):
        names = names.split(",")
    chosen: set[str] = set()
    for name in filter(None, (name.strip() for name in names)):
        if name not in NAMES and name not in GROUPS:
            reject_name(name)
        chosen.update(GROUPS.get(name, (name,)))
    return tuple(name for name in NAMES if name in chosen)


def reject_name(name: str, others: Iterable[str] = ()) -> None:
    """Raise for the unknown name of a metric; `others` are further names that would be known."""
    known = [*GROUPS, *NAMES, *others]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise PersonaAgentsError(
        f"--metrics {name}: there is no such metric.{hint} This package has {', '.join(NAMES)}, "
        f"and persona for {', '.join(PERSONA)}."
    )


def _build(name: str, settings: Settings) -> tuple[Metric, ...]:
    """The metrics behind one name; raises PersonaAgentsError when a model cannot be had."""
    from persona_agents.metrics import bleu, f1, persona, surface

    if name == "corpus_bleu":
        return (bleu.CorpusBleu(),)
    if name == "char_f1":
        micro = settings.f1_average == "micro"
        return ((f1.MicroCharF1 if micro else f1.CharF1)(settings.language),)
    if name == "p_cover":
        return (persona.PCover(settings.language),)
    if name == "corpus_distinct":
        return (surface.CorpusDistinct(),)
    if name == "verbatim":
        return (surface.Verbatim(), surface.VerbatimQuery())
    if name == "length":
        return (surface.Length(),)
    if name == "char_ppl":
        return (surface.CharPpl(),)
    return (_with_model(name, settings),)


def _with_model(name: str, settings: Settings) -> Metric:
    from persona_agents.metrics import bert_score, c_score, encoder, models, persona

    option = next(option for option, metric in models.METRIC_OF.items() if metric == name)
    model = getattr(settings, option)
    if name == "c_score":
        if not model:
            raise PersonaAgentsError(
                "--metrics c_score needs --c-score-model, the name or folder of a "
                "text-classification model for natural language inference."
            )
        model = os.path.expanduser(model)
        return c_score.CScore(c_score.classifier_for(model, option, settings.device))
    model = os.path.expanduser(model or models.default_encoder(settings.language))
    if name == "p_em":
        return persona.PEm(encoder.encoder_for(model, option, settings.device))
    if os.path.isabs(model) and not os.path.isdir(model):
        encoder.encoder_for(model, option, settings.device)  # says so
    layer = bert_score.choose_layer(model, settings.bert_score_layer)
    baseline = None  # looked for first: it costs nothing
    if settings.bert_score_rescale:
        path = settings.bert_score_baseline
        path = os.path.expanduser(path) if path else None
        baseline = bert_score.read_baseline(model, layer, settings.language, path)
    elif settings.bert_score_baseline:
        raise PersonaAgentsError(
            "--bert-score-baseline has no effect with --bert-score-rescale false: leave one out."
        )
    return bert_score.BertScore(
        encoder.encoder_for(model, option, settings.device), layer, baseline
    )


class Scorer:
    """
    The chosen metrics, with their models loaded.

    Replies may be handed in one by one: they wait until a value is asked for, and are then scored
    together, in batches. What nobody holds any more by then is forgotten unscored.
    """

    def __init__(self, names: Sequence[str], settings: Settings):
        self.names, self.settings = tuple(names), settings
        self.by_name = {name: _build(name, settings) for name in self.names}
        self.metrics = [metric for metrics in self.by_name.values() for metric in metrics]
        self.waiting: list[weakref.ref[Reply]] = []

    @property
    def signatures(self) -> dict[str, str]:
        """The signature of each chosen name."""
        return {name: metrics[0].signature for name, metrics in self.by_name.items()}

    def hand_in(self, reply: Reply) -> None:
        """Let a reply wait to be scored."""
        self.waiting.append(weakref.ref(reply))

    def flush(self, progress=iter) -> None:
        """Score all that wait; `progress` wraps the sequence of chunks (e.g. tqdm)."""
        replies = [reply for reply in (waiting() for waiting in self.waiting) if reply is not None]
        self.waiting.clear()
        self.score(replies, progress)

    def score(self, replies: Sequence[Reply], progress=iter) -> None:
        """Put each metric's statistics into each reply that it applies to."""
        chunks = [replies[begin : begin + CHUNK] for begin in range(0, len(replies), CHUNK)]
        for chunk in progress(chunks):
            for metric in self.metrics:  # all of them before the next chunk: vectors are at hand
                fit = [
                    reply
                    for reply in chunk
                    if metric.key not in reply.statistics and metric.fits(reply)
                ]
                if fit:
                    for reply, statistics in zip(fit, metric.statistics(fit)):
                        reply.statistics[metric.key] = statistics


@cache
def scorer_for(names: tuple[str, ...], settings: Settings) -> Scorer:
    """The process's scorer of these metrics, so that models are loaded and checked once."""
    return Scorer(names, settings)


@dataclass
class Scores:
    """
    What a set of replies scored.

    Attributes:
        values: each output's value (`corpus_bleu_1`, …); None where no reply could be judged.
        signatures: by the metric's name.
        counts: replies judged, by output; and `replies`, `empty_replies`, `without_reference`,
            `without_persona` of all.
        statistics: by metric, a list with one entry a reply, None where it was left out.
    """

    values: dict[str, float | None]
    signatures: dict[str, str]
    counts: dict[str, int]
    statistics: dict[type[Metric], list]


def counts_of(reply: Reply) -> dict[str, int]:
    """What is counted beside the metrics, 0 or 1 each."""
    return {
        "empty_replies": int(not (reply.text or "").strip()),
        "without_reference": int(not reply.references),
        "without_persona": int(not any(sentence.strip() for sentence in reply.persona)),
    }


def score(
    replies: Sequence[Reply],
    names: str | Iterable[str] = "persona",
    settings: Settings | None = None,
    progress=iter,
) -> Scores:
    """
    Score a set of replies, without ParlAI.

    :param replies: list of :class:`persona_agents.metrics.Reply`
    :param names: metrics or groups, a list or separated by commas
    :param settings: :class:`Settings`; default English, on the CPU
    :param progress: wraps the list of chunks of replies while they are scored, e.g. tqdm.tqdm
    :return: :class:`Scores`
    :raises PersonaAgentsError: for an unknown name, or a model or baseline that is not to be had
    """
    scorer = scorer_for(choose(names), settings or Settings())
    for reply in replies:
        reply.statistics = {}
    scorer.score(replies, progress)
    values, judged, statistics = {}, {}, {}
    for metric in scorer.metrics:
        column = [reply.statistics.get(metric.key) for reply in replies]
        there = [entry for entry in column if entry is not None]
        computed = metric.values(metric.total(there)) if there else [None] * len(metric.outputs)
        values.update(zip(metric.outputs, computed))
        judged.update(dict.fromkeys(metric.outputs, len(there)))
        statistics[type(metric)] = column
    counts = {"replies": len(replies)}
    for reply in replies:
        for name, number in counts_of(reply).items():
            counts[name] = counts.get(name, 0) + number
    return Scores(values, scorer.signatures, {**counts, **judged}, statistics)
