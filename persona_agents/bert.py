"""Which BERT: ``--bert-model auto|NAME|PATH|none``, and what is loaded from it."""

from __future__ import annotations

from persona_agents.pretrained import HUB_TIMEOUT, Family, quiet  # noqa: F401

BERT = Family(
    name="BERT",
    option="bert_model",
    by_language={"zh": "bert-base-chinese", "en": "bert-base-uncased"},
    model_types=("bert",),
    files="config.json, vocab.txt",
    sizes={
        "embedding_size": 256,
        "n_heads": 4,
        "ffn_size": 1024,
        "n_encoder_layers": 3,
        "n_decoder_layers": 3,  # the decoder's, which is not BERT's
    },
    config_keys={
        "embedding_size": "hidden_size",
        "n_heads": "num_attention_heads",
        "ffn_size": "intermediate_size",
        "n_encoder_layers": "num_hidden_layers",
    },
)
SMALL = BERT.sizes
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
is_none, resolve, size = BERT.is_none, BERT.resolve, BERT.size
check_options, check_sizes_kept = BERT.check_options, BERT.check_sizes_kept
reject_vocabulary = BERT.reject_vocabulary


def add_cmdline_args(parser) -> None:
    """Options of every agent that reads BERT or its vocabulary."""
    group = parser.add_argument_group("BERT")
    group.add_argument(
        "--bert-model",
        default="auto",
        help="BERT that gives the vocabulary and, to agents that are built on BERT, sizes and "
        "weights: a hub name, a folder, `auto` (bert-base-chinese or bert-base-uncased by the "
        "task's language) or `none` (a vocabulary built from the training data, nothing "
        "pretrained).",
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
    return BERT.load(
        name, "configuration", lambda library, **kw: library.BertConfig.from_pretrained(name, **kw)
    )


def load_tokenizer(name: str):
    """Tokenizer of a BERT on disk or on the hub."""
    return BERT.load(
        name,
        "vocabulary",
        lambda library, **kw: library.BertTokenizerFast.from_pretrained(name, **kw),
    )


def load_weights(name: str, config):
    """``BertModel`` without pooler, with its pretrained weights."""
    return BERT.load(
        name,
        "weights",
        lambda library, **kw: library.BertModel.from_pretrained(
            name, config=config, add_pooling_layer=False, **kw
        ),
    )


def build(config):
    """``BertModel`` with random weights; no pooler, since unused parameters break DDP."""
    with quiet() as transformers:
        return transformers.BertModel(config, add_pooling_layer=False)


def describe(config) -> dict:
    """What a saved model needs to know of BERT's configuration; plain data."""
    return {key: getattr(config, key) for key in _DESCRIPTION}


def from_description(description: dict):
    """The configuration that :func:`describe` was given."""
    with quiet() as transformers:
        return transformers.BertConfig(**description)


def encoder_decoder(config, n_decoder_layers: int, name: str | None):
    """
    ``EncoderDecoderModel`` of two BERTs.

    :param config: the encoder's; the decoder differs in its layers and attends to the encoder.
    :param name: the BERT that both start from; None for random weights.
    :return: the model, and parts of parameters' names that tell which ones no BERT gave.
    """
    decoder_config = type(config)(
        **{
            **config.to_dict(),
            "is_decoder": True,
            "add_cross_attention": True,
            "num_hidden_layers": n_decoder_layers,
        }
    )
    if name is None:
        new_parts = [""]  # in every name
        with quiet() as transformers:
            encoder, decoder = build(config), transformers.BertLMHeadModel(decoder_config)
    else:
        encoder = load_weights(name, config)
        decoder, info = BERT.load(
            name,
            "weights",
            lambda library, **kw: library.BertLMHeadModel.from_pretrained(
                name, config=decoder_config, output_loading_info=True, **kw
            ),
        )
        common = ("crossattention", "cls.predictions")  # what a BERT may come without
        new_parts = sorted(
            {next((part for part in common if part in key), key) for key in info["missing_keys"]}
        )
    with quiet() as transformers:
        pair_config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
            encoder.config, decoder.config
        )
        return transformers.EncoderDecoderModel(pair_config, encoder, decoder), new_parts
