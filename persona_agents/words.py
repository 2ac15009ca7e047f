"""
A dictionary of words with their parts of speech, function words first.

DVS2S works on words: jieba's in Chinese text, those of ParlAI's ``--dict-tokenizer`` elsewhere.
While the dictionary is built, every occurrence of a word is tagged, and the majority decides
whether it is a content word (noun, verb, adjective or adverb). Words that are none of these and
occur more than 10 times are function words. Ids follow this order: special tokens, function words by count, content
words by count. What is known about words lies beside the ``.dict`` file, in ``.dict.words``.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from functools import lru_cache
from typing import NamedTuple

import torch
from parlai.core.dict import DictionaryAgent

from persona_agents.agents import options
from persona_agents.dictionary import tidy
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn, persona_of
from persona_agents.tasks import content_words
from persona_agents.text import has_cjk

FUNCTION_WORD_COUNT = 10  # a function word occurs more often than this
# Beginnings of Penn's tags for nouns, verbs, adjectives and adverbs. Modals (MD: can, will) and
# question words (WRB: how, where) are none of them.
_EN_CONTENT = ("NN", "VB", "JJ", "RB")
# jieba's: what the persona filter counts, adverbs, and words of time, which it sets beside nouns.
_ZH_CONTENT = (*content_words._ZH_CONTENT_TAGS, "d", "t")
_ZH_UNKNOWN = "zg"  # begins like a content tag, but says that jieba does not know
# What the tokenizer leaves behind an apostrophe: i ' m, don ' t. The tagger takes them for nouns.
_CLITICS = frozenset(["s", "t", "m", "re", "ve", "ll", "d"])
_APOSTROPHES = ("'", "’")


class Word(NamedTuple):
    """What is known about one word from the training data."""

    tag: str  # its most frequent tag: jieba's, or Penn's
    is_function: bool
    count: int  # occurrences in all training texts
    replies: int  # replies that hold it


def tag_words(words: list[str]) -> list[tuple[str, bool]]:
    """
    The part of speech of each word of a text, and whether it is a content word's.

    :param words: as :meth:`WordDictionaryAgent.tokenize` gives them.
    """
    if any(map(has_cjk, words)):
        return [_tag_chinese(word) for word in words]
    from textblob.en import parser  # a lexicon that lies in the package; slow to import

    found, before = [], ""
    for word, tag in parser.find_tags(list(words)):
        if not any(map(str.isalnum, word)):
            tag = "."
        elif before in _APOSTROPHES and word in _CLITICS:
            tag = "POS"
        found.append((tag, tag.startswith(_EN_CONTENT)))
        before = word
    return found


@lru_cache(maxsize=2**16)
def _tag_chinese(word: str) -> tuple[str, bool]:
    """jieba's tagger looks words up, whatever stands around them: once for each word is enough."""
    # the tagger may cut a word further that the tokenizer put together: its last part decides
    tag = [pair.flag for pair in content_words._tagger().cut(word)][-1]
    return tag, tag.startswith(_ZH_CONTENT) and tag != _ZH_UNKNOWN


class WordDictionaryAgent(DictionaryAgent):
    """
    ParlAI's dictionary over words, in the order that DVS2S needs.

    ``n_function`` is the number of special tokens and function words: word w is one of them if its
    id is below it. ``words`` holds what is known about every other word.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        parser.set_defaults(dict_lower=True, dict_maxtokens=30000)
        return parser

    def __init__(self, opt, shared=None):
        if shared:
            self.words, self.n_replies = shared["words"], shared["n_replies"]
            self.n_function = shared["n_function"]
        else:
            options.check_for_agent(opt)  # before anything is built or written
            self.words, self.n_replies, self.n_function = {}, 0, 4
            self._tags = defaultdict(Counter)  # collected while the dictionary is being built
            self._replies = Counter()
        super().__init__(opt, shared)  # calls load() when the dictionary file exists

    def share(self):
        return {
            **super().share(),
            "words": self.words,
            "n_replies": self.n_replies,
            "n_function": self.n_function,
        }

    def reply_shares(self) -> torch.Tensor:
        """Share of training replies that hold each content word (C,)."""
        content = (self.ind2tok[i] for i in range(self.n_function, len(self)))
        shares = torch.tensor([self.words[word].replies for word in content], dtype=torch.float)
        return shares / max(self.n_replies, 1)

    def counts(self) -> torch.Tensor:
        """Occurrences of each word in the training texts (V,), 0 for special tokens."""
        known = (self.words.get(self.ind2tok[i]) for i in range(len(self)))
        return torch.tensor([float(word.count) if word else 0.0 for word in known])

    # -- building from training data -------------------------------------------------------------

    def act(self):
        """Count and tag the words of an observed turn: persona, query and reply."""
        turn = parse_turn(self.observation.get("text") or "")
        labels = self.observation.get("labels") or self.observation.get("eval_labels") or ()
        persona = persona_of(self.observation)
        for text in (*persona, *turn.partner_persona, *turn.query.splitlines()):
            self._see(text)
        for text in labels:
            self._replies.update(set(self._see(text)))
            self.n_replies += 1
        return {"id": "Dictionary"}

    def _see(self, text: str) -> list[str]:
        words = self.tokenize(text, building=True)
        self.add_to_dict(words)
        for word, found in zip(words, tag_words(words)):
            self._tags[word][found] += 1
        return words

    def sort(self, trim=True):
        """Give the collected words their ids; a dictionary that was loaded has its order."""
        if not self._tags:
            return
        special = [self.null_token, self.start_token, self.end_token, self.unk_token]
        frequent = sorted(self._tags, key=lambda word: (-self.freq[word], word))
        frequent = [word for word in frequent if self.freq[word] >= self.minfreq]
        if trim and self.maxtokens > 0:
            frequent = frequent[: max(0, self.maxtokens - len(special))]
        self.words = {word: self._judge(word) for word in frequent}
        order = sorted(frequent, key=lambda word: not self.words[word].is_function)  # stable
        kept = [*special, *order]
        self.freq = defaultdict(int, {word: self.freq[word] for word in kept})
        self.ind2tok = dict(enumerate(kept))
        self.tok2ind = {word: index for index, word in self.ind2tok.items()}
        self._count_function_words()
        self._tags.clear()

    def _judge(self, word: str) -> Word:
        tags = self._tags[word]
        content = sum(count for (_, is_content), count in tags.items() if is_content)
        # of equally frequent tags the first by name, so that the result depends on the data alone
        tag = min(tags, key=lambda found: (-tags[found], found))[0]
        often = self.freq[word] > FUNCTION_WORD_COUNT
        is_function = often and 2 * content < sum(tags.values())
        return Word(tag, is_function, self.freq[word], self._replies[word])

    def _count_function_words(self) -> None:
        self.n_function = 4 + sum(word.is_function for word in self.words.values())

    # -- files -----------------------------------------------------------------------------------

    def save(self, filename=None, append=False, sort=True):
        """Write the dictionary and, before it, what is known about its words."""
        filename = self.opt["dict_file"] if filename is None else filename
        self.sort()
        os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)
        partial = f"{filename}.words.{os.getpid()}.tmp"
        with open(partial, "w", encoding="utf-8", newline="\n") as file:
            file.write(f"{self.n_replies}\n")
            for word, (tag, is_function, count, replies) in self.words.items():
                kind = "function" if is_function else "content"
                file.write(f"{word}\t{kind}\t{tag}\t{count}\t{replies}\n")
        os.replace(partial, f"{filename}.words")
        super().save(filename, append, sort=False)

    def load(self, filename):
        """Read the files that :meth:`save` wrote."""
        super().load(filename)
        path = f"{filename}.words"
        try:
            with open(path, encoding="utf-8", newline="\n") as file:
                self.n_replies = int(file.readline())
                for line in file:
                    word, kind, tag, count, replies = line.rstrip("\n").split("\t")
                    is_function = {"function": True, "content": False}[kind]
                    self.words[word] = Word(tag, is_function, int(count), int(replies))
            self._count_function_words()
            places = (self.tok2ind[word] < self.n_function for word in self.words)
            kinds = (word.is_function for word in self.words.values())
            if len(self.words) + 4 != len(self) or any(a != b for a, b in zip(places, kinds)):
                raise ValueError(f"its words are not those of {filename}")
        except (OSError, ValueError, KeyError) as error:
            raise PersonaAgentsError(
                f"{path} cannot be read as the parts of speech of {filename} ({error}). If the "
                "dictionary belongs to another agent, give --model-file or --dict-file a new path; "
                "otherwise restore both files, or delete both and they are built anew."
            ) from None

    def shutdown(self):
        """The dictionary is saved with the model, not whenever a process ends."""

    # -- text to ids and back --------------------------------------------------------------------

    def tokenize(self, text, building=False):
        """Words of a text: jieba's if there is a Chinese character in it."""
        text = str(text)
        if not has_cjk(text):
            words = super().tokenize(text, building)
        else:
            words = content_words._tagger().tokenizer.cut(text.lower() if self.lower else text)
        return [word for word in words if not word.isspace()]

    def vec2txt(self, vector, delimiter=" "):
        """Text without special tokens, naturally spaced."""
        special = (self.null_token, self.start_token, self.end_token)
        words = (self[int(index)] for index in vector)
        return tidy(delimiter.join(word for word in words if word not in special))
