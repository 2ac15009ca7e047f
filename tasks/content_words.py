"""The persona-relevance filter: which words of a sentence carry content, and are they shared.

Chinese: nouns, verbs, adjectives, idioms, abbreviations and Latin words by jieba's part-of-speech
tags. English: all words of letters and digits. In both, the words below never count: greetings and
courtesies, pronouns, auxiliaries, and verbs and nouns so general that nearly any two sentences
about a person share them (是, 有, 喜欢; be, have, like).
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata

from persona_agents.tasks.files import DataFile, Report, read_lines

from persona_agents.errors import PersonaAgentsError

# Beginnings of jieba's tags: nouns of all kinds, verbs, adjectives, attributive words (单身),
# states (雪白), idioms, fixed phrases, abbreviations, places, Latin words. Not: adverbs, pronouns,
# numerals, measure words, times, directions, prepositions, conjunctions, particles, onomatopoeia,
# and not `zg`, which jieba gives to 很 and other words that it knows nothing about.
_ZH_CONTENT_TAGS = ("n", "v", "a", "b", "z", "i", "l", "j", "s", "eng")
_ZH_NOUN_TAGS = ("n", "j", "s", "eng")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ZH_STOP = _words(
    """
    是 有 没有 没 在 去 来 到 要 会 能 能够 可以 可能 应该 应 得 想 让 叫 给 做
    干 干嘛 干什么 弄 搞 成 成为 当 看 说 说话 讲 聊 聊天 问 听 听说 知道 觉得
    感觉 认为 以为 觉 喜欢 爱 最爱 最喜欢 很喜欢 我喜欢 希望 需要 好 好的 好好 不错
    挺好 很好 真好 太好了 还好 对 对啊 行 可 不行 没事 没关系 没错 不是 就是 还是
    要是 是不是 有没有 能不能 会不会 是否 好像 像 一样 一起 多 少 大 小 太 真 真的
    确实 一般 平常 平时 经常 常常 特别 非常 你好 您好 大家好 哈喽 哈罗 嗨 再见 拜拜
    谢谢 多谢 感谢 不客气 客气 认识 很高兴 高兴 幸会 请问 请 早上好 晚上好 下午好 早
    晚安 加油 哈哈 哈哈哈 呵呵 嘿嘿 嗯嗯 人 个人 人家 东西 事 事情 时候 时间 地方
    样子 话 自己 我们 你们 他们 什么 怎么 怎样 怎么样 为什么 哪里 这样 那样 这么 那么
    起来 出来 下来 过来 上 下 里 用 过 走 出 进 回 带 拿 放 开始 继续 比较 以后
    以前 之前 之后
    """
)

_EN_STOP = _words(
    """
    a about above after again all almost also always am an and another any anything are around as
    at away back be because been before being but by can cannot could did do does doing done down
    else enough even ever every everything few for from get gets getting go goes going gone good
    got great had has have having he her here hers herself hi hello hey him himself his how i if
    in into is it its itself just kind know let like likes liked little lot lots love loves loved
    made make makes many may maybe me mean might mine more most much must my myself need never new
    nice no not nothing now of off oh ok okay old on one only or other our ours out over own
    people pretty probably put quite rather really right said same say says see seem she should
    since so some someone something sometimes sort still such sure take than thank thanks that the
    their theirs them then there these they thing things think this those though through time
    times to today too try two up us use used usually very want wants was way we well were what
    when where which while who whose why will wish with without wonder would wow yeah yes yet you
    your yours yourself s t d ll m re ve im ive id dont doesnt didnt cant wont isnt arent thats
    whats lets youre bye goodbye welcome please sorry cool awesome morning evening tonight day
    """
)


@cache
def _tagger():
    """jieba's part-of-speech tagger, loaded on first use and without its messages."""
    try:
        import jieba
        import jieba.posseg
    except ImportError as error:
        raise PersonaAgentsError(
            "The persona filter for Chinese needs jieba: pip install jieba, or switch the filter off "
            "with --persona-filter 0."
        ) from error
    jieba.setLogLevel(logging.WARNING)
    jieba.initialize()
    return jieba.posseg.dt


@cache
def _content_of_chunk(chunk: str, tags: tuple[str, ...]) -> frozenset[str]:
    # A word of segmented text, or what the segmentation left together (我喜欢). jieba cuts it
    # further where it knows better. Chunks repeat, so each is tagged once.
    return frozenset(
        word.lower()
        for word, tag in _tagger().cut(chunk)
        if tag.startswith(tags) and tag != "zg" and word not in _ZH_STOP
    )


def content_words(text: str, language: str, tags=_ZH_CONTENT_TAGS) -> frozenset[str]:
    """
    The distinct content words of a sentence.

    :param str text: Chinese is best given segmented by spaces, but need not be
    :param str language: 'zh' or 'en'
    :param tags: beginnings of the jieba tags that count, for Chinese
    :return: the words in lower case
    """
    if language == "zh":
        return frozenset().union(*(_content_of_chunk(chunk, tags) for chunk in text.split()))
    words = re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", ""))
    return frozenset(word for word in words if word not in _EN_STOP)


def is_relevant(response: str, persona, minimum: int, language: str) -> bool:
    """Whether some persona sentence shares at least `minimum` content words with the response."""
    return Rule(language, minimum).why_dropped("", response, persona) is None


@dataclass(frozen=True)
class Rule:
    """
    When a pair has to do with the persona of the one who answers.

    It has if the answer and some persona sentence share at least `minimum` content words.

    Attributes:
        language: 'zh' or 'en'.
        minimum: 0 keeps every pair.
        words: 'content', or 'noun' (Chinese only) for nouns, names and Latin words alone.
        query: the words of the query count as the answer's: "do you sew ?", "yes, often !"
        stop_words: further words that never count, in lower case.
    """

    language: str
    minimum: int = 1
    words: str = "content"
    query: bool = False
    stop_words: frozenset[str] = frozenset()

    def why_dropped(self, query: str, response: str, persona) -> str | None:
        """
        None if the pair is kept, else the reason, one of a handful.

        :param str query: what is answered; Chinese best segmented, as the other texts
        :param str response: the answer
        :param persona: sentences
        """
        if self.minimum <= 0:
            return None
        if not persona:
            return "no persona"
        said = self.words_of(response)
        if self.query:
            said |= self.words_of(query)
        if not said:
            return "no content word"
        shared = max(len(said & _words_of_sentence(self, sentence)) for sentence in persona)
        if shared >= self.minimum:
            return None
        return f"only {shared} of {self.minimum} words shared" if shared else "no word shared"

    def words_of(self, text: str) -> frozenset[str]:
        """The words of a text that count."""
        tags = _ZH_NOUN_TAGS if self.words == "noun" else _ZH_CONTENT_TAGS
        return content_words(text, self.language, tags) - self.stop_words

    def description(self) -> dict:
        """All that decides, as plain data: two rules that differ in it may keep different pairs."""
        if self.minimum <= 0:
            return {"minimum": 0}
        tables = (_ZH_STOP, _EN_STOP, self.stop_words, _ZH_CONTENT_TAGS, _ZH_NOUN_TAGS)
        text = repr([sorted(table) for table in tables])
        try:
            jieba = metadata.version("jieba") if self.language == "zh" else None
        except metadata.PackageNotFoundError:
            jieba = None
        return {
            "minimum": self.minimum,
            "words": self.words,
            "query": self.query,
            "tables": hashlib.sha256(text.encode("utf-8")).hexdigest()[:16],
            "jieba": jieba,
        }


@lru_cache(maxsize=4096)  # a persona is looked at for each of its owner's turns
def _words_of_sentence(rule: Rule, sentence: str) -> frozenset[str]:
    return rule.words_of(sentence)


def add_filter_arguments(group, default: int) -> None:
    """Add the options of the filter to a task's options."""
    # The default is left to the teacher: two tasks of one run may have different ones.
    group.add_argument(
        "--persona-filter",
        type=int,
        default=None,
        metavar="N",
        help="keep a pair only if its response shares at least N content words with one persona "
        f"sentence of the responder; 0 keeps every pair, as :raw and :mini do; unset: {default}",
    )
    group.add_argument(
        "--persona-filter-words",
        choices=["content", "noun"],
        default="content",
        help="which words the filter counts: all content words, or nouns and names only (Chinese)",
    )
    group.add_argument(
        "--persona-filter-query",
        type="bool",
        default=False,
        help="words of the query count like the response's, so that the query may supply the link",
    )
    group.add_argument(
        "--persona-filter-stop-words",
        default=None,
        metavar="FILE",
        help="further words that the filter never counts, one a line",
    )


def filter_rule(opt, default: int, language: str) -> Rule:
    """The rule that the options ask for; raises PersonaAgentsError if they make no sense."""
    minimum = opt.get("persona_filter")
    minimum = default if minimum is None else minimum
    words = opt.get("persona_filter_words") or "content"
    if minimum < 0:
        raise PersonaAgentsError(f"--persona-filter must be 0 or more, not {minimum}.")
    if words == "noun" and language != "zh":
        raise PersonaAgentsError(
            "--persona-filter-words noun needs parts of speech, which are known for Chinese only. "
            "Name the words that shall not count in a file: --persona-filter-stop-words FILE."
        )
    stop_words = opt.get("persona_filter_stop_words")
    return Rule(
        language=language,
        minimum=minimum,
        words=words,
        query=bool(opt.get("persona_filter_query")),
        stop_words=frozenset(_read_words(stop_words)) if stop_words else frozenset(),
    )


def _read_words(path: str) -> list[str]:
    return [
        word.lower()
        for _, line in read_lines(DataFile(path), str, Report())
        for word in line.split()
    ]
