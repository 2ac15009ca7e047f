"""Draw the sample that reviewers see, and hide which system wrote what."""

from __future__ import annotations

import hashlib
import random
import secrets
import shutil
import tempfile
from pathlib import Path

from persona_agents.crowdsourcing.replies import GOLD, match_replies, read_replies, with_gold
from persona_agents.crowdsourcing.study import ASPECTS, VALUES, StudyError, texts, write_json
from persona_agents.text import has_cjk


def prepare(
    systems: dict[str, Path],
    output,
    samples: int = 100,
    seed: int = 0,
    form: str = "scales",
    language: str = "auto",
    reviewers: int = 3,
    gold: bool = False,
    checks: int = 0,
) -> dict:
    """
    Write a new study folder.

    :param systems: name -> file of replies (:func:`replies.find_systems`)
    :param output: the folder to make; it must not exist, so that no answers are lost
    :param samples: how many samples are drawn; every system is rated on the same ones
    :param form: `scales`: each reply by itself; `pairs`: two systems' replies side by side
    :param language: of the page: `en`, `zh`, or `auto` by the queries
    :param gold: whether the gold replies go in as one more system
    :param checks: how many attention checks are mixed in
    :return: `{"items": .., "samples": .., "left out": {system: ..}, "language": ..}`
    :raises PersonaAgentsError: nothing is written then
    """
    output = Path(output).expanduser()
    if output.exists():
        raise StudyError(f"{output} exists already; give the name of a new folder")
    if samples < 1 or reviewers < 1 or checks < 0:
        raise StudyError("--samples and --reviewers are at least 1, --attention-checks at least 0")
    replies = {name: read_replies(str(path)) for name, path in systems.items()}
    matched = match_replies(replies)
    left_out = {name: len(own) - len(matched) for name, own in replies.items()}
    names = [*systems, *([GOLD] if gold else [])]
    if form == "pairs" and len(names) != 2:
        raise StudyError(f"--form pairs compares exactly two systems, not {len(names)}")
    if len(matched) < samples:
        raise StudyError(
            f"--samples {samples}, but only {len(matched)} samples (same persona, same query) are "
            "answered in all files: " + ", ".join(f"{p}" for p in systems.values())
        )
    generator = random.Random(seed)
    drawn = generator.sample(matched, samples)
    if gold:
        drawn = [with_gold(sample) for sample in drawn]
    if language == "auto":
        chinese = sum(has_cjk(next(iter(sample.values())).query) for sample in drawn)
        language = "zh" if 2 * chinese > samples else "en"

    ids = _opaque_ids(samples * (len(names) if form == "scales" else 1) + checks)
    make = _scale_items if form == "scales" else _pair_items
    items, key = make(drawn, names, ids, generator)
    _add_checks(items, key, checks, form, language, ids, generator)
    generator.shuffle(items)

    content = {
        "name": secrets.token_hex(4),
        "form": form,
        "language": language,
        "reviewers": reviewers,
        "items": items,
    }
    content_key = {
        "seed": seed,
        "samples": samples,
        "systems": names,
        "files": {
            name: {
                "path": str(path.resolve()),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for name, path in systems.items()
        },
        "items": key,
    }
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as folder:
            new = Path(folder) / "study"
            write_json(new / "key.json", content_key)
            write_json(new / "items.json", content)
            shutil.move(str(new), str(output))
    except OSError as error:
        raise StudyError(f"{output} cannot be made: {error}") from None
    return {
        "items": len(items),
        "samples": samples,
        "left out": left_out,
        "language": language,
        "ratings": len(items) * reviewers,
    }


def _opaque_ids(count: int) -> list[str]:
    """Ids that tell nothing: random ones, not made from the seed, which may become known."""
    ids = set()
    while len(ids) < count:
        ids.add(secrets.token_hex(6))
    return list(ids)


def _scale_items(drawn, names, ids, generator):
    """One item for each reply. Items of one sample never say that they belong together."""
    items, key = [], {}
    for number, sample in enumerate(drawn):
        for name in names:
            identity, reply = ids.pop(), sample[name]
            items.append(
                {
                    "id": identity,
                    "persona": list(reply.persona),
                    "query": reply.query,
                    "replies": [reply.text],
                }
            )
            key[identity] = {"sample": number, "systems": [name]}
    return items, key


def _pair_items(drawn, names, ids, generator):
    """One item for each sample; which system stands first is drawn anew each time."""
    items, key = [], {}
    for number, sample in enumerate(drawn):
        order = generator.sample(names, 2)
        identity, reply = ids.pop(), sample[names[0]]
        items.append(
            {
                "id": identity,
                "persona": list(reply.persona),
                "query": reply.query,
                "replies": [sample[name].text for name in order],
            }
        )
        key[identity] = {"sample": number, "systems": order}
    return items, key


def _add_checks(items, key, count, form, language, ids, generator) -> None:
    """
    Mix in items whose reply says what to choose; who reads them chooses that.

    They stand under the persona and query of a real item, so that they look like one.
    """
    words = texts(language)["check_items"][form]
    real = list(items)
    for _ in range(count):
        expected = {aspect: generator.choice(VALUES[form]) for aspect in ASPECTS}
        names = {aspect: words["names"][str(value)] for aspect, value in expected.items()}
        identity, model = ids.pop(), generator.choice(real)
        replies = [words["text"].format(**names)] * len(model["replies"])
        items.append({**model, "id": identity, "replies": replies})
        key[identity] = {"check": expected}
