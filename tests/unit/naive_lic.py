"""
The multi-input Transformer one sample at a time, in plain numpy: loops over heads and positions,
no batch, no padding, no cache. Written from the paper's text (Golovanov et al., 2019) and from the
definitions of GPT and GPT-2; it shares nothing with the model it is compared with.

Weights are a dict of arrays under the names of transformers' GPT-2, or of its OpenAI GPT.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Form of the network: "gpt2" normalises before its sub-layers, "openai-gpt" after them."""

    kind: str
    layers: int
    heads: int
    eps: float = 1e-5


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def normalise(weights, name, shape, x):
    mean = x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + shape.eps)
    return (x - mean) / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def affine(weights, name, x):
    return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x):
    """The tanh form that both GPTs were trained with."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(weights, block, shape, x, source, visible):
    """x (T, d) looks at source (S, d), position i only at those j with visible(i, j)."""
    d = x.shape[1]
    size = d // shape.heads
    queries = affine(weights, f"{block}.attn.c_attn", x)[:, :d]
    keys = affine(weights, f"{block}.attn.c_attn", source)[:, d : 2 * d]
    values = affine(weights, f"{block}.attn.c_attn", source)[:, 2 * d :]
    read = np.zeros_like(x)
    for head in range(shape.heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            seen = [j for j in range(len(source)) if visible(i, j)]
            scores = np.array([queries[i, part] @ keys[j, part] / np.sqrt(size) for j in seen])
            for j, probability in zip(seen, softmax(scores)):
                read[i, part] += probability * values[j, part]
    return affine(weights, f"{block}.attn.c_proj", read)


def run(weights, shape, ids, sources=(), causal=True):
    """Last states (T, d) of a sequence; in each layer the mean over itself and the sources."""
    first = shape.kind == "gpt2"
    words, places = ("wte", "wpe") if first else ("tokens_embed", "positions_embed")
    x = np.array([weights[f"{words}.weight"][w] for w in ids])
    x = x + weights[f"{places}.weight"][: len(ids)]
    for layer in range(shape.layers):
        block = f"h.{layer}"

        def attended(x, block=block):
            results = [attention(weights, block, shape, x, x, lambda i, j: j <= i or not causal)]
            results += [
                attention(weights, block, shape, x, source, lambda i, j: True) for source in sources
            ]
            return sum(results) / len(results)

        def transformed(x, block=block):
            return affine(
                weights, f"{block}.mlp.c_proj", gelu(affine(weights, f"{block}.mlp.c_fc", x))
            )

        if first:
            x = x + attended(normalise(weights, f"{block}.ln_1", shape, x))
            x = x + transformed(normalise(weights, f"{block}.ln_2", shape, x))
        else:
            x = normalise(weights, f"{block}.ln_1", shape, x + attended(x))
            x = normalise(weights, f"{block}.ln_2", shape, x + transformed(x))
    return normalise(weights, "ln_f", shape, x) if first else x


def scores(weights, shape, hidden):
    """log p (T, V), the output matrix being the word embeddings."""
    words = weights["wte.weight" if shape.kind == "gpt2" else "tokens_embed.weight"]
    return np.array([np.log(softmax(words @ h)) for h in hidden])


def lic(weights, shape, persona, query, reply):
    """
    log p (T, V) of the words after each position of the reply.

    :param persona: ids of the persona source, () if there is none; ``query`` likewise.
    :param reply: ids of the decoder's input, its start token first.
    """
    sources = [run(weights, shape, ids, causal=False) for ids in (persona, query) if ids]
    return scores(weights, shape, run(weights, shape, reply, sources))


def source_losses(weights, shape, ids, special):
    """-log p of each word of a source after those before it; special tokens are not asked for."""
    if not ids:
        return []
    log_p = scores(weights, shape, run(weights, shape, ids))
    return [-log_p[i, ids[i + 1]] for i in range(len(ids) - 1) if ids[i + 1] not in special]
