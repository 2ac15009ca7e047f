"""Explained replies as one HTML page that needs no other file, script or font."""

from __future__ import annotations

from html import escape

from persona_agents.chat import TEXTS
from persona_agents.scripts.persona_explain_picture import GATES
from persona_agents.text import has_cjk

TITLES = {
    "en": {
        "title": "Where the words come from",
        "reply": "reply",
        "end": "end",
        "gates": "gates",
        "attention": "copy attention to the {}",
        "parts": "probability of the word",
    },
    "zh": {
        "title": "词从哪里来",
        "reply": "回复",
        "end": "完",
        "gates": "门控",
        "attention": "对{}的复制注意力",
        "parts": "该词的概率",
    },
}
STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff; }
section { margin: 0 0 3rem; overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: #57606a; } dd { margin: 0; }
table { border-collapse: collapse; font-size: .85rem; }
th { font-weight: normal; padding: .1rem .35rem; }
tbody th { text-align: right; white-space: nowrap; }
td { min-width: 2.4rem; text-align: center; padding: .1rem .2rem; }
tr.first td, tr.first th { border-top: 1px solid #8c959f; }
th.group { text-align: left; padding-top: .8rem; color: #57606a; }
.query { background: #b6e3ff; } .persona { background: #aceebb; }
"""


def page(replies: list[dict]) -> str:
    """The page of all replies."""
    language = _language(replies[0]) if replies else "en"
    title = escape(TITLES[language]["title"])
    sections = "\n".join(_section(number, reply) for number, reply in enumerate(replies, 1))
    return (
        f'<!DOCTYPE html>\n<html lang="{language}">\n<head><meta charset="utf-8">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n<h1>{title}</h1>\n{sections}\n</body>\n</html>\n"
    )


def _language(reply: dict) -> str:
    return "zh" if has_cjk(reply["reply"]) else "en"


def _section(number: int, reply: dict) -> str:
    provenance, language = reply["provenance"], _language(reply)
    titles, texts = TITLES[language], TEXTS[language]
    said = [
        *(
            (texts["persona"] if not i else "", line)
            for i, line in enumerate(provenance["persona"])
        ),
        *((texts["query"] if not i else "", line) for i, line in enumerate(provenance["query"])),
    ]
    terms = "".join(f"<dt>{escape(t)}</dt><dd>{escape(line)}</dd>" for t, line in said)
    terms += f"<dt>{escape(titles['reply'])}</dt><dd>{_painted(reply)}</dd>"
    return f"<section>\n<h2>{number}</h2>\n<dl>{terms}</dl>\n{_table(provenance, titles, texts)}\n</section>"


def _painted(reply: dict) -> str:
    parts, at, text = [], 0, reply["reply"]
    for span in reply["provenance"]["spans"]:
        parts.append(escape(text[at : span["start"]]))
        share = f"{span['from']} {span['share']:.0%}"
        parts.append(f'<span class="{span["from"]}" title="{share}">{escape(span["text"])}</span>')
        at = span["end"]
    return "".join([*parts, escape(text[at:])])


def _table(provenance: dict, titles: dict, texts: dict) -> str:
    tokens = provenance["tokens"]
    head = "".join(
        f'<th scope="col">{escape(token["text"] or titles["end"])}</th>' for token in tokens
    )
    rows = [f"<thead><tr><td></td>{head}</tr></thead>\n<tbody>", _group(titles["gates"], tokens)]
    rows += [_row(label, [token[name] for token in tokens]) for name, label in GATES]
    rows.append(_group(titles["parts"], tokens))
    rows += [
        _row(texts[part], [token[part] for token in tokens])
        for part in ("generated", "query", "persona")
    ]
    for part in ("query", "persona"):
        chosen = [(i, word) for i, word in enumerate(provenance["words"]) if word["from"] == part]
        if chosen:
            rows.append(_group(titles["attention"].format(texts[part]), tokens))
        before = None
        for i, word in chosen:
            first = before is not None and word["sentence"] != before
            rows.append(_row(word["text"], [token["attention"][i] for token in tokens], first))
            before = word["sentence"]
    return "<table>\n" + "\n".join(rows) + "\n</tbody></table>"


def _group(title: str, tokens: list) -> str:
    return f'<tr><th class="group" colspan="{len(tokens) + 1}">{escape(title)}</th></tr>'


def _row(label: str, values: list[float], first: bool = False) -> str:
    cells = "".join(
        f'<td style="background:rgb(9 105 218 / {value:.3f});'
        f'color:{"#fff" if value > 0.6 else "#1b1f24"}">{value:.2f}</td>'
        for value in values
    )
    return f'<tr{" class=first" if first else ""}><th scope="row">{escape(label)}</th>{cells}</tr>'
