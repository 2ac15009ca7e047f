"""PGN written down once more, naively, to hold the real model against.

One sample at a time, numpy float64, one step at a time, plain softmax and one-hot matrices, no
padding, no masks, no logarithms: meant to be read beside the equations of See et al. (2017), with
the general attention score of Luong et al. (2015) for their additive one. Nothing here is imported
from, or modelled on, `persona_agents.models`.

S is the number of input tokens, special ones included, T of the decoder input, E the embedding
size, D the hidden size, V the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from naive_hcm import copy_distribution, ragged_samples, sigmoid, softmax, source_tokens, targets

__all__ = ["Config", "cross_entropy", "pgn", "ragged_samples", "random_weights", "targets"]


@dataclass(frozen=True)
class Config:
    """Sizes of a model and the ids of its special tokens."""

    vocab: int = 37
    embedding: int = 12
    hidden: int = 10
    layers: int = 2
    coverage: bool = False
    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    first_word: int = 4


@dataclass(frozen=True)
class Output:
    """What the equations give at each of the T steps."""

    p: np.ndarray  # (T, V) eq. 9
    p_vocab: np.ndarray  # (T, V) eqs. 4 and 5
    p_gen: np.ndarray  # (T,) eq. 8
    attention: np.ndarray  # (T, S) eq. 2
    coverage: np.ndarray  # (T, S) eq. 10
    coverage_loss: np.ndarray  # (T,) eq. 12


def lstm_step(weights, name, layers, x, state):
    """One step of a stacked LSTM: x and [(h, c), …] of each layer to the same, after the step."""
    after = []
    for layer, (h, c) in zip(range(layers), state):
        gates = (
            weights[f"{name}.weight_ih_l{layer}"] @ x
            + weights[f"{name}.bias_ih_l{layer}"]
            + weights[f"{name}.weight_hh_l{layer}"] @ h
            + weights[f"{name}.bias_hh_l{layer}"]
        )
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        after.append((h, c))
        x = h
    return x, after


def pgn(weights, config, sample):
    """The whole model for one sample: weights {name: array}, ids to an `Output`."""
    weights = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    ids, _, parts = source_tokens(config, sample)
    state = [(np.zeros(config.hidden), np.zeros(config.hidden))] * config.layers
    h = []
    for word in ids:
        x = weights["source_embeddings.weight"][word]
        top, state = lstm_step(weights, "encoder_lstm", config.layers, x, state)
        h.append(top)
    h = np.stack(h)  # (S, D)

    words = [n for n, part in enumerate(parts) if part]  # no special tokens
    coverage = np.zeros(len(ids))
    steps = []
    for word in sample.decoder_input:
        x = weights["target_embeddings.weight"][word]
        s, state = lstm_step(weights, "decoder_lstm", config.layers, x, state)
        features = h
        if config.coverage:  # eq. 11: one more term beside each h_i
            features = h + np.outer(coverage, weights["coverage"])
        a = softmax(features @ weights["attention.weight"] @ s)  # eqs. 1 and 2
        context = a @ h  # eq. 3
        combined = np.tanh(weights["combine.weight"] @ np.concatenate([s, context]))
        if config.hidden != config.embedding:
            combined = weights["to_embedding.weight"] @ combined + weights["to_embedding.bias"]
        scores = weights["generator.weight"] @ combined + weights["generator.bias"]
        scores[config.pad] = -np.inf
        p_vocab = softmax(scores)  # eqs. 4 and 5
        features = np.concatenate([context, s, x])
        p_gen = sigmoid(weights["pointer.weight"][0] @ features + weights["pointer.bias"][0])  # 8
        copied = None
        if words:
            copied = copy_distribution(config, a[None, words], [ids[n] for n in words])
        if copied is None:
            p_gen, copied = 1.0, np.zeros((1, config.vocab))
        p = p_gen * p_vocab + (1 - p_gen) * copied[0]  # eq. 9
        steps.append((p, p_vocab, p_gen, a, coverage, np.minimum(a, coverage).sum()))
        if config.coverage:
            coverage = coverage + a  # eq. 10
    return Output(*(np.stack(values) for values in zip(*steps)))


def cross_entropy(weights, config, sample):
    """-log p of each target word: (T,)."""
    p = pgn(weights, config, sample).p
    return np.array([-math.log(p[t, word]) for t, word in enumerate(targets(config, sample))])


def weight_shapes(config):
    """{name: shape} of every weight that the equations use."""
    d, e, vocab = config.hidden, config.embedding, config.vocab
    shapes = {
        "source_embeddings.weight": (vocab, e),
        "target_embeddings.weight": (vocab, e),
        "attention.weight": (d, d),  # used as h_i W s_t
        "combine.weight": (d, 2 * d),
        "generator.weight": (vocab, e),
        "generator.bias": (vocab,),
        "pointer.weight": (1, 2 * d + e),
        "pointer.bias": (1,),
    }
    if d != e:
        shapes.update({"to_embedding.weight": (e, d), "to_embedding.bias": (e,)})
    if config.coverage:
        shapes["coverage"] = (d,)
    for name in ("encoder_lstm", "decoder_lstm"):
        for layer in range(config.layers):
            shapes[f"{name}.weight_ih_l{layer}"] = (4 * d, d if layer else e)
            shapes[f"{name}.weight_hh_l{layer}"] = (4 * d, d)
            shapes[f"{name}.bias_ih_l{layer}"] = shapes[f"{name}.bias_hh_l{layer}"] = (4 * d,)
    return shapes


def random_weights(config, seed):
    """{name: float64 array}: sharp attention, so that no step resembles another."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        draw = rng.normal(size=shape)
        if len(shape) == 1:
            weights[name] = 0.5 * draw
        elif "embeddings" in name:
            weights[name] = draw
        else:
            sharp = name in ("attention.weight", "generator.weight")
            weights[name] = (4.0 if sharp else 1.5) * draw / math.sqrt(shape[1])
    return weights
