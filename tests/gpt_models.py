"""Small GPTs of transformers' for tests: random weights that are not those it starts from."""

from __future__ import annotations

import string
from pathlib import Path

import tiny
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from persona_agents.models.gpt import SpecialIds

KINDS = ("gpt2", "openai-gpt")
VOCABULARY = 29
SPECIAL = SpecialIds(pad=0, start=1, end=2, unknown=3, persona=4, me=5, partner=6)
FIRST_WORD = 7


def config(kind, dropout=0.0, **sizes):
    """A configuration of two layers of 16; what is read after the last token is one number."""
    given = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 40, "vocab_size": VOCABULARY}
    given = {**given, **sizes, "num_labels": 1, "bos_token_id": 1, "eos_token_id": 2}
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_first_dropout"):
        given[name] = dropout
    build = {"gpt2": transformers.GPT2Config, "openai-gpt": transformers.OpenAIGPTConfig}[kind]
    return build(**given)


def double_heads(kind, seed=1, dropout=0.0, dtype=torch.float64, **sizes):
    """GPT2DoubleHeadsModel or OpenAIGPTDoubleHeadsModel, in evaluation mode."""
    name = {"gpt2": "GPT2DoubleHeadsModel", "openai-gpt": "OpenAIGPTDoubleHeadsModel"}[kind]
    model = getattr(transformers, name)(config(kind, dropout, **sizes))
    torch.manual_seed(seed)
    with torch.no_grad():  # large enough that each of them shows
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def sequence(persona, *turns):
    """An input: ``<bos> persona``, then each turn behind its speaker; the partner speaks last."""
    ids = [SPECIAL.start, *persona]
    for place, turn in enumerate(turns):
        mine = (len(turns) - place) % 2 == 0
        ids += [SPECIAL.me if mine else SPECIAL.partner, *turn]
    return ids


def pad(rows, extra=0):
    """Ragged id lists to (B, N), padded on the right, with ``extra`` columns of padding."""
    width = max(len(row) for row in rows) + extra
    return torch.tensor([[*row, *[SPECIAL.pad] * (width - len(row))] for row in rows])


def assert_close(found, expected, tolerance=1e-9):
    expected = torch.as_tensor(expected, dtype=found.dtype)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


# -- folders as GPTs are published -----------------------------------------------------------------

VOCABULARIES = {  # -> kind of the model
    "wordpiece": "gpt2",  # Chinese GPT-2: BERT's vocabulary
    "bpe": "openai-gpt",
    "bytes": "gpt2",
}


def _texts():
    """Bundled texts, and single characters that they lack."""
    samples = [s for language in ("zh", "en") for s in tiny.samples(language)[:200]]
    texts = [text for s in samples for text in (*s.persona, s.query, s.response)]
    return [*texts, " ".join(string.printable), " ".join("我岁就会说了蜂笛镇！")]


def _write_vocabulary(folder: Path, vocabulary: str) -> int:
    """The vocabulary's files, made from the bundled corpora; returns its size."""
    if vocabulary == "wordpiece":
        characters = sorted({c for text in _texts() for c in text.lower() if not c.isspace()})
        pieces = [*characters, *(f"##{c}" for c in characters)]
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        return len(words)
    if vocabulary == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.BpeTrainer(
            vocab_size=900, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=500,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.model.save(str(folder))
    return tokenizer.get_vocab_size()


def make_gpt(folder, vocabulary: str, head="LMHeadModel", **sizes) -> dict:
    """Save a small GPT as it would be published; returns the weights of its transformer."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    kind = VOCABULARIES[vocabulary]
    size = _write_vocabulary(folder, vocabulary)
    prefix = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}[kind]
    sizes = {"n_embd": 32, "n_layer": 1, "n_positions": 96, "vocab_size": size, **sizes}
    model = getattr(transformers, prefix + head)(config(kind, **sizes))
    torch.manual_seed(3)
    with torch.no_grad():  # biases and norms of their own, so that loading them shows
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return getattr(model, "transformer", model).state_dict()


def settings(gpt_model="none") -> dict:
    """Settings of a GPT agent: a small one of its own, or that of a folder."""
    own = {"embedding_size": 32, "n_heads": 2, "ffn_size": 64, "n_decoder_layers": 1}
    return {
        **dict.fromkeys(tiny.SIZES),
        "gpt_model": str(gpt_model),
        **(own if gpt_model == "none" else {}),
    }
