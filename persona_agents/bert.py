"""
Which BERT: ``--bert-model auto|NAME|PATH|none`` and ``--bert-init``.

BERT gives configuration, vocabulary and weights. A hub name is looked up on disk first; when it is
not there the hub is asked once, with a short time limit, so that an unreachable hub is an error at
once rather than after minutes of retries.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings

from persona_agents.errors import PersonaAgentsError
from persona_agents.text import task_language

BY_LANGUAGE = {"zh": "bert-base-chinese", "en": "bert-base-uncased"}
# Sizes when there is no BERT to take them from.
SMALL = {
    "embedding_size": 256,
    "n_heads": 4,
    "ffn_size": 1024,
    "n_encoder_layers": 3,
    "n_decoder_layers": 3,
}
N_POSITIONS = 512
_DESCRIPTION = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
    "initializer_range",
    "pad_token_id",
)
HUB_TIMEOUT = 5  # seconds


def add_cmdline_args(parser) -> None:
    """Options of every agent that reads BERT or its vocabulary."""
    group = parser.add_argument_group("BERT")
    group.add_argument(
        "--bert-model",
        default="auto",
        help="BERT that gives sizes, vocabulary and weights: a hub name, a folder, `auto` "
        "(bert-base-chinese or bert-base-uncased by the task's language) or `none` (a small model "
        "of its own, with a vocabulary built from the training data).",
    )


def add_size_args(parser) -> None:
    """Sizes, for agents that build a Transformer of BERT's form."""
    group = parser.add_argument_group("Sizes")
    group.add_argument(
        "--n-decoder-layers",
        type=int,
        default=None,
        help=f"Decoder layers. Default: as many as BERT has; {SMALL['n_decoder_layers']} without "
        "BERT.",
    )
    for name, what in (
        ("embedding-size", "Hidden size"),
        ("n-heads", "Attention heads"),
        ("ffn-size", "Inner size of the feed-forward layers"),
        ("n-encoder-layers", "Encoder layers"),
    ):
        default = SMALL[name.replace("-", "_")]
        group.add_argument(
            f"--{name}",
            type=int,
            default=None,
            help=f"{what}, with --bert-model none only (default {default}).",
        )


def is_none(opt) -> bool:
    """Whether the agent works without any BERT."""
    return opt.get("bert_model", "auto") == "none"


def resolve(opt) -> str:
    """The hub name or folder meant by ``--bert-model``; `auto` by the language of the task."""
    name = opt.get("bert_model", "auto")
    if name == "auto":
        return BY_LANGUAGE[task_language(opt.get("task") or "")]
    return os.path.expanduser(name)


def size(opt, name: str) -> int:
    """A size option under ``--bert-model none``, with its default."""
    given = opt.get(name)
    return SMALL[name] if given is None else given


def check_options(opt) -> None:
    """Raise for sizes that cannot be, before anything is built or written."""
    for name in SMALL:
        if opt.get(name) is None:
            continue
        option = "--" + name.replace("_", "-")
        if opt[name] < 1:
            raise PersonaAgentsError(f"{option} {opt[name]}: must be at least 1.")
        if not is_none(opt) and name != "n_decoder_layers":
            raise PersonaAgentsError(
                f"{option} has no effect with --bert-model {opt.get('bert_model', 'auto')}: this "
                "size is BERT's. Leave it out, or use --bert-model none."
            )
    if is_none(opt) and size(opt, "embedding_size") % size(opt, "n_heads"):
        raise PersonaAgentsError(
            f"--embedding-size {size(opt, 'embedding_size')} cannot be divided among --n-heads "
            f"{size(opt, 'n_heads')}: make it a multiple."
        )


def check_sizes_kept(opt, description: dict) -> None:
    """Raise for a size option that a saved model, described so, does not have."""
    for name, key in (
        ("embedding_size", "hidden_size"),
        ("n_heads", "num_attention_heads"),
        ("ffn_size", "intermediate_size"),
        ("n_encoder_layers", "num_hidden_layers"),
    ):
        if opt.get(name) not in (None, description[key]):
            raise PersonaAgentsError(
                f"--{name.replace('_', '-')} {opt[name]}: the saved model has {description[key]}. "
                "Leave the option out, or give --model-file a new path to train another model."
            )


def small_config(opt, vocab_size: int, pad_id: int):
    """Configuration of a BERT of our own, for ``--bert-model none``."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=size(opt, "embedding_size"),
        num_hidden_layers=size(opt, "n_encoder_layers"),
        num_attention_heads=size(opt, "n_heads"),
        intermediate_size=size(opt, "ffn_size"),
        max_position_embeddings=N_POSITIONS,
        pad_token_id=pad_id,
    )


def load_config(name: str):
    """Configuration of a BERT on disk or on the hub."""
    return _load(
        name, "configuration", lambda loader, **kw: loader.BertConfig.from_pretrained(name, **kw)
    )


def load_tokenizer(name: str):
    """Tokenizer of a BERT on disk or on the hub."""
    return _load(
        name,
        "vocabulary",
        lambda loader, **kw: loader.BertTokenizerFast.from_pretrained(name, **kw),
    )


def load_weights(name: str, config):
    """``BertModel`` without pooler, with its pretrained weights."""
    return _load(
        name,
        "weights",
        lambda loader, **kw: loader.BertModel.from_pretrained(
            name, config=config, add_pooling_layer=False, **kw
        ),
    )


def build(config):
    """``BertModel`` with random weights; no pooler, since unused parameters break DDP."""
    with _quiet() as transformers:
        return transformers.BertModel(config, add_pooling_layer=False)


def describe(config) -> dict:
    """What a saved model needs to know of BERT's configuration; plain data."""
    return {key: getattr(config, key) for key in _DESCRIPTION}


def from_description(description: dict):
    """The configuration that :func:`describe` was given."""
    with _quiet() as transformers:
        return transformers.BertConfig(**description)


def reject_vocabulary(opt, model_size: int, dictionary_size: int) -> None:
    """Raise for a dictionary that is not the model's."""
    raise PersonaAgentsError(
        f"The dictionary has {dictionary_size} entries, the model of --bert-model "
        f"{opt.get('bert_model')} {model_size}. If {opt.get('dict_file')} belongs to another model, "
        "give --model-file or --dict-file a new path."
    )


@contextlib.contextmanager
def _quiet():
    """transformers without its notes on pooler weights and on torch's internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import transformers

        before = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        try:
            yield transformers
        finally:
            transformers.logging.set_verbosity(before)


def _load(name: str, what: str, loader):
    if os.path.isdir(name):
        _check_folder(name)
    elif os.path.exists(name) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise PersonaAgentsError(
            f"--bert-model {name}: there is no such folder. Give the folder that holds BERT's "
            "config.json, vocab.txt and weights, a hub name, or `none`."
        )
    with _quiet() as transformers:
        try:
            return loader(transformers, local_files_only=True)
        except Exception as error:
            if os.path.isdir(name):
                raise PersonaAgentsError(
                    f"--bert-model {name}: the {what} in this folder cannot be loaded: {error}"
                ) from error
        _check_hub(name)
        try:
            return loader(transformers)
        except Exception as error:
            raise PersonaAgentsError(
                f"--bert-model {name}: the hub gives no {what} under this name: {error}"
            ) from error


def _check_folder(folder: str) -> None:
    path = os.path.join(folder, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            kind = json.load(file).get("model_type")
    except FileNotFoundError:
        kind, reason = None, "it has no config.json"
    except (OSError, ValueError, AttributeError) as error:
        kind, reason = None, f"its config.json cannot be read ({error})"
    else:
        reason = f"its config.json describes a model of type {kind!r}"
    if kind != "bert":
        raise PersonaAgentsError(
            f"--bert-model {folder}: this folder holds no BERT: {reason}. Give a folder saved from a "
            "BertModel, a hub name such as bert-base-uncased, or `none`."
        )


def _check_hub(name: str) -> None:
    import requests

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    offline = os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")
    reason = "HF_HUB_OFFLINE is set" if offline else None
    if not offline:
        try:
            requests.head(endpoint, timeout=HUB_TIMEOUT)
        except requests.RequestException as error:
            reason = f"{endpoint} cannot be reached ({type(error).__name__})"
    if reason:
        raise PersonaAgentsError(
            f"BERT model {name!r} is not on this machine and cannot be downloaded: {reason}. Give "
            "--bert-model the folder of a BERT that you have, or --bert-model none for a small "
            "model without BERT."
        )
