"""Helpers for text that may be Chinese: which characters are, joining segmented text, languages."""

from __future__ import annotations

import re

# Unicode's CJK ideographs: the unified block, its extensions and the compatibility ideographs.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2EE5D),
    (0x2F800, 0x2FA1F),
    (0x30000, 0x323AF),
)
# The iteration mark 々 and the number zero 〇 stand among punctuation but are written as characters.
_IDEOGRAPH_MARKS = "々〇"
_PUNCTUATION = (
    (0x3001, 0x303F),  # 、。〈〉《》「」『』【】…
    (0xFE30, 0xFE4F),  # vertical and small forms
    (0xFF01, 0xFF0F),  # ！＂＃…，－．
    (0xFF1A, 0xFF20),  # ：；＜＝＞？＠
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF65),
)
# Marks that Chinese shares with Latin scripts: quotes, the ellipsis, the dash, the middle dot.
_SHARED_PUNCTUATION = "‘’“”…—·"


def _within(char: str, ranges) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)


def is_cjk(char: str) -> bool:
    """Whether one character is a CJK ideograph, extension blocks included."""
    return char in _IDEOGRAPH_MARKS or _within(char, _IDEOGRAPHS)


def is_cjk_punctuation(char: str) -> bool:
    """Whether one character is CJK or full-width punctuation, or a mark that Chinese text shares."""
    return char in _SHARED_PUNCTUATION or _is_full_width(char)


def _is_full_width(char: str) -> bool:
    return char not in _IDEOGRAPH_MARKS and _within(char, _PUNCTUATION)


def _class(ranges, marks: str) -> str:
    """The inside of a regular expression's character class."""
    spans = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
    return spans + re.escape(marks)


# The same sets as regular expressions: a pass over 350,000 turns must not call Python for each space.
_FULL_WIDTH = f"(?![{_IDEOGRAPH_MARKS}])[{_class(_PUNCTUATION, '')}]"
_JOINED = f"[{_class((*_IDEOGRAPHS, *_PUNCTUATION), _IDEOGRAPH_MARKS + _SHARED_PUNCTUATION)}]"
_SEGMENTATION = re.compile(
    rf"(?<={_JOINED})\s+(?={_JOINED})|\s+(?={_FULL_WIDTH})"
    rf"|(?<=[{_class(_PUNCTUATION, '')}])(?<![{_IDEOGRAPH_MARKS}])\s+"
)
_SPACES = re.compile(r"\s+")


def join_cjk(text: str) -> str:
    """
    Remove the spaces that word segmentation puts into Chinese text.

    A space goes where both its neighbours are CJK characters or CJK punctuation, and beside
    full-width punctuation in any case. Between Latin words and numbers, and between those and a
    CJK character, it stays; a run of them becomes one space.

    >>> join_cjk("我 特别 爱听 new age 音乐 ， 你 呢 ？")
    '我特别爱听 new age 音乐，你呢？'
    """
    text = _SEGMENTATION.sub("", text.strip())
    return _SPACES.sub(" ", text)


def has_cjk(text: str) -> bool:
    """Whether there is a CJK ideograph in `text`."""
    return any(map(is_cjk, text))


def task_language(task: str) -> str:
    """
    The language of a ParlAI task name: 'zh' for CPC and for the Chinese variants of other tasks.

    Of several tasks (`-t one,two`) it is 'zh' only if all are.

    >>> task_language("cpc:raw"), task_language("xpersona:Zh"), task_language("convai2")
    ('zh', 'zh', 'en')
    """

    def is_chinese(name: str) -> bool:
        # a wrapper has the language of the task within
        first, *rest = re.sub("^(persona_eval:)+", "", name.strip().lower()).split(":")
        parts = [part for piece in rest for part in re.split(r"[^a-z0-9]+", piece)]
        # A full path names the task in its last module but one: parlai.tasks.cpc.agents
        modules = first.split(".")
        return any(module.startswith("cpc") for module in modules) or "zh" in parts

    names = [name for name in task.split(",") if name.strip()]
    return "zh" if names and all(map(is_chinese, names)) else "en"
