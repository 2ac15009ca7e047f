"""Scoring the jobs' replies, as `parlai persona_score` does, each file once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, Scores, Settings, score
from persona_agents.metrics.options import settings_of
from persona_agents.metrics.scorer import choose, scorer_for
from persona_agents.scripts.persona_score import PersonaScore
from persona_agents.scripts.persona_score_files import align, read_replies
from persona_agents.table import plan
from persona_agents.table.commands import parse
from persona_agents.table.config import Config
from persona_agents.table.files import read_json, write_json

OWN = "own"  # scores of replies under swapped personas against the persona that was swapped away
ABOUT_PERSONA = ("p_cover", "p_em")


class Scoring:
    """
    Scores replies with the table's metrics; what was scored before is read from its file.

    :raises PersonaAgentsError: for options that cannot be, or a model that cannot be had
    """

    def __init__(self, config: Config):
        self.settings: dict[str, Settings] = {}
        for task in config.tasks:
            opt = parse(PersonaScore, plan.scoring(config, task), f"{config.path}: scoring")
            self.names = choose(opt["metrics"])
            if not self.names or "char_ppl" in self.names:
                raise PersonaAgentsError(
                    f"{config.path}: scoring.metrics: {opt['metrics']!r} cannot be scored from "
                    "replies; name metrics of parlai persona_score."
                )
            self.settings[task.name] = settings_of(opt, opt["language"])
            scorer_for(self.names, self.settings[task.name])  # a model that is missing shows now

    def replies(self, folder: Path) -> list[Reply]:
        """The replies of one test set of a job."""
        return read_replies(str(folder / plan.REPLIES))

    @property
    def about_persona(self) -> tuple[str, ...]:
        """The table's metrics that say something of replies under swapped personas."""
        return tuple(name for name in self.names if name in ABOUT_PERSONA)

    def swapped(self, task: str, folder: Path) -> Scores:
        """Scores of replies under swapped personas, against those personas."""
        scores_file = folder / plan.SCORES
        return self._scores(task, self.replies(folder), self.about_persona, scores_file)

    def of(self, task: str, folder: Path, like: list[Reply] | None = None) -> Scores:
        """
        Scores of one test set of a job.

        :param task: the table's task
        :param folder: where the replies are; the scores are kept beside them
        :param like: replies whose order of samples the statistics are to follow; values are those
            of the file's order, to the last digit
        """
        replies = self.replies(folder)
        scores = self._scores(task, replies, self.names, folder / plan.SCORES)
        if like is not None:
            places = {id(reply): place for place, reply in enumerate(replies)}
            aligned = align(like, replies, str(folder / plan.REPLIES))
            order = [places[id(reply)] for reply in aligned]
            for metric, column in scores.statistics.items():
                scores.statistics[metric] = [column[place] for place in order]
        return scores

    def against(self, task: str, folder: Path, personas: list[Reply]) -> Scores:
        """Scores of replies against the personas of other replies to the same queries."""
        replies = self.replies(folder)
        for reply, other in zip(replies, personas):
            if (reply.query, reply.references) != (other.query, other.references):
                raise PersonaAgentsError(
                    f"{folder / plan.REPLIES}: the queries are in another order than without swapped "
                    "personas. Remove this file and start again."
                )
        texts = [
            Reply(reply.text, reply.references, other.persona, reply.query)
            for reply, other in zip(replies, personas)
        ]
        return self._scores(task, texts, self.about_persona, folder / f"{OWN}_{plan.SCORES}")

    def _scores(self, task: str, replies, names, path: Path) -> Scores:
        settings = self.settings[task]
        scorer = scorer_for(names, settings)
        kinds = {metric.key: type(metric) for metric in scorer.metrics}
        how = {
            "replies_sha256": _digest(replies),
            "settings": dataclasses.asdict(settings),
            "signatures": scorer.signatures,
        }
        kept = read_json(path)
        if kept is None or any(kept[key] != value for key, value in how.items()):
            scores = score(replies, names, settings)
            statistics = {kind.key: column for kind, column in scores.statistics.items()}
            kept = {**how, "values": scores.values, "counts": scores.counts}
            kept["statistics"] = json.loads(json.dumps(statistics, default=_plain))
            write_json(path, kept, indent=None)
        columns = {kinds[key]: _tuples(column) for key, column in kept["statistics"].items()}
        return Scores(kept["values"], kept["signatures"], kept["counts"], columns)


def _digest(replies) -> str:
    """A digest of all that replies are judged by, in their order."""
    digest = hashlib.sha256()
    for reply in replies:
        judged = [reply.text, reply.references, reply.persona, reply.query]
        digest.update(json.dumps(judged, ensure_ascii=False).encode("utf-8"))
    return digest.hexdigest()


def _plain(number):
    """numpy's numbers and arrays as Python's, for JSON."""
    return number.tolist()


def _tuples(value):
    """JSON's lists as the tuples that they were; the outermost stays a list."""

    def inner(item):
        return tuple(map(inner, item)) if isinstance(item, list) else item

    return [inner(item) for item in value]
