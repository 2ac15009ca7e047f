"""
BERT's WordPiece vocabulary behind ParlAI's dictionary.

The vocabulary comes from BERT (``--bert-model`` a hub name or a folder) or is built from the
training data (``--bert-model none``). Either way the ``tokenizers`` library does the work, and the
``.dict`` file is its own JSON, so a trained model needs neither a hub nor a folder to be reloaded.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter

from parlai.core.build_data import modelzoo_path
from parlai.core.dict import DictionaryAgent
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from persona_agents import bert
from persona_agents.agents import options
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import parse_turn

PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"

# Ideographs and CJK punctuation that BERT's pre-tokenizer makes tokens of their own. Only beside
# these may a space go: "～" and full-width letters form words, which would grow together.
_BLOCKS = ((0x3000, 0x303F), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF))
_CJK = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf"
    "\U0002f800-\U0002fa1f\u2014\u2018\u2019\u201c\u201d\u2026"
) + "".join(
    re.escape(chr(code))
    for first, last in _BLOCKS
    for code in range(first, last + 1)
    if unicodedata.category(chr(code)).startswith("P")
)
_SPACE_AT_CJK = re.compile(f"(?<=[{_CJK}]) +| +(?=[{_CJK}])")
# Apart in BERT's tokens but not in writing. (The library's own clean-up also turns "do not" into
# "don't".)
_INSIDE_WORD = re.compile(r"(?<=\w) ([-']) (?=\w)|(?<=\d) ([.,:]) (?=\d)")
_AT_PUNCTUATION = re.compile(r" +(?=[.,!?;:%)\]}])|(?<=[(\[{]) +")


def tidy(text: str) -> str:
    """Natural spacing: none at Chinese characters, before commas, or inside ``t-shirt``, ``3.5``."""
    text = _INSIDE_WORD.sub(lambda match: match[1] or match[2], text)
    return _SPACE_AT_CJK.sub("", _AT_PUNCTUATION.sub("", text)).strip()


class WordPieceDictionaryAgent(DictionaryAgent):
    """
    ParlAI dictionary over a WordPiece vocabulary.

    ``[PAD]``, ``[CLS]``, ``[SEP]`` and ``[UNK]`` are ParlAI's null, start, end and unknown tokens.
    A text that spells out ``[CLS]`` or ``[SEP]`` is tokenized like any other, so these ids occur
    only where a model puts them. ``len()`` is the size of the vocabulary that BERT was trained on.
    """

    KIND = "WordPiece"
    FAMILY = bert.BERT  # pretrained models that bring a vocabulary

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        cls.add_family_args(parser)
        parser.set_defaults(
            dict_nulltoken=PAD, dict_starttoken=START, dict_endtoken=END, dict_unktoken=UNKNOWN
        )
        return parser

    @classmethod
    def add_family_args(cls, parser) -> None:
        """The option that chooses the pretrained model."""
        bert.add_cmdline_args(parser)

    def __init__(self, opt, shared=None):
        if shared:
            self.wordpiece = shared["wordpiece"]
        else:
            self.wordpiece = None
            self._words = Counter()  # collected while a vocabulary is being built
        super().__init__(opt, shared)  # calls load() when the dictionary file exists
        if self.wordpiece is None:
            options.check_for_agent(opt)
            _check_not_lost(opt)
            if _init_dictionary(opt):
                self.load(_init_dictionary(opt))
            elif self.FAMILY.is_none(opt):
                self._adopt(
                    new_tokenizer(models.WordPiece(self._start_vocabulary(), unk_token=UNKNOWN))
                )
            else:
                self._adopt(self._from_pretrained(self.FAMILY.resolve(opt)))

    def _adopt(self, wordpiece: Tokenizer) -> None:
        """Take the tokenizer's vocabulary for ParlAI's own tables."""
        self.wordpiece = wordpiece
        self.tok2ind = self._table(wordpiece)
        self.ind2tok = {index: token for token, index in self.tok2ind.items()}
        self.freq.clear()
        self.freq.update(dict.fromkeys(self.tok2ind, 1))
        self._unk_token_idx = self.tok2ind[self.unk_token]

    def _table(self, wordpiece: Tokenizer) -> dict[str, int]:
        """Ids of the whole vocabulary."""
        return wordpiece.get_vocab(with_added_tokens=False)

    def share(self):
        return {**super().share(), "wordpiece": self.wordpiece}

    # -- building from training data -------------------------------------------------------------

    def is_prebuilt(self) -> bool:
        """With BERT's vocabulary, or --init-model's, there is nothing to build from the data."""
        return not self.FAMILY.is_none(self.opt) or _init_dictionary(self.opt) is not None

    def _start_vocabulary(self) -> dict[str, int]:
        return {token: index for index, token in enumerate((PAD, UNKNOWN, START, END))}

    def act(self):
        """Count the words of an observed turn: persona, query and response."""
        turn = parse_turn(self.observation.get("text") or "")
        labels = self.observation.get("labels") or self.observation.get("eval_labels") or ()
        for text in (*turn.persona, *turn.partner_persona, turn.query, *labels):
            self._words.update(_words(self.wordpiece, text))
        return {"id": "Dictionary"}

    def _build_vocabulary(self) -> None:
        """
        All characters, then the most frequent words: a WordPiece vocabulary without training.

        The library's own trainer gives another vocabulary in every run, even with equal data; this
        one depends on nothing but the data.
        """
        limit = self.maxtokens if self.maxtokens > 0 else 2**31
        vocabulary = self._start_vocabulary()
        characters = sorted({character for word in self._words for character in word})
        inside = sorted({"##" + c for word in self._words for c in word[1:]})
        frequent = sorted(self._words.items(), key=lambda item: (-item[1], item[0]))
        words = [word for word, count in frequent if count >= self.minfreq]
        for token in (*characters, *inside, *words):
            if len(vocabulary) >= limit:
                break
            vocabulary.setdefault(token, len(vocabulary))
        self._adopt(new_tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN)))
        self._words.clear()

    # -- files -----------------------------------------------------------------------------------

    def load(self, filename):
        """Read a ``.dict`` file written by :meth:`save`."""
        try:
            with open(filename, encoding="utf-8") as file:
                wordpiece = Tokenizer.from_str(file.read())
            if self._missing(wordpiece):
                raise ValueError(f"it lacks {self._missing(wordpiece)}")
        except Exception as error:  # noqa: BLE001 - the library raises nothing more precise
            raise PersonaAgentsError(
                f"{filename} is not a {self.KIND} dictionary of this package ({error}). If it belongs "
                "to another agent, give --model-file or --dict-file a new path; if it is damaged, "
                "delete it and it is made anew."
            ) from None
        self._adopt(wordpiece)

    def save(self, filename=None, append=False, sort=True):
        """Write the tokenizer as JSON, whole or not at all."""
        if self._words:
            self._build_vocabulary()
        filename = self.opt["dict_file"] if filename is None else filename
        os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)
        partial = f"{filename}.{os.getpid()}.tmp"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(self.wordpiece.to_str())
        os.replace(partial, filename)

    def shutdown(self):
        """The dictionary is saved with the model, not whenever a process ends."""

    # -- text to ids and back --------------------------------------------------------------------

    def __len__(self):
        return len(self.tok2ind)

    def tokenize(self, text, building=False):
        """Word pieces of a text."""
        return self.wordpiece.encode(str(text), add_special_tokens=False).tokens

    def txt2vec(self, text, vec_type=list):
        """Ids of a text's word pieces, without [CLS] and [SEP]."""
        return vec_type(self.wordpiece.encode(str(text), add_special_tokens=False).ids)

    def vec2txt(self, vector, delimiter=" "):
        """Clean text: pieces joined, no spaces between Chinese characters."""
        tokens = [self.ind2tok[int(index)] for index in vector]
        tokens = [token for token in tokens if token not in self._unspoken()]
        if tokens:  # a model may begin a reply in the middle of a word
            tokens[0] = tokens[0].removeprefix("##")
        return tidy(self.wordpiece.decoder.decode(tokens))

    def _unspoken(self) -> tuple[str, ...]:
        """Tokens that are no part of a text."""
        return self.null_token, self.start_token, self.end_token

    # -- a pretrained model's vocabulary ---------------------------------------------------------

    def _from_pretrained(self, folder_or_name: str) -> Tokenizer:
        own = bert.load_tokenizer(folder_or_name).backend_tokenizer
        if self._missing(own):
            raise PersonaAgentsError(
                f"--bert-model {folder_or_name}: its vocabulary lacks {self._missing(own)}, so it "
                "is not BERT's WordPiece vocabulary."
            )
        return new_tokenizer(own.model, own.normalizer, own.pre_tokenizer)

    def _missing(self, tokenizer: Tokenizer) -> str:
        """The special tokens that a vocabulary lacks, joined by commas."""
        return ", ".join(t for t in (PAD, UNKNOWN, START, END) if tokenizer.token_to_id(t) is None)


def _check_not_lost(opt) -> None:
    """Raise where a saved model has no dictionary: another one would not be its own."""
    model_file = opt.get("model_file")
    if model_file and os.path.isfile(model_file) and not os.path.exists(f"{model_file}.dict"):
        raise PersonaAgentsError(
            f"{model_file}.dict, the dictionary of this model, is missing. Restore it, or give "
            "--model-file a new path."
        )


def new_tokenizer(model, normalizer=None, pre_tokenizer=None, decoder=None) -> Tokenizer:
    """A tokenizer that recognises no special token in a text, but the unknown one."""
    tokenizer = Tokenizer(model)
    if normalizer is None:
        normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoder or decoders.WordPiece(prefix="##", cleanup=False)
    if model.unk_token:  # a decoded [UNK] is read as unknown again
        tokenizer.add_special_tokens([model.unk_token])
    return tokenizer


def _init_dictionary(opt) -> str | None:
    """The dictionary of ``--init-model``: its weights fit no other, and no BERT is needed for it."""
    if not opt.get("init_model"):
        return None
    path = modelzoo_path(opt.get("datapath"), opt["init_model"]) + ".dict"
    return path if os.path.exists(path) else None


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    normal = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
