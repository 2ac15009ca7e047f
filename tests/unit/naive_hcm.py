"""HCM written down once more, naively, to hold the real model against.

One sample at a time, numpy float64, plain softmax, one-hot matrices, no padding, no masks, no
logarithms: meant to be read beside equations (1)-(16) of the paper. Nothing here is imported from,
or modelled on, `persona_agents.models`.

S is the number of tokens of one source (persona or query), T of the decoder input, d the hidden
size, V the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

# Where each group of weights is found in the state dict. `{}` is the layer's number; `bert.` is
# the default of the `prefix` argument below, the rest of that name is Hugging Face's BertModel.
NAMES = {
    "embeddings": "embeddings",
    "encoder_layer": "encoder.layer.{}",
    "self_attention": "layers.{}.self_attention",
    "self_attention_norm": "layers.{}.self_attention_norm",
    "query_attention": "layers.{}.query_attention",
    "query_attention_norm": "layers.{}.query_attention_norm",
    "persona_attention": "layers.{}.persona_attention",
    "persona_attention_norm": "layers.{}.persona_attention_norm",
    "attention_parts": ("query", "key", "value", "out"),
    "ffn_in": "layers.{}.ffn_in",
    "ffn_out": "layers.{}.ffn_out",
    "ffn_norm": "layers.{}.ffn_norm",
    "W_A": "generator.weight",  # (V, d)
    "b_A": "generator.bias",  # (V,)
    "W_B": "copy.gate.weight",  # (1, 4d)
    "b_B": "copy.gate.bias",  # (1,)
    "W_C": "copy.source.weight",  # (d, d), used as C W_C e: not transposed
}


@dataclass(frozen=True)
class Config:
    """Sizes of a model and the ids of its special tokens."""

    vocab: int = 37
    hidden: int = 16
    heads: int = 4
    ffn: int = 24
    encoder_layers: int = 2
    decoder_layers: int = 2
    positions: int = 48
    eps: float = 1e-2  # far from the usual 1e-12, so that it shows
    copy: str = "hierarchical"
    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3

    @property
    def first_word(self):
        """The lowest id that is an ordinary word."""
        return max(self.pad, self.unk, self.cls, self.sep) + 1


@dataclass(frozen=True)
class Sample:
    """Token ids: persona and query (S,) without [CLS] and [SEP], decoder_input [CLS] g_1 … g_m.

    A query of several turns holds [SEP] between them.
    """

    persona: tuple
    query: tuple
    decoder_input: tuple


@dataclass(frozen=True)
class Output:
    """What the paper's equations give at each of the T steps."""

    p_response: np.ndarray  # (T, V) eq. 16
    p_decode: np.ndarray  # (T, V) eq. 9
    p_query: np.ndarray  # (T, V) eq. 10, all 0 without a query
    p_persona: np.ndarray  # (T, V) eq. 11, all 0 without a persona
    p_gen: np.ndarray  # (T,) eq. 14
    beta: np.ndarray  # (T,) eq. 15, the query's share
    gamma: np.ndarray  # (T,) eq. 15, the persona's share
    a_q: np.ndarray  # (T, S_q) eq. 6, last layer, mean over heads; S_q counts no special tokens
    a_p: np.ndarray  # (T, S_p) eq. 7
    h: np.ndarray  # (T, d) eq. 8, last layer


# ----------------------------------------------------------------------------- building blocks


def softmax(scores):
    """(..., N) to (..., N)."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1.0 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2.0)))


def linear(weights, name, x):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def layer_norm(weights, name, x, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    return scaled * weights[name + ".weight"] + weights[name + ".bias"]


def attend(q, k, v, heads):
    """Heads of projected q (T, d) on k, v (S, d): context (T, d) and the heads' mean map (T, S)."""
    size = q.shape[1] // heads
    contexts, maps = [], []
    for head in range(heads):
        cut = slice(head * size, (head + 1) * size)
        attention = softmax(q[:, cut] @ k[:, cut].T / math.sqrt(size))  # (T, S)
        contexts.append(attention @ v[:, cut])
        maps.append(attention)
    return np.concatenate(contexts, axis=1), sum(maps) / heads


def decoder_attention(weights, name, x, memory, heads):
    """MHA of eqs. 5-7 with its output projection: (T, d), (S, d) to (T, d) and (T, S)."""
    query, key, value, out = (f"{name}.{part}" for part in NAMES["attention_parts"])
    context, attention = attend(
        linear(weights, query, x),
        linear(weights, key, memory),
        linear(weights, value, memory),
        heads,
    )
    return linear(weights, out, context), attention


# ---------------------------------------------------------------------------- embeddings, BERT


def embed(weights, config, ids, segments, prefix="bert."):
    """Eq. 1 and BERT's LayerNorm: ids (N,) and segments (N,) to (N, d), positions from 0."""
    name = prefix + NAMES["embeddings"]
    word = np.eye(config.vocab)[list(ids)] @ weights[f"{name}.word_embeddings.weight"]
    position = weights[f"{name}.position_embeddings.weight"][: len(ids)]
    segment = weights[f"{name}.token_type_embeddings.weight"][list(segments)]
    return layer_norm(weights, f"{name}.LayerNorm", word + position + segment, config.eps)


def encode(weights, config, ids, segments, prefix="bert."):
    """Eq. 3: BERT's layers over all (N,) input tokens, to (N, d)."""
    h = embed(weights, config, ids, segments, prefix)
    for number in range(config.encoder_layers):
        layer = prefix + NAMES["encoder_layer"].format(number)
        attention = f"{layer}.attention.self."
        q, k, v = (linear(weights, attention + part, h) for part in ("query", "key", "value"))
        context, _ = attend(q, k, v, config.heads)
        context = linear(weights, f"{layer}.attention.output.dense", context)
        h = layer_norm(weights, f"{layer}.attention.output.LayerNorm", h + context, config.eps)
        inner = gelu(linear(weights, f"{layer}.intermediate.dense", h))
        inner = linear(weights, f"{layer}.output.dense", inner)
        h = layer_norm(weights, f"{layer}.output.LayerNorm", h + inner, config.eps)
    return h


def source_tokens(config, sample):
    """Eq. 2: ids, segments (N,) and, for each token, 'persona', 'query' or None (special)."""
    cls, sep = config.cls, config.sep
    ids = [cls, *sample.persona, sep, cls, *sample.query, sep]
    n_persona = len(sample.persona) + 2
    segments = [0] * n_persona + [1] * (len(sample.query) + 2)
    parts = ["persona"] * n_persona + ["query"] * (len(sample.query) + 2)
    special = (config.pad, cls, sep)
    return ids, segments, [None if i in special else part for i, part in zip(ids, parts)]


# ------------------------------------------------------------------------------------- decoder


def decode(weights, config, e, H_q, H_p):
    """Eqs. 5-8: e (T, d), H_q (S_q, d), H_p (S_p, d) to h (T, d) and the last layer's a_q, a_p."""
    h = e
    for number in range(config.decoder_layers):

        def name(part, number=number):
            return NAMES[part].format(number)

        # Eq. 5: step t sees steps 0 … t only.
        rows = [
            decoder_attention(
                weights, name("self_attention"), h[t : t + 1], h[: t + 1], config.heads
            )[0]
            for t in range(len(h))
        ]
        h = layer_norm(weights, name("self_attention_norm"), h + np.concatenate(rows), config.eps)
        # Eqs. 6 and 7; a source without tokens leaves h as it is.
        maps = []
        for part, memory in (("query_attention", H_q), ("persona_attention", H_p)):
            if len(memory) == 0:
                maps.append(np.zeros((len(h), 0)))
                continue
            context, attention = decoder_attention(weights, name(part), h, memory, config.heads)
            h = layer_norm(weights, name(part + "_norm"), h + context, config.eps)
            maps.append(attention)
        # Eq. 8
        inner = linear(weights, name("ffn_out"), gelu(linear(weights, name("ffn_in"), h)))
        h = layer_norm(weights, name("ffn_norm"), h + inner, config.eps)
    a_q, a_p = maps
    return h, a_q, a_p


def copy_distribution(config, attention, ids):
    """Eqs. 10 and 11: a (T, S) over tokens ids (S,) to (T, V); None where nothing can be copied.

    [UNK] has an all-zero row in the one-hot matrix, and what is left is scaled back to sum to 1.
    """
    one_hot = np.zeros((len(ids), config.vocab))
    for position, word in enumerate(ids):
        if word != config.unk:
            one_hot[position, word] = 1.0
    if one_hot.sum() == 0:
        return None
    mass = attention @ one_hot  # (T, V)
    return mass / mass.sum(axis=1, keepdims=True)


def hcm(weights, config, sample, prefix="bert."):
    """The whole model for one sample: weights {name: array}, ids to an `Output`."""
    weights = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    ids, segments, parts = source_tokens(config, sample)
    H = encode(weights, config, ids, segments, prefix)
    at_query = [n for n, part in enumerate(parts) if part == "query"]
    at_persona = [n for n, part in enumerate(parts) if part == "persona"]
    H_q, H_p = H[at_query], H[at_persona]
    e = embed(weights, config, sample.decoder_input, [0] * len(sample.decoder_input), prefix)
    h, a_q, a_p = decode(weights, config, e, H_q, H_p)

    p_decode = softmax(h @ weights[NAMES["W_A"]].T + weights[NAMES["b_A"]])  # eq. 9
    p_query = copy_distribution(config, a_q, [ids[n] for n in at_query])
    p_persona = copy_distribution(config, a_p, [ids[n] for n in at_persona])

    steps = len(e)
    p_gen, beta, gamma = np.ones(steps), np.zeros(steps), np.zeros(steps)
    C_query = a_q @ H_q if at_query else np.zeros_like(h)  # eq. 12
    C_persona = a_p @ H_p if at_persona else np.zeros_like(h)  # eq. 13
    for t in range(steps):
        if config.copy == "none" or (p_query is None and p_persona is None):
            continue
        features = np.concatenate([C_query[t], C_persona[t], h[t], e[t]])
        p_gen[t] = sigmoid(weights[NAMES["W_B"]][0] @ features + weights[NAMES["b_B"]][0])  # eq. 14
        if p_persona is None:
            beta[t] = 1.0
        elif p_query is None:
            gamma[t] = 1.0
        elif config.copy == "flat":
            beta[t] = gamma[t] = 0.5
        else:
            C = np.stack([C_query[t], C_persona[t]])  # (2, d)
            beta[t], gamma[t] = softmax(C @ weights[NAMES["W_C"]] @ e[t])  # eq. 15

    nothing = np.zeros_like(p_decode)
    p_query = nothing if p_query is None else p_query
    p_persona = nothing if p_persona is None else p_persona
    p_response = np.zeros_like(p_decode)
    for t in range(steps):  # eq. 16
        p_response[t] = (
            p_gen[t] * p_decode[t]
            + beta[t] * (1 - p_gen[t]) * p_query[t]
            + gamma[t] * (1 - p_gen[t]) * p_persona[t]
        )
    return Output(p_response, p_decode, p_query, p_persona, p_gen, beta, gamma, a_q, a_p, h)


def targets(config, sample):
    """g_1 … g_m [SEP] for the decoder input [CLS] g_1 … g_m."""
    return (*sample.decoder_input[1:], config.sep)


def cross_entropy(weights, config, sample, prefix="bert."):
    """-log p of each target word: (T,)."""
    p = hcm(weights, config, sample, prefix).p_response
    return np.array([-math.log(p[t, word]) for t, word in enumerate(targets(config, sample))])


# ------------------------------------------------------------------- random weights and samples


def weight_shapes(config, prefix="bert."):
    """{name: shape} of every weight that the equations use (all three kinds of copying)."""
    d, ffn, vocab = config.hidden, config.ffn, config.vocab
    shapes = {}

    def add_linear(name, rows, columns):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, columns), (rows,)

    def add_norm(name):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (d,), (d,)

    embeddings = prefix + NAMES["embeddings"]
    shapes[f"{embeddings}.word_embeddings.weight"] = (vocab, d)
    shapes[f"{embeddings}.position_embeddings.weight"] = (config.positions, d)
    shapes[f"{embeddings}.token_type_embeddings.weight"] = (2, d)
    add_norm(f"{embeddings}.LayerNorm")
    for number in range(config.encoder_layers):
        layer = prefix + NAMES["encoder_layer"].format(number)
        for part in ("query", "key", "value"):
            add_linear(f"{layer}.attention.self.{part}", d, d)
        add_linear(f"{layer}.attention.output.dense", d, d)
        add_norm(f"{layer}.attention.output.LayerNorm")
        add_linear(f"{layer}.intermediate.dense", ffn, d)
        add_linear(f"{layer}.output.dense", d, ffn)
        add_norm(f"{layer}.output.LayerNorm")
    for number in range(config.decoder_layers):
        for kind in ("self_attention", "query_attention", "persona_attention"):
            for part in NAMES["attention_parts"]:
                add_linear(f"{NAMES[kind].format(number)}.{part}", d, d)
            add_norm(NAMES[kind + "_norm"].format(number))
        add_linear(NAMES["ffn_in"].format(number), ffn, d)
        add_linear(NAMES["ffn_out"].format(number), d, ffn)
        add_norm(NAMES["ffn_norm"].format(number))
    shapes[NAMES["W_A"]], shapes[NAMES["b_A"]] = (vocab, d), (vocab,)
    if config.copy != "none":
        shapes[NAMES["W_B"]], shapes[NAMES["b_B"]] = (1, 4 * d), (1,)
    if config.copy == "hierarchical":
        shapes[NAMES["W_C"]] = (d, d)
    return shapes


def random_weights(config, seed, prefix="bert."):
    """{name: float64 array}: sharp attention, little mixing, so that no step resembles another."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config, prefix).items():
        draw = rng.normal(size=shape)
        if len(shape) == 1:
            centre = 1.0 if name.lower().endswith("norm.weight") else 0.0
            weights[name] = centre + 0.2 * draw
        elif "_embeddings." in name:
            weights[name] = draw
        else:
            sharp = name.endswith(("query.weight", "key.weight")) or name == NAMES["W_A"]
            weights[name] = (1.5 if sharp else 0.6) * draw / math.sqrt(shape[1])
    return weights


def random_sample(config, seed, n_persona=6, n_query=4, n_response=5):
    """A sample of these lengths (words only); some words stand in both sources and in the reply."""
    rng = np.random.default_rng(seed)

    def words(n):
        return rng.integers(config.first_word, config.vocab, size=n).tolist()

    persona, query, response = words(n_persona), words(n_query), words(n_response)
    shared = int(rng.integers(config.first_word, config.vocab))
    # The same word twice in the persona, once at the query's end, and asked for in the reply.
    for ids, places in ((persona, (0, n_persona // 2)), (query, (-1,)), (response, (0,))):
        for place in places:
            if ids:
                ids[place] = shared
    return Sample(tuple(persona), tuple(query), (config.cls, *response))


def ragged_samples(config, seed=0):
    """{what is special about it: sample}, all of different lengths."""
    unk, sep = config.unk, config.sep

    def draw(number, *lengths):
        return random_sample(config, 100 * seed + number, *lengths)

    plain = draw(0, 6, 4, 5)
    unknown = draw(1, 7, 5, 6)
    turns = draw(2, 5, 6, 3)
    unknown_persona, unknown_query = draw(3, 2, 5, 4), draw(4, 4, 3, 2)
    return {
        "plain": plain,
        "unknown words": replace(
            unknown,
            persona=(unk, *unknown.persona[1:-1], unk),
            query=(unknown.query[0], unk, *unknown.query[2:]),
            decoder_input=(*unknown.decoder_input, unk),
        ),
        "several turns": replace(turns, query=(*turns.query[:3], sep, *turns.query[3:])),
        "empty persona": draw(5, 0, 7, 4),
        "empty query": draw(6, 9, 0, 6),
        "both empty": draw(7, 0, 0, 3),
        "persona all unknown": replace(unknown_persona, persona=(unk, unk)),
        "query all unknown": replace(unknown_query, query=(unk, unk, unk)),
        "all unknown": replace(draw(8, 2, 1, 3), persona=(unk, unk), query=(unk,)),
        "one word each": draw(9, 1, 1, 1),
        "empty reply": draw(10, 3, 2, 0),
        "long": draw(11, 20, 13, 12),
    }
