"""What the chats in the terminal and on the web page share: clean text, and words painted by source."""

from __future__ import annotations

import os
import unicodedata

RESET = "\033[0m"
COLOURS = {"generated": "", "query": "\033[36m", "persona": "\033[32m"}
# where there is no colour
MARKS = {"generated": ("", ""), "query": ("[", "]"), "persona": ("{", "}")}
_UNWANTED = ("Cc", "Cs")  # control characters and surrogates
_NO_WIDTH = ("Mn", "Me", "Cf")  # combining and formatting characters

TEXTS = {
    "en": {
        "generated": "generated",
        "query": "query",
        "persona": "persona",
        "legend": "Words: {generated}, {query}, {persona}.",
        "legend generated": "generated",
        "legend query": "copied from the query",
        "legend persona": "copied from the persona",
        "why": "Where the words come from, and which share of their probability that is:",
        "cannot": "This model cannot say where its words come from.",
        "nothing": "There is no reply yet.",
    },
    "zh": {
        "generated": "生成",
        "query": "问句",
        "persona": "人设",
        "legend": "词的来源：{generated}、{query}、{persona}。",
        "legend generated": "生成",
        "legend query": "复制自问句",
        "legend persona": "复制自人设",
        "why": "每个词的来源，以及它在该词概率中所占的比例：",
        "cannot": "这个模型无法说明词的来源。",
        "nothing": "还没有回复。",
    },
}


def clean(text: str) -> str:
    """A typed text without control characters but tab and line feed, and without stray surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _UNWANTED)


def width(text: str) -> int:
    """Columns that a terminal needs for a text: two for a wide (Chinese) character."""
    return sum(
        0
        if unicodedata.category(c) in _NO_WIDTH
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


def pad(text: str, columns: int) -> str:
    """The text filled up with spaces to so many columns of a terminal."""
    return text + " " * max(0, columns - width(text))


def use_colour(stream) -> bool:
    """Whether colours may be written: to a terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, origin: str, colour: bool) -> str:
    """A text marked as "generated", or copied from "query" or "persona"."""
    before, after = MARKS[origin]
    if colour and COLOURS[origin]:
        before, after = COLOURS[origin], RESET
    return f"{before}{text}{after}"


def painted_reply(reply: str, provenance: dict, colour: bool) -> str:
    """A reply with each span of :mod:`persona_agents.agents.provenance` painted by its source."""
    parts, at = [], 0
    for span in provenance["spans"]:
        parts += [reply[at : span["start"]], paint(span["text"], span["from"], colour)]
        at = span["end"]
    return "".join([*parts, reply[at:]])


def legend(language: str, colour: bool) -> str:
    """What the colours, or the brackets in their place, mean."""
    texts = TEXTS[language]
    painted = {name: paint(texts[f"legend {name}"], name, colour) for name in COLOURS}
    return texts["legend"].format(**painted)


def why(provenance: dict, language: str, colour: bool) -> str:
    """A table, one line a span: its text, where it comes from, its share and the source's sentence."""
    texts, rows = TEXTS[language], []
    for span in provenance["spans"]:
        source, sentence = texts[span["from"]], ""
        if span["sentence"] is not None:
            source += f" {span['sentence'] + 1}"
            sentence = provenance[span["from"]][span["sentence"]]
        rows.append((span["text"], source, f"{span['share']:4.0%}", sentence, span["from"]))
    columns = [max((width(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [texts["why"]]
    for text, source, share, sentence, origin in rows:
        marked = paint(text, origin, colour) if colour else text
        filled = marked + " " * (columns[0] - width(text))
        lines.append(f"  {filled}  {pad(source, columns[1])}  {share}  {sentence}".rstrip())
    return "\n".join(lines)
