"""What the metrics count, alike in a reply and in its references: tokens, words, characters."""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache

from persona_agents.text import has_cjk, join_cjk

BASIC = "basic(nfkc,lower)"  # how signatures call the tokens
REMEMBERED = 1 << 16  # texts: persona sentences come back with every sample of their dialogue


@cache
def _basic_rule():
    from tokenizers import normalizers, pre_tokenizers

    cleaned = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=True
    )
    rule = normalizers.Sequence([normalizers.NFKC(), cleaned])
    return rule, pre_tokenizers.BertPreTokenizer()


@lru_cache(maxsize=REMEMBERED)
def basic(text: str) -> tuple[str, ...]:
    """
    The tokens of BERT's basic rule, from the tokenizers library.

    NFKC (which turns full-width punctuation into its narrow form), lower case, each CJK character
    apart, each punctuation mark apart, otherwise split at spaces.

    >>> basic("我爱New York，你呢？")
    ('我', '爱', 'new', 'york', ',', '你', '呢', '?')
    """
    normalizer, splitter = _basic_rule()
    return tuple(token for token, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))


def is_word(token: str) -> bool:
    """Whether a token is more than punctuation."""
    return any(character.isalnum() for character in token)


def basic_words(text: str) -> tuple[str, ...]:
    """The basic tokens less punctuation."""
    return tuple(filter(is_word, basic(text)))


@lru_cache(maxsize=REMEMBERED)
def words(text: str) -> tuple[str, ...]:
    """
    Words, without punctuation: the basic tokens in English, jieba's words in Chinese.

    Chinese is joined first, so it does not matter whether the text came segmented.
    """
    if not has_cjk(text):
        return basic_words(text)
    import jieba

    jieba.setLogLevel(60)
    joined = join_cjk(unicodedata.normalize("NFKC", text)).lower()
    return tuple(filter(is_word, jieba.lcut(joined)))


@cache
def words_signature(language: str) -> str:
    """How :func:`words` splits a language's text."""
    if language != "zh":
        return BASIC
    import jieba

    return f"jieba-{jieba.__version__}"


def characters(text: str) -> str:
    """The text's characters after NFKC and lower-casing, without spaces."""
    return "".join(unicodedata.normalize("NFKC", text).lower().split())
