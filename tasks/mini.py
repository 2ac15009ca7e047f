"""The mini corpora: small dialogues that can only be answered by copying an unseen entity.

Each persona states four facts, and each fact holds one invented entity of two pieces (two Chinese
characters, two English words). A turn tells one fact and asks for the next one, so that every pair of
adjacent turns is a question and its answer. Most answers need an entity that stands only in the
persona; about a quarter need one that stands only in the query ("… have you heard of it?").

No entity of the valid and test splits occurs in train, but each of their pieces does, within other
entities and within answers. A model that copies can therefore answer, one that memorises cannot.

    python -m persona_agents.tasks.mini FOLDER

writes FOLDER/cpc/mini/{train,valid,test}.json (Chinese, the raw format of CPC) and
FOLDER/personachat_single_turn/mini/{train,valid,test}.txt (English, ParlAI's Persona-Chat format).
The files bundled with the tasks are what it writes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from dataclasses import dataclass
from functools import cache

from persona_agents.tasks.mini_words import LANGUAGES, Language

from persona_agents.text import has_cjk

SEED = 2023
PAIRS = {"train": 6000, "valid": 300, "test": 500}
FACTS = 4
# A piece is used in valid and test only if train answers hold it at least this often.
MIN_ANSWERS = 3
# Chance that an answer is followed by "and you?", and that the partner's answer to that is followed
# by a new question; in the other cases the partner is asked about the entity just named, which makes
# about a quarter of the pairs ones whose answer stands in the query alone.
P_BACK, P_ASK = 0.75, 0.65

Entity = tuple[str, str]


@dataclass(frozen=True)
class Dialogue:
    """Two personas and the turns of one dialogue, raw text; the first persona speaks first."""

    personas: tuple[list[str], list[str]]
    turns: list[str]


class _Entities:
    """Draws entities that were never drawn before and shares no piece within one dialogue."""

    def __init__(self, language: Language, rng: random.Random):
        self.language, self.rng = language, rng
        self.used: set[Entity] = set()
        self.answers: dict[tuple[str, int, str], int] = {}  # (kind, position, piece) -> count

    def draw(self, key: str, taken: set[str], known_only: bool) -> Entity:
        kind = self.language.kinds[key]
        while True:
            entity = (self.rng.choice(kind.first), self.rng.choice(kind.second))
            if entity in self.used or taken & set(entity):
                continue
            if known_only and not all(
                self.answers.get((key, position, piece), 0) >= MIN_ANSWERS
                for position, piece in enumerate(entity)
            ):
                continue
            self.used.add(entity)
            taken.update(entity)
            return entity

    def count_answer(self, key: str, entity: Entity) -> None:
        for position, piece in enumerate(entity):
            slot = (key, position, piece)
            self.answers[slot] = self.answers.get(slot, 0) + 1


def _dialogue(language: Language, entities: _Entities, train: bool) -> Dialogue:
    rng = entities.rng
    keys = rng.sample(list(language.kinds), FACTS)  # both speakers can tell the same kinds of fact
    taken: set[str] = set()
    facts = [{key: entities.draw(key, taken, not train) for key in keys} for _ in range(2)]

    def say(template: str, entity: Entity) -> str:
        return template.format(language.joiner.join(entity))

    personas = []
    for own in facts:
        lines = [say(rng.choice(language.kinds[key].persona), own[key]) for key in keys]
        rng.shuffle(lines)
        personas.append(lines)

    untold = [list(keys), list(keys)]  # by speaker, in no order that matters

    def ask(partner: int) -> tuple[str, str, str]:
        """A new question to `partner`: (what it is, the kind asked, its words)."""
        key = rng.choice(untold[partner])
        return "ask", key, rng.choice(language.kinds[key].question)

    asked, key, words = ask(1)
    turns, speaker = [words], 1
    while asked != "end":
        partner, kind = 1 - speaker, language.kinds[key]
        entity = facts[partner if asked == "echo" else speaker][key]
        answer = say(rng.choice(kind.echo_answer if asked == "echo" else kind.answer), entity)
        if train:
            entities.count_answer(key, entity)
        if asked != "echo":
            untold[speaker].remove(key)
        if asked == "ask" and key in untold[partner] and rng.random() < P_BACK:
            asked, words = "back", language.back
        elif asked == "ask" or (asked == "back" and rng.random() >= P_ASK):
            asked, words = "echo", kind.echo_question
        elif untold[partner]:
            asked, key, words = ask(partner)
        else:
            asked, words = "end", ""
        if asked == "end":
            turns.append(answer + language.stop.rstrip())
        else:
            turns.append(answer + (language.stop if asked == "ask" else language.comma) + words)
        speaker = partner
    return Dialogue((personas[0], personas[1]), turns)


def make(language: str, seed: int = SEED, pairs: dict[str, int] | None = None) -> dict:
    """
    All splits of one language.

    :param str language: 'zh' or 'en'
    :param int seed: the same seed gives the same dialogues
    :param pairs: least number of pairs by split, train first; PAIRS by default
    :return: {split: [Dialogue, …]}
    """
    entities = _Entities(LANGUAGES[language], random.Random(f"{seed} {language}"))
    splits: dict[str, list[Dialogue]] = {}
    for split, least in (pairs or PAIRS).items():
        dialogues, count = [], 0
        while count < least:
            dialogue = _dialogue(LANGUAGES[language], entities, train=split == "train")
            dialogues.append(dialogue)
            count += len(dialogue.turns) - 1
        splits[split] = dialogues
    return splits


def to_cpc(dialogue: Dialogue) -> str:
    """A dialogue as one line of CPC's raw JSON."""
    return json.dumps(
        {
            "p1_persona": dialogue.personas[0],
            "p2_persona": dialogue.personas[1],
            "conversation": [
                f"p{1 + number % 2} : {turn}" for number, turn in enumerate(dialogue.turns)
            ],
        },
        ensure_ascii=False,
    )


def to_personachat(dialogue: Dialogue) -> str:
    """
    A dialogue in ParlAI's Persona-Chat format, told twice: with the second and the first speaker as
    the one whose persona is known. (The first speaker opens, so the query of that is `__SILENCE__`.)
    """
    lines = []
    for me in (1, 0):
        turns = dialogue.turns if me == 1 else ["__SILENCE__", *dialogue.turns]
        block = [f"your persona: {sentence}" for sentence in dialogue.personas[me]]
        block += [f"{query}\t{reply}" for query, reply in zip(turns[0::2], turns[1::2])]
        lines += [f"{number} {line}" for number, line in enumerate(block, 1)]
    return "\n".join(lines)


def write(folder: str, seed: int = SEED) -> list[str]:
    """Write both corpora below `folder` and return the paths written."""
    paths = []
    for language, task, ending, form in (
        ("zh", "cpc", "json", to_cpc),
        ("en", "personachat_single_turn", "txt", to_personachat),
    ):
        os.makedirs(os.path.join(folder, task, "mini"), exist_ok=True)
        for split, dialogues in make(language, seed).items():
            paths.append(os.path.join(folder, task, "mini", f"{split}.{ending}"))
            with open(paths[-1], "w", encoding="utf-8", newline="\n") as file:
                file.writelines(form(dialogue) + "\n" for dialogue in dialogues)
    return paths


# Scoring


def _squeeze(text: str) -> str:
    """`text` without spaces and in lower case, the form in which replies are compared."""
    return re.sub(r"\s+", "", text).lower()


def _pattern(template: str, entity: str) -> str:
    before, after = (
        r"\s*".join(map(re.escape, part.split())) for part in template.rstrip(".").split("{}")
    )
    return rf"{before}\s*({entity})\s*{after}"


@cache
def _patterns(language: str) -> list[re.Pattern]:
    """The regular expressions of persona sentences and of turns, which match as a whole."""
    # A tokenizer may leave spaces between the pieces of an entity.
    entity = r"[\u3400-\u9fff]\s*[\u3400-\u9fff]" if language == "zh" else r"[a-z]+\s+[a-z]+"
    patterns = []
    for kind in LANGUAGES[language].kinds.values():
        for template in kind.persona:
            patterns.append(_pattern(template, entity) + r"\s*[.。]?")
        for template in kind.answer + kind.echo_answer:
            # What follows the first clause is the next question and names nothing.
            patterns.append(_pattern(template, entity) + r"(?:\s*[.,。，].*)?")
    return [re.compile(pattern) for pattern in patterns]


def entities(sentence: str, language: str | None = None) -> list[str]:
    """
    The entities that a persona sentence or a turn of the mini corpora names.

    :param str sentence: with or without segmentation spaces
    :param language: 'zh' or 'en'; by default 'zh' if there is a Chinese character
    :return: the entities as they are written (Chinese ones without spaces); none if no phrasing fits
    """
    if language is None:
        language = "zh" if has_cjk(sentence) else "en"
    return list(_entities(sentence.strip().lower(), language))


@cache  # scoring meets each sentence many times
def _entities(text: str, language: str) -> tuple[str, ...]:
    matches = (pattern.fullmatch(text) for pattern in _patterns(language))
    space = "" if language == "zh" else " "
    return tuple(dict.fromkeys(space.join(match[1].split()) for match in matches if match))


def asked_entity(gold: str, persona, query: str) -> str:
    """The entity, of the persona or of the query, that the right reply `gold` names."""
    named = _squeeze(gold)
    found = [name for text in (*persona, query) for name in entities(text)]
    found = [name for name in found if _squeeze(name) in named]
    if not found:
        raise ValueError(f"No entity of the persona or the query stands in the reply {gold!r}.")
    return found[0]


def is_right(reply: str, gold: str, persona, query: str) -> bool:
    """
    Whether a reply names the asked entity and none of the persona's other ones.

    :param str reply: the reply to judge; case and spaces do not matter
    :param str gold: the corpus's own reply, which tells which entity was asked
    :param persona: the responder's persona sentences
    :param str query: the turn that is answered
    :return: bool
    """
    asked = _squeeze(asked_entity(gold, persona, query))
    others = {_squeeze(name) for text in persona for name in entities(text)} - {asked}
    text = _squeeze(reply)
    return asked in text and not any(name in text for name in others)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m persona_agents.tasks.mini", description="Write the mini corpora."
    )
    parser.add_argument(
        "folder", help="where to write (the folder `tasks` renews the bundled files)"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(args)
    for path in write(options.folder, options.seed):
        print(path)


if __name__ == "__main__":
    main()
