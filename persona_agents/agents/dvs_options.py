"""The options of ``-m persona_agents:dvs2s``."""

from __future__ import annotations

from persona_agents.errors import PersonaAgentsError

WORD_TOKENIZERS = ("re", "split", "space", "nltk")
OTHER_RECIPES = ("pretrained_lr", "warmup_ratio")


def add_cmdline_args(parser):
    """The group of options, and the defaults of ParlAI's."""
    group = parser.add_argument_group("DVS2S")
    group.add_argument(
        "--dvs",
        choices=("joint", "separate", "none"),
        default="joint",
        help="Choose a vocabulary T for each input and learn that jointly with the reply; with the "
        "two losses not joined; or none: the same network on the full vocabulary.",
    )
    group.add_argument(
        "--dvs-top-k",
        type=int,
        default=1000,
        help="T is the function words and the K most probable content words.",
    )
    group.add_argument(
        "--dvs-threshold",
        type=float,
        default=None,
        help="T is the function words and the content words of at least this probability, in place "
        "of the top K.",
    )
    group.add_argument(
        "--dvs-samples",
        type=int,
        default=5,
        help="Vocabularies that joint training samples for each input (S).",
    )
    group.add_argument(
        "--dvs-kappa",
        type=float,
        default=5.0,
        help="What a gold word outside T costs the reward, in nats; above 0.",
    )
    group.add_argument(
        "--dvs-length-norm",
        type="bool",
        default=True,
        help="Divide the reward by the reply's length in the gradient of the choice of T and in "
        "its baseline. False is the exact gradient, with more variance.",
    )
    group.add_argument(
        "--dvs-pretrain-epochs",
        type=float,
        default=5,
        help="Epochs on the full vocabulary and the predictor's cross-entropy before joint "
        "training.",
    )
    group.add_argument(
        "--dvs-negatives",
        type=int,
        default=0,
        help="Take so many absent words, drawn by frequency, into the predictor's cross-entropy in "
        "place of all; its probabilities are then no longer calibrated. 0: all.",
    )
    group.add_argument("--embedding-size", type=int, default=620, help="Size of word embeddings.")
    group.add_argument(
        "--hidden-size", type=int, default=1024, help="Size of the GRUs, for each direction."
    )
    # known only to be refused with a reason
    group.add_argument("--bert-model", default=None, hidden=True, help="Not for this agent.")
    parser.set_defaults(
        optimizer="adadelta", learningrate=1.0, weight_decay=0.0, lr_scheduler="none"
    )
    if any(action.dest == "num_epochs" for action in parser._actions):
        parser.set_defaults(batchsize=64)
    return parser


def check(opt) -> None:
    """Raise PersonaAgentsError for the first option that makes no sense for DVS2S."""
    if opt.get("bert_model") is not None:
        _refuse(
            "bert_model",
            f"{opt['bert_model']}: dvs2s works on words and reads no BERT; leave the option out.",
        )
    for name in OTHER_RECIPES:
        if name in (opt.get("override") or {}):
            _refuse(name, "dvs2s has one learning rate without warm-up; leave the option out.")
    if opt.get("lr_scheduler", "none") != "none":
        _refuse(
            "lr_scheduler",
            f"{opt['lr_scheduler']}: dvs2s sets its learning rate by the validation perplexity; "
            "leave the option out.",
        )
    if opt.get("dict_tokenizer", "re") not in WORD_TOKENIZERS:
        _refuse(
            "dict_tokenizer",
            f"{opt['dict_tokenizer']}: dvs2s works on words: {', '.join(WORD_TOKENIZERS)}.",
        )
    if not opt.get("dvs_kappa", 5.0) > 0:
        _refuse(
            "dvs_kappa",
            f"{opt['dvs_kappa']}: must be above 0, else the predictor learns to leave T empty.",
        )
    limits = {"samples": 1, "top_k": 0, "pretrain_epochs": 0, "negatives": 0}
    limits = {f"dvs_{name}": limit for name, limit in limits.items()}
    for name, limit in {**limits, "embedding_size": 1, "hidden_size": 1}.items():
        if opt.get(name, limit) < limit:
            _refuse(name, f"{opt[name]}: must be at least {limit}.")
    threshold = opt.get("dvs_threshold")
    if threshold is not None and not 0 <= threshold <= 1:
        _refuse("dvs_threshold", f"{threshold}: a probability is between 0 and 1.")


def _refuse(name: str, why: str) -> None:
    raise PersonaAgentsError(f"--{name.replace('_', '-')} {why}")
