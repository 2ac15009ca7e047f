"""How much of the persona a reply takes up (the paper's eq. 22)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache

from persona_agents.text import has_cjk


def words(text: str) -> list[str]:
    """
    The words that P-Cover counts: NFKC, lower case, no punctuation.

    English is split as BERT's basic rule splits it, Chinese by jieba.
    """
    text = unicodedata.normalize("NFKC", text).lower()
    if has_cjk(text):
        import jieba

        jieba.setLogLevel(60)
        tokens = jieba.lcut(text)
    else:
        tokens = [word for word, _ in _basic_rule().pre_tokenize_str(text)]
    return [token for token in tokens if any(character.isalnum() for character in token)]


@cache
def _basic_rule():
    from tokenizers.pre_tokenizers import BertPreTokenizer

    return BertPreTokenizer()


def p_cover(reply: str, persona: Iterable[str]) -> float | None:
    """
    Eq. 22: the greatest share of a persona sentence's words that the reply holds.

    :return: max over sentences of |distinct shared words| / words of the sentence, from 0 to 1;
        None when the persona has no word, so that the sample is left out of the mean.
    """
    said = set(words(reply))
    sentences = [sentence for sentence in map(words, persona) if sentence]
    if not sentences:
        return None
    return max(len(said & set(sentence)) / len(sentence) for sentence in sentences)
