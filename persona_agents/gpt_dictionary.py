"""
The vocabularies of GPTs behind ParlAI's dictionary.

Published GPTs come with one of three: BERT's WordPiece (Chinese GPT-2), the lower-case BPE of the
first OpenAI GPT, or GPT-2's byte-level BPE. None has all tokens that a dialogue needs; what is
missing is added at the end.
"""

from __future__ import annotations

import json
import os

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from persona_agents import gpt
from persona_agents.dictionary import (
    END,
    PAD,
    START,
    UNKNOWN,
    WordPieceDictionaryAgent,
    new_tokenizer,
)
from persona_agents.errors import PersonaAgentsError

# What vocabularies call ParlAI's null, start, end and unknown token; the last is added otherwise.
_ROLES = (
    ("null_token", (PAD, "<pad>")),
    ("start_token", (START, "<bos>")),
    ("end_token", (END, "<eos>")),
    ("unk_token", (UNKNOWN, "<unk>")),
)
# Segment of the persona, and before each turn who speaks: the persona's owner or the partner.
PERSONA, ME, PARTNER = "<persona>", "<me>", "<partner>"


class GPTDictionaryAgent(WordPieceDictionaryAgent):
    """
    ParlAI dictionary over the vocabulary of ``--gpt-model``.

    Added tokens are no part of the tokenizer, so no text can spell them.
    """

    KIND = "GPT"
    FAMILY = gpt.GPT

    @classmethod
    def add_family_args(cls, parser) -> None:
        gpt.add_cmdline_args(parser)

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        if shared:
            self._name_roles()

    def _name_roles(self) -> None:
        """Tell ParlAI which tokens of the vocabulary play its special ones."""
        for role, names in _ROLES:
            setattr(self, role, next(name for name in names if name in self.tok2ind))

    def _table(self, wordpiece: Tokenizer) -> dict[str, int]:
        table = super()._table(wordpiece)
        for _, names in _ROLES:
            if not any(name in table for name in names):
                table[names[-1]] = len(table)
        for name in (PERSONA, ME, PARTNER):
            table.setdefault(name, len(table))
        self.tok2ind = table
        self._name_roles()
        return table

    def _unspoken(self) -> tuple[str, ...]:
        return (*super()._unspoken(), PERSONA, ME, PARTNER)

    def _missing(self, tokenizer: Tokenizer) -> str:
        return ""

    def _from_pretrained(self, folder_or_name: str) -> Tokenizer:
        config = gpt.load_config(folder_or_name)
        tokenizer = gpt.GPT.load(
            folder_or_name,
            "vocabulary",
            lambda library, **kw: _read(library, folder_or_name, config.model_type, **kw),
        )
        if len(super()._table(tokenizer)) > config.vocab_size:
            raise PersonaAgentsError(
                f"--gpt-model {folder_or_name}: its vocabulary has "
                f"{tokenizer.get_vocab_size()} entries, its config.json says {config.vocab_size}."
            )
        return tokenizer


def _read(library, folder_or_name: str, kind: str, **settings) -> Tokenizer:
    """
    The tokenizer from its vocabulary's files.

    transformers' own loaders do not do here: some versions make up a vocabulary where a file is
    missing, and none tells by a GPT-2's configuration that its vocabulary is BERT's.
    """

    def find(file: str) -> str | None:
        try:
            return library.utils.cached_file(folder_or_name, file, **settings)
        except OSError:
            return None

    words = find("vocab.txt")
    if words:
        settings_file = find("tokenizer_config.json")
        return new_tokenizer(
            models.WordPiece.from_file(words, unk_token=UNKNOWN),
            normalizers.BertNormalizer(lowercase=_lower_case(settings_file)),
        )
    words, merges = find("vocab.json"), find("merges.txt")
    if not (words and merges):
        raise FileNotFoundError("it has neither vocab.txt nor vocab.json and merges.txt")
    if kind == "openai-gpt":
        return new_tokenizer(
            models.BPE.from_file(words, merges, unk_token="<unk>", end_of_word_suffix="</w>"),
            decoder=decoders.BPEDecoder(suffix="</w>"),
        )
    return new_tokenizer(
        models.BPE.from_file(words, merges),
        normalizers.Sequence([]),  # text as it is
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )


def _lower_case(settings_file: str | None) -> bool:
    """Whether a BERT vocabulary is for lower-case text; BERT's own default is that it is."""
    if settings_file is None or not os.path.exists(settings_file):
        return True
    with open(settings_file, encoding="utf-8") as file:
        return json.load(file).get("do_lower_case", True)
