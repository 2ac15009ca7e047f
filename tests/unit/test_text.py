"""Text helpers: what is Chinese, joining segmented text, the language of a task."""

from __future__ import annotations

import random

import pytest

from persona_agents.text import has_cjk, is_cjk, is_cjk_punctuation, join_cjk, task_language


@pytest.mark.parametrize("char", ["一", "我", "㐀", "𠮷", "豈", "々", "〇"])
def test_ideographs_are_cjk_and_no_punctuation(char):
    assert is_cjk(char)
    assert not is_cjk_punctuation(char)


@pytest.mark.parametrize("char", list("，。！？：；（）《》、「」～…—“”‘’·"))
def test_punctuation_is_no_ideograph(char):
    assert is_cjk_punctuation(char)
    assert not is_cjk(char)


@pytest.mark.parametrize("char", ["a", "3", ".", "?", " ", "é", "あ", "한", "Ａ", "１"])
def test_others_are_neither(char):
    assert not is_cjk(char)
    assert not is_cjk_punctuation(char)


@pytest.mark.parametrize(
    ("segmented", "joined"),
    [
        ("我 喜欢 和 猫 一起玩", "我喜欢和猫一起玩"),
        ("我 想 当 演员 ， 想 出名 。", "我想当演员，想出名。"),
        ("书 是 《 雾都孤儿 》", "书是《雾都孤儿》"),
        ("我 爱听 new age 音乐", "我爱听 new age 音乐"),
        ("我 特别 爱听 rap 。", "我特别爱听 rap。"),
        ("今年 21 岁 ， 3 4 5", "今年 21 岁，3 4 5"),
        ("他 说 “ 你好 ”", "他说“你好”"),
        ("he said “ hi ”", "he said “ hi ”"),
        ("哈哈 … 好 的", "哈哈…好的"),
        ("  我 \u3000 好 \n", "我好"),
        ("plain  english text .", "plain english text ."),
        ("𠮷 野家", "𠮷野家"),
        ("", ""),
    ],
)
def test_join_cjk(segmented, joined):
    assert join_cjk(segmented) == joined
    assert join_cjk(joined) == joined, "joining twice changes nothing"


def test_has_cjk():
    assert has_cjk("rap 音乐")
    assert not has_cjk("rap ！")


@pytest.mark.parametrize(
    ("task", "language"),
    [
        ("cpc", "zh"),
        ("cpc:raw", "zh"),
        ("cpc:mini", "zh"),
        ("parlai.tasks.cpc.agents:MiniTeacher", "zh"),
        ("xpersona:Zh", "zh"),
        ("xpersona:zh", "zh"),
        ("xpersona:En", "en"),
        ("personachat_single_turn:mini", "en"),
        ("convai2", "en"),
        ("cpc,cpc:raw", "zh"),
        ("cpc,convai2", "en"),
        ("", "en"),
    ],
)
def test_task_language(task, language):
    assert task_language(task) == language


def test_join_cjk_against_the_rule_by_characters():
    rng = random.Random(0)
    marks = list(
        " \u3000\t  我你，。、々〇“”…·aB1?!,.《》：\u303f\uff40\uff65\uff66\U00020000\ufe30\n"
    )

    def full_width(char):
        return is_cjk_punctuation(char) and char not in "‘’“”…—·"

    def by_characters(text):
        words = text.split()
        joined = words[0] if words else ""
        for word in words[1:]:
            before, after = joined[-1], word[0]
            both = all(is_cjk(char) or is_cjk_punctuation(char) for char in (before, after))
            joined += "" if both or full_width(before) or full_width(after) else " "
            joined += word
        return joined

    for _ in range(5000):
        text = "".join(rng.choices(marks, k=rng.randrange(12)))
        assert join_cjk(text) == by_characters(text), repr(text)
