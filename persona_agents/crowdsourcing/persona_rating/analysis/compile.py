"""`parlai persona_rate compile`: everything that the answers say, and what is still missing."""

from __future__ import annotations

import itertools
import statistics as standard
from collections import Counter

import numpy as np

from persona_agents.crowdsourcing.compat import import_mephisto
from persona_agents.crowdsourcing.persona_rating.analysis import render
from persona_agents.crowdsourcing.persona_rating.analysis.statistics import (
    agreement,
    compare,
    holm,
    mean_interval,
)
from persona_agents.crowdsourcing.study import ASPECTS, Study, StudyError, read_study


def compile_study(folder, without_failing: bool = False, say=print) -> dict:
    """
    Read a study's answers from Mephisto's database and write its results folder.

    :param without_failing: leave out reviewers who failed more than half of their checks
    :raises StudyError: if there are no answers yet
    """
    study = read_study(folder)
    if not study.database.exists():
        raise StudyError(f"{study.folder} has no answers: parlai persona_rate launch {folder}")
    import_mephisto()
    from persona_agents.crowdsourcing.persona_rating import blueprint  # noqa: F401 (registers it)
    from persona_agents.crowdsourcing.persona_rating.database import open_database
    from persona_agents.crowdsourcing.persona_rating.ledger import read_answers

    answers = read_answers(open_database(study), study)
    results = evaluate(study, answers, without_failing)
    written = render.write(results, study.folder / "results")
    say(render.markdown(results))
    say(f"Written: {', '.join(str(path) for path in written)}")
    return results


def evaluate(study: Study, answers, without_failing: bool = False) -> dict:
    """
    All results as plain data.

    :param answers: `ledger.Answer` objects: item, reviewer, answers, seconds
    """
    names = sorted({answer.reviewer for answer in answers})
    pseudonyms = {name: f"R{number}" for number, name in enumerate(names, 1)}
    reviewers = _reviewers(study, answers, pseudonyms)
    failing = {name for name in names if reviewers[pseudonyms[name]]["fails"]}
    used = [a for a in answers if not (without_failing and a.reviewer in failing)]
    if not used:
        raise StudyError(f"{study.folder}: no answers to compile")

    # item -> aspect -> pseudonym -> number
    ratings = {
        item["id"]: {aspect: {} for aspect in ASPECTS}
        for item in study.items
        if "check" not in study.key["items"][item["id"]]
    }
    for answer in used:
        for aspect, value in answer.answers.items() if answer.item in ratings else ():
            number = _number(study, answer.item, value)
            ratings[answer.item][aspect][pseudonyms[answer.reviewer]] = number
    results = {
        "study": study.name,
        "form": study.form,
        "reviewers per item": study.reviewers,
        "systems": study.key["systems"],
        "state": _state(study, used),
        "left out": sorted(pseudonyms[name] for name in failing) if without_failing else [],
        "agreement": {a: agreement([item[a] for item in ratings.values()]) for a in ASPECTS},
        "reviewers": reviewers,
        "disagreements": _disagreements(study, ratings),
        "ratings": _rows(study, used, pseudonyms),
    }
    part = _scales if study.form == "scales" else _pairs
    return {**results, **part(study, ratings)}


def _number(study: Study, item: str, value) -> float:
    """
    An answer as a number.

    Side by side, 1 is for the study's first system and -1 for the second, wherever they stood.
    """
    if study.form == "scales":
        return value
    left = {"a": 1, "equal": 0, "b": -1}[value]
    first = study.key["items"][item]["systems"][0] == study.key["systems"][0]
    return left if first else -left


def _state(study: Study, answers) -> dict:
    """What is there and what is missing."""
    per_item = Counter(answer.item for answer in answers)
    short = Counter(study.reviewers - per_item[item["id"]] for item in study.items)
    return {
        "wanted": len(study.items) * study.reviewers,
        "there": len(answers),
        "items": len(study.items),
        # missing ratings -> how many items lack that many
        "short": {lack: count for lack, count in sorted(short.items()) if lack > 0},
    }


def _reviewers(study: Study, answers, pseudonyms) -> dict:
    """How much each did, how fast, and whether the checks were noticed."""
    table = {}
    for name, pseudonym in pseudonyms.items():
        own = [answer for answer in answers if answer.reviewer == name]
        checks = [
            (answer.answers, study.key["items"][answer.item]["check"])
            for answer in own
            if "check" in study.key["items"][answer.item]
        ]
        wrong = sum(given != expected for given, expected in checks)
        seconds = [answer.seconds for answer in own if answer.seconds is not None]
        table[pseudonym] = {
            "name": name.removesuffix("_sandbox"),
            "ratings": len(own),
            "median seconds": round(standard.median(seconds), 1) if seconds else None,
            "checks": len(checks),
            "checks failed": wrong,
            "fails": 2 * wrong > len(checks),
        }
    return table


def _scales(study: Study, ratings) -> dict:
    """Means of each system, and each pair of systems compared on the samples of both."""
    by_system, by_sample = {}, {}
    for system in study.key["systems"]:
        own = {
            study.key["items"][item]["sample"]: values
            for item, values in ratings.items()
            if study.key["items"][item]["systems"] == [system]
        }
        by_sample[system] = {
            a: {s: float(np.mean(list(v[a].values()))) for s, v in own.items() if v[a]}
            for a in ASPECTS
        }
        by_system[system] = {}
        for aspect in ASPECTS:
            items = [values[aspect] for values in own.values()]
            counts = Counter(value for item in items for value in item.values())
            by_system[system][aspect] = {
                **mean_interval(items),
                "counts": {str(value): counts[value] for value in (0, 1, 2)},
            }
    comparisons = []
    for aspect in ASPECTS:
        pairs = list(itertools.combinations(study.key["systems"], 2))
        found = [compare(by_sample[a][aspect], by_sample[b][aspect]) for a, b in pairs]
        for (a, b), result, p in zip(pairs, found, holm([r["p"] for r in found])):
            comparisons.append({"aspect": aspect, "first": a, "second": b, **result, "p holm": p})
    return {"means": by_system, "comparisons": comparisons}


def _pairs(study: Study, ratings) -> dict:
    """How often each of the two systems was preferred."""
    first, second = study.key["systems"]
    comparisons = []
    for aspect in ASPECTS:
        items = [values[aspect] for values in ratings.values() if values[aspect]]
        counts = Counter(value for item in items for value in item.values())
        scores = {number: float(np.mean(list(item.values()))) for number, item in enumerate(items)}
        comparisons.append(
            {
                "aspect": aspect,
                "first": first,
                "second": second,
                "first preferred": counts[1],
                "equal": counts[0],
                "second preferred": counts[-1],
                **compare(scores, dict.fromkeys(scores, 0.0)),
            }
        )
    for result, p in zip(comparisons, holm([result["p"] for result in comparisons])):
        result["p holm"] = p
    return {"comparisons": comparisons}


def _disagreements(study: Study, ratings) -> list[dict]:
    """Items whose ratings lie furthest apart, worst first."""
    found = []
    for item in study.items:
        for aspect, values in ratings.get(item["id"], {}).items():
            spread = max(values.values(), default=0) - min(values.values(), default=0)
            if spread >= 2:
                entry = study.key["items"][item["id"]]
                found.append(
                    {
                        "aspect": aspect,
                        "sample": entry["sample"],
                        "systems": entry["systems"],
                        "ratings": values,
                        "persona": item["persona"],
                        "query": item["query"],
                        "replies": item["replies"],
                    }
                )
    return sorted(
        found, key=lambda entry: (-np.std(list(entry["ratings"].values())), entry["sample"])
    )


def _rows(study: Study, answers, pseudonyms) -> list[dict]:
    """Every answer, for other programs."""
    rows = []
    for answer in answers:
        entry = study.key["items"][answer.item]
        rows.append(
            {
                "item": answer.item,
                "sample": entry.get("sample", "check"),
                "system": " | ".join(entry.get("systems", ["check"])),
                "reviewer": pseudonyms[answer.reviewer],
                **{aspect: answer.answers[aspect] for aspect in ASPECTS},
                "seconds": answer.seconds,
            }
        )
    return rows
