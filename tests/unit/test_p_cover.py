"""P-Cover (eq. 22) against values worked out by hand."""

import pytest

from persona_agents.metrics.persona import p_cover


@pytest.mark.parametrize(
    ("reply", "persona", "expected"),
    [
        ("i have two dogs .", ["i have two dogs.", "i like tea."], 1.0),
        ("I have a cat!", ["i have two dogs.", "i like tea."], 2 / 4),
        ("tea tea tea", ["i like tea."], 1 / 3),
        ("tea", ["tea tea or coffee"], 1 / 4),  # distinct words over all words of the sentence
        ("", ["i like tea."], 0.0),
        ("...!", ["i like tea ..."], 0.0),
        ("tea", ["tea."], 1.0),
        ("我喜欢音乐", ["我喜欢音乐。"], 1.0),
        ("我喜欢电影", ["我喜欢音乐。", "我是老师"], 2 / 3),
        ("hello", [], None),
        ("hello", ["...", ""], None),
    ],
)
def test_p_cover(reply, persona, expected):
    score = p_cover(reply, persona)
    assert score == (expected if expected is None else pytest.approx(expected))
