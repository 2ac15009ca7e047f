"""
Which GPT: ``--gpt-model auto|NAME|PATH|none``, and what is loaded from it.

Two kinds serve: GPT-2 (the Chinese models that UER publishes have BERT's vocabulary) and the first
OpenAI GPT. Both are built as transformers' double-heads models; a system takes what it needs.
"""

from __future__ import annotations

import torch
from torch import nn

from persona_agents.errors import PersonaAgentsError
from persona_agents.pretrained import Family, quiet

GPT = Family(
    name="GPT",
    option="gpt_model",
    by_language={"zh": "uer/gpt2-chinese-cluecorpussmall", "en": "openai-gpt"},
    model_types=("gpt2", "openai-gpt"),
    files="config.json, vocabulary (vocab.txt, or vocab.json and merges.txt)",
    sizes={"embedding_size": 256, "n_heads": 4, "ffn_size": 1024, "n_decoder_layers": 3},
    config_keys={
        "embedding_size": "n_embd",
        "n_heads": "n_head",
        "ffn_size": "n_inner",
        "n_decoder_layers": "n_layer",
    },
)
N_POSITIONS = 512
_CLASSES = {
    "gpt2": ("GPT2Config", "GPT2DoubleHeadsModel"),
    "openai-gpt": ("OpenAIGPTConfig", "OpenAIGPTDoubleHeadsModel"),
}
_DESCRIPTION = (
    "model_type",
    "vocab_size",
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
    "activation_function",  # GPT-2's
    "afn",  # OpenAI GPT's
    "layer_norm_epsilon",
    "initializer_range",
)
_NEW_HEAD = "multiple_choice_head"


def add_cmdline_args(parser) -> None:
    """Options of every agent that is built on a GPT."""
    group = parser.add_argument_group("GPT")
    group.add_argument(
        "--gpt-model",
        default="auto",
        help="GPT-2 or OpenAI GPT that gives sizes, vocabulary and weights: a hub name, a folder, "
        f"`auto` ({GPT.by_language['zh']} or {GPT.by_language['en']} by the task's language) or "
        "`none` (a small GPT-2 of its own, with a vocabulary built from the training data).",
    )
    for name, what in (
        ("embedding-size", "Hidden size"),
        ("n-heads", "Attention heads"),
        ("ffn-size", "Inner size of the feed-forward layers"),
        ("n-decoder-layers", "Layers"),
    ):
        group.add_argument(
            f"--{name}",
            type=int,
            default=None,
            help=f"{what}, with --gpt-model none only (default "
            f"{GPT.sizes[name.replace('-', '_')]}).",
        )


def small_config(opt, vocab_size: int):
    """Configuration of a GPT-2 of our own, for ``--gpt-model none``."""
    with quiet() as transformers:
        return transformers.GPT2Config(
            vocab_size=vocab_size,
            n_positions=N_POSITIONS,
            n_embd=GPT.size(opt, "embedding_size"),
            n_layer=GPT.size(opt, "n_decoder_layers"),
            n_head=GPT.size(opt, "n_heads"),
            n_inner=GPT.size(opt, "ffn_size"),
            bos_token_id=None,
            eos_token_id=None,
        )


def load_config(name: str):
    """Configuration of a GPT on disk or on the hub."""
    config = GPT.load(
        name, "configuration", lambda library, **kw: library.AutoConfig.from_pretrained(name, **kw)
    )
    if config.model_type not in GPT.model_types:
        raise PersonaAgentsError(
            f"--gpt-model {name}: this is a model of type {config.model_type!r}. Give a GPT-2 or "
            "an OpenAI GPT, or `none`."
        )
    unusual = ("scale_attn_by_inverse_layer_idx", "add_cross_attention")
    if not getattr(config, "scale_attn_weights", True) or any(
        getattr(config, key, False) for key in unusual
    ):
        raise PersonaAgentsError(
            f"--gpt-model {name}: its attention is not GPT-2's own (scale_attn_weights, "
            f"{', '.join(unusual)} in its config.json). Give another GPT, or `none`."
        )
    return config


def load_weights(name: str, config) -> nn.Module:
    """The double-heads model with pretrained weights; only its choice head may be new."""
    model_class = _CLASSES[config.model_type][1]
    # The bare model is no alternative: tied embeddings may be saved under the head's name only.
    model, info = GPT.load(
        name,
        "weights",
        lambda library, **kw: getattr(library, model_class).from_pretrained(
            name, config=config, output_loading_info=True, **kw
        ),
    )
    missing = sorted(
        key for key in info["missing_keys"] if not key.startswith((_NEW_HEAD, "lm_head"))
    )
    if missing:
        raise PersonaAgentsError(
            f"--gpt-model {name}: its weights lack {len(missing)} of the parameters that its "
            f"config.json describes, {missing[0]} among them."
        )
    return model


def build(config) -> nn.Module:
    """The double-heads model with random weights."""
    with quiet() as transformers:
        return getattr(transformers, _CLASSES[config.model_type][1])(config)


def set_dropout(config, dropout: float) -> None:
    """One probability everywhere; and the choice head is transformers' standard one."""
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = dropout
    config.summary_first_dropout = dropout
    config.summary_type, config.summary_activation = "cls_index", None
    config.summary_use_proj = config.summary_proj_to_labels = True
    config.num_labels = 1


def resize(model: nn.Module, vocab_size: int) -> None:
    """
    Give a double-heads model another number of words: what is added starts at random.

    (The library's own resizing draws differently from version to version.) Input and output stay
    one matrix.
    """
    old = model.transformer.get_input_embeddings().weight
    if vocab_size != len(old):
        new = nn.Embedding(vocab_size, old.size(1))
        with torch.no_grad():
            new.weight.normal_(0.0, model.config.initializer_range)
            kept = min(vocab_size, len(old))
            new.weight[:kept] = old[:kept]
        model.transformer.set_input_embeddings(new)
    model.config.vocab_size = vocab_size


def describe(config) -> dict:
    """What a saved model needs to know of its configuration; plain data."""
    described = {key: getattr(config, key) for key in _DESCRIPTION if hasattr(config, key)}
    return {**described, "n_inner": described.get("n_inner") or 4 * config.n_embd}


def from_description(description: dict):
    """The configuration that :func:`describe` was given."""
    kind = description["model_type"]
    sizes = {key: value for key, value in description.items() if key != "model_type"}
    with quiet() as transformers:
        return getattr(transformers, _CLASSES[kind][0])(
            **sizes, bos_token_id=None, eos_token_id=None
        )
