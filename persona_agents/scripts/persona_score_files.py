"""The files of `parlai persona_score`: ParlAI's world logs, JSON lines, plain text."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply
from persona_agents.persona import parse_turn, persona_of

FORMS = (
    "It may be a log of `parlai eval_model --world-logs FILE.jsonl`, JSON lines with the keys reply, "
    "references, persona and query, or plain text with one reply a line."
)


class _BadLine(ValueError):
    """Why a line cannot be used."""


def read_replies(path: str, references=None, personas=None, queries=None) -> list[Reply]:
    """
    The replies in a file; the format is seen by its first line.

    :param path: of a world log, of JSON lines, or of plain text
    :param references: with plain text, the path of the gold replies; likewise `personas`, `queries`
    :raises PersonaAgentsError: with file and line
    """
    first = next((line for _, line in _lines(path) if line.strip()), None)
    if first is None:
        raise PersonaAgentsError(f"--replies {path}: the file holds nothing. {FORMS}")
    beside = {"--references": references, "--personas": personas, "--queries": queries}
    if not first.lstrip().startswith("{"):
        return _plain(path, **{option[2:]: given for option, given in beside.items()})
    for option, given in beside.items():
        if given:
            raise PersonaAgentsError(
                f"{option} belongs to plain text; {path} holds JSON lines, which have the "
                f"references and personas in themselves."
            )
    replies: list[Reply] = []
    for number, line in _lines(path):
        if line.strip():
            try:
                replies += map(_writable, _from_json(line))
            except _BadLine as error:
                raise PersonaAgentsError(f"{path}, line {number}: {error}.") from None
    if not replies:
        raise PersonaAgentsError(f"{path} holds no reply. {FORMS}")
    return replies


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        with open(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise PersonaAgentsError(
                        f"{path}, line {number}: not UTF-8 ({error.reason}). Convert the file, for "
                        "instance by iconv."
                    ) from None
                yield number, text.rstrip("\r\n")
    except OSError as error:
        raise PersonaAgentsError(f"{path} cannot be read: {error.strerror}.") from None


def _plain(path: str, references, personas, queries) -> list[Reply]:
    replies = [line for _, line in _lines(path)]
    columns = []
    for other in (references, personas, queries):
        column = [line for _, line in _lines(other)] if other else [""] * len(replies)
        if len(column) != len(replies):
            raise PersonaAgentsError(
                f"{path} has {len(replies)} lines and {other} has {len(column)}: they must belong "
                "together line by line."
            )
        columns.append(column)
    return [
        Reply(reply, [reference] if references else (), _sentences(persona), query)
        for reply, reference, persona, query in zip(replies, *columns)
    ]


def _sentences(text: str) -> tuple[str, ...]:
    from persona_agents.tasks.worlds import parse_persona

    return parse_turn(text).persona or parse_persona(text)


def _from_json(line: str) -> list[Reply]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise _BadLine(f"no JSON ({error})") from None
    except RecursionError:
        raise _BadLine("JSON that is nested too deeply") from None
    if not isinstance(data, dict):
        raise _BadLine("no JSON object")
    if "dialog" in data:
        return list(_from_log(data["dialog"]))
    if not isinstance(data.get("reply"), str):
        raise _BadLine(
            f"the key 'reply' with a text is missing (there are: {', '.join(data)}). {FORMS[:-1]}"
        )
    references = _texts(data, "references")
    persona = [s for text in _texts(data, "persona") for s in _sentences(text)]
    query = "" if data.get("query") is None else data["query"]
    if not isinstance(query, str):
        raise _BadLine("'query' is no text")
    return [Reply(data["reply"], references, persona, query)]


def _texts(data: dict, key: str) -> list[str]:
    value = data.get(key)
    texts = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _BadLine(f"'{key}' is neither a text nor a list of texts")
    return texts


def _from_log(dialog) -> Iterator[Reply]:
    persona: tuple[str, ...] = ()
    for turn in dialog if isinstance(dialog, list) else [None]:
        if not isinstance(turn, list) or len(turn) != 2 or not isinstance(turn[0], dict):
            raise _BadLine("'dialog' is no list of pairs, the task's message and the model's")
        asked, answered = turn
        if not isinstance(answered, dict) or not isinstance(answered.get("text"), str):
            raise _BadLine(
                "the model's message has no text; was the evaluation run with --skip-generation "
                "true, or --log-keep-fields without text?"
            )
        if not isinstance(asked.get("text") or "", str):
            raise _BadLine("'text' of the task's message is no text")
        turn = parse_turn(asked.get("text") or "")
        if not turn.persona and not _is_personas(asked.get("personas")):
            raise _BadLine("'personas' is neither a text nor two lists of texts")
        persona = persona_of(asked) or persona
        key = "eval_labels" if asked.get("eval_labels") else "labels"
        labels = _texts(asked, key) if asked.get(key) else ()
        yield Reply(answered["text"], labels, persona, turn.query)


def _is_personas(value) -> bool:
    """Whether :func:`persona_of` can read a message's field `personas`."""
    if not value or isinstance(value, str):
        return True
    mine = value[-1] if isinstance(value, list) else None
    return isinstance(mine, list) and all(isinstance(sentence, str) for sentence in mine)


def _writable(reply: Reply) -> Reply:
    r"""The reply, if all its texts are Unicode: JSON can say "\ud83d", half a character, alone."""
    for text in (reply.text, *reply.references, *reply.persona, reply.query):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise _BadLine(
                f"{text!a} holds half of a surrogate pair, which is no character; write the "
                "whole character, or leave it out"
            ) from None
    return reply


def align(first: Sequence[Reply], second: Sequence[Reply], path: str) -> list[Reply]:
    """
    The second system's replies in the order of the first one's samples.

    ParlAI's logs of the same task differ in order between batch sizes.

    :raises PersonaAgentsError: if they are not replies to the same samples
    """

    def sample(reply: Reply):
        return reply.references, reply.persona, reply.query

    if len(first) != len(second):
        raise PersonaAgentsError(
            f"--compare {path} has {len(second)} replies, the other file {len(first)}: two systems "
            "are compared on the same samples."
        )
    by_sample = defaultdict(list)
    for reply in reversed(second):
        by_sample[sample(reply)].append(reply)
    missing = Counter(map(sample, first)) - Counter(map(sample, second))
    if missing:
        references, persona, query = next(iter(missing))
        raise PersonaAgentsError(
            f"--compare {path} has no reply to a sample of the other file: query {query!r}, "
            f"references {list(references)}, persona {list(persona)}. Both files must hold replies "
            "to the same samples."
        )
    return [by_sample[sample(reply)].pop() for reply in first]
