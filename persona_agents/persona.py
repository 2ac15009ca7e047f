"""The one parser of a ParlAI turn into persona sentences and query."""

from __future__ import annotations

import re
from dataclasses import dataclass

# "your persona: i like tea." A colon may be full-width and an apostrophe curly.
_PERSONA_LINE = re.compile(r"\s*(your|partner['’]?s)\s+persona\s*[:：](.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """What one message of a persona task says.

    Attributes:
        persona: the sentences about the one who answers (``your persona:``).
        partner_persona: the sentences about the other speaker (``partner's persona:``).
        query: the remaining lines, joined by newlines; may be empty.
    """

    persona: tuple[str, ...] = ()
    partner_persona: tuple[str, ...] = ()
    query: str = ""


def parse_turn(text: str) -> Turn:
    """
    Take the persona lines out of a message's text, wherever they stand in it.

    :param str text: the text of a ParlAI message
    :return: Turn; empty lines and empty persona sentences are dropped
    """
    mine, partners, query = [], [], []
    for line in text.splitlines():
        match = _PERSONA_LINE.fullmatch(line)
        if match is None:
            query.append(line.strip())
        else:
            (mine if match[1].lower() == "your" else partners).append(match[2].strip())
    return Turn(
        tuple(filter(None, mine)), tuple(filter(None, partners)), "\n".join(filter(None, query))
    )


def format_turn(persona, query: str) -> str:
    """The text of a message: one `your persona:` line a sentence, then the query."""
    return "\n".join([*(f"your persona: {sentence}" for sentence in persona), query])


def persona_of(message) -> tuple[str, ...]:
    """
    The persona of the one who is to answer a message.

    It stands in the text; where that has none, the `personas` field of the msc task is read: either
    text with persona lines, or a list of two lists of sentences, the responder's last.

    :param message: a ParlAI message or any mapping
    :return: the sentences, () if there are none
    """
    persona = parse_turn(message.get("text") or "").persona
    personas = message.get("personas")
    if persona or not personas:
        return persona
    if isinstance(personas, str):
        return parse_turn(personas).persona
    lines = (
        line if _PERSONA_LINE.fullmatch(line) else f"your persona: {line}" for line in personas[-1]
    )
    return parse_turn("\n".join(lines)).persona
