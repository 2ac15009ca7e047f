"""The persona-relevance filter: which words of a sentence carry content, and are they shared.

Chinese: nouns, verbs, adjectives, idioms, abbreviations and Latin words by jieba's part-of-speech
tags. English: all words of letters and digits. In both, the words below never count: greetings and
courtesies, pronouns, auxiliaries, and verbs and nouns so general that nearly any two sentences
about a person share them (是, 有, 喜欢; be, have, like).
"""

from __future__ import annotations

import logging
import re
from functools import cache

from persona_agents.errors import PersonaAgentsError

# Beginnings of jieba's tags: nouns of all kinds, verbs, adjectives, attributive words (单身),
# states (雪白), idioms, fixed phrases, abbreviations, places, Latin words. Not: adverbs, pronouns,
# numerals, measure words, times, directions, prepositions, conjunctions, particles, onomatopoeia,
# and not `zg`, which jieba gives to 很 and other words that it knows nothing about.
_ZH_CONTENT_TAGS = ("n", "v", "a", "b", "z", "i", "l", "j", "s", "eng")


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
def _content_of_chunk(chunk: str) -> frozenset[str]:
    # A word of segmented text, or what the segmentation left together (我喜欢). jieba cuts it
    # further where it knows better. Chunks repeat, so each is tagged once.
    return frozenset(
        word.lower()
        for word, tag in _tagger().cut(chunk)
        if tag.startswith(_ZH_CONTENT_TAGS) and tag != "zg" and word not in _ZH_STOP
    )


def content_words(text: str, language: str) -> frozenset[str]:
    """
    The distinct content words of a sentence.

    :param str text: Chinese is best given segmented by spaces, but need not be
    :param str language: 'zh' or 'en'
    :return: the words in lower case
    """
    if language == "zh":
        return frozenset().union(*map(_content_of_chunk, text.split()))
    words = re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", ""))
    return frozenset(word for word in words if word not in _EN_STOP)


def is_relevant(response: str, persona, minimum: int, language: str) -> bool:
    """Whether some persona sentence shares at least `minimum` content words with the response."""
    if minimum <= 0:
        return True
    words = content_words(response, language)
    return any(len(words & content_words(line, language)) >= minimum for line in persona)


def add_filter_argument(group, default: int) -> None:
    """Add --persona-filter to a task's options."""
    # The default is left to the teacher: two tasks of one run may have different ones.
    group.add_argument(
        "--persona-filter",
        type=int,
        default=None,
        metavar="N",
        help="keep a pair only if its response shares at least N content words with one persona "
        f"sentence of the responder; 0 keeps every pair, as :raw and :mini do; unset: {default}",
    )


def filter_option(opt, default: int) -> int:
    """The value of --persona-filter for a task whose default is `default`."""
    value = opt.get("persona_filter")
    if value is None:
        return default
    if value < 0:
        raise PersonaAgentsError(f"--persona-filter must be 0 or more, not {value}.")
    return value
