"""All systems of this package at tiny sizes, for tests that each of them must pass."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import gpt_models
import tiny

LSTM = {"hiddensize": 64, "embeddingsize": 32}


class System(NamedTuple):
    """One way to train one agent, small and fast."""

    agent: str  # after "persona_agents:"
    settings: dict  # options, the sizes among them; functions are called for their values
    steps: int = 300  # enough to learn 32 samples by heart

    def options(self, **settings) -> dict:
        """Options for :func:`tiny.options`, ``settings`` going before the system's own."""
        given = {**dict.fromkeys(tiny.SIZES), "model": f"persona_agents:{self.agent}"}
        given.update(self.settings, **settings)
        return {name: value() if callable(value) else value for name, value in given.items()}


@functools.cache
def tiny_bert() -> str:
    """The folder of a BERT of one layer of 32 that knows the bundled corpora's words."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    texts = [text for language in ("zh", "en") for s in tiny.samples(language) for text in s[1:]]
    texts += [text for language in ("zh", "en") for s in tiny.samples(language) for text in s[0]]
    characters = sorted({character for text in texts for character in text.lower()} - {" "})
    words = sorted({word for text in texts for word in text.lower().split() if word.isascii()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    tokens += [f"##{character}" for character in characters]
    tokens += [word for word in words if word.isalpha() and len(word) > 1]
    (Path(folder) / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    tokenizer = BertWordPieceTokenizer({token: number for number, token in enumerate(tokens)})
    tokenizer.save(f"{folder}/tokenizer.json")
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder


NO_BERT = {"bert_model": "none"}
HCM = {**tiny.SIZES, "learningrate": 1e-2}
TRANSFORMER = {
    **NO_BERT,
    "embedding_size": 32,
    "n_heads": 2,
    "ffn_size": 64,
    "n_layers": 1,
    "lr_scheduler": "linear",
    "learningrate": 1e-2,
    "label_smoothing": 0.0,
}

GPT = {**gpt_models.settings(), "learningrate": 1e-2}

SYSTEMS = {
    "hcm": System("hcm", HCM),
    "hcm --bert-init embeddings": System(
        "hcm",
        {
            "bert_model": tiny_bert,
            "n_decoder_layers": 1,
            "bert_init": "embeddings",
            "learningrate": 1e-2,
            "pretrained_lr": 1e-3,
        },
    ),
    "hcm --copy none": System("hcm", {**HCM, "copy": "none"}),
    "hcm --copy flat": System("hcm", {**HCM, "copy": "flat"}),
    "s2sa": System("s2sa", {**NO_BERT, **LSTM, "learningrate": 1e-2}),
    "pgn": System("pgn", {**NO_BERT, **LSTM, "learningrate": 1e-2}),
    "pgn --coverage true": System(
        "pgn", {**NO_BERT, **LSTM, "learningrate": 1e-2, "coverage": True}
    ),
    "transformer": System("transformer", TRANSFORMER),
    "transfertransfo": System("transfertransfo", GPT),
    "lic": System("lic", GPT),
    "bert2bert": System("bert2bert", HCM),
}
BASELINES = [name for name, system in SYSTEMS.items() if system.agent != "hcm"]
