"""BERTScore (the paper's eqs. 19 to 21), by the bert-score library."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics.base import Ratio, Reply
from persona_agents.metrics.encoder import BATCH_SIZE, Encoder, Vectors

BATCH = BATCH_SIZE


class Baseline(NamedTuple):
    """What unrelated sentences score: `values` (3,) for P, R and F, and what signatures say."""

    values: torch.Tensor
    signature: str


def packaged_baseline(language: str, model: str) -> str:
    """Path of the library's baseline file of a model, whether or not there is one."""
    import bert_score

    folder = os.path.join(os.path.dirname(bert_score.__file__), "rescale_baseline", language)
    return os.path.join(folder, f"{model}.tsv")


def choose_layer(model: str, layer: int | None) -> int:
    """``--bert-score-layer``, or the layer that the library's authors found best for the model."""
    from bert_score.utils import model2layers

    if layer is not None:
        return layer
    if model in model2layers:
        return model2layers[model]
    likely = model2layers.get(os.path.basename(model.rstrip("/")))
    hint = f" (for a copy of the published model of this name: {likely})" if likely else ""
    raise PersonaAgentsError(
        f"--bert-score-model {model}: bert-score knows no best layer for it. Choose one by "
        f"--bert-score-layer{hint}."
    )


def read_baseline(model: str, layer: int, language: str, path: str | None) -> Baseline:
    """
    The baseline of a layer, from the given file or from the library's own.

    :raises PersonaAgentsError: if there is none. The library itself would not rescale in one of
        these cases, and stop after the texts were encoded in the other.
    """
    import pandas

    given, path = path, path or packaged_baseline(language, model)
    if not os.path.isfile(path):
        if given:
            raise PersonaAgentsError(f"--bert-score-baseline {given}: there is no such file.")
        copied = packaged_baseline(language, os.path.basename(model.rstrip("/")))
        hint = f" If it is a copy of the published model, FILE is {copied}."
        raise PersonaAgentsError(
            f"--bert-score-model {model}: bert-score has no baseline for it to rescale scores with. "
            "Name one by --bert-score-baseline FILE, or take the raw scores with "
            "--bert-score-rescale false." + (hint if os.path.isfile(copied) else "")
        )
    try:
        table = pandas.read_csv(path).set_index("LAYER")[["P", "R", "F"]]
        values = torch.tensor(table.loc[layer].to_numpy(dtype="float32"))
    except KeyError as error:
        raise PersonaAgentsError(
            f"{path}: {error.args[0]} is not there. A baseline file has the columns "
            f"LAYER,P,R,F and here needs a line for layer {layer}."
        ) from None
    except (OSError, UnicodeError, ValueError) as error:
        raise PersonaAgentsError(f"{path} cannot be read as a baseline file: {error}") from error
    if values.shape != (3,) or not bool((values < 1).all()):
        raise PersonaAgentsError(
            f"{path}: layer {layer} has no single P, R and F below 1 to rescale with."
        )
    if not given:
        return Baseline(values, "library")
    with open(path, "rb") as file:
        return Baseline(values, "sha256-" + hashlib.sha256(file.read()).hexdigest()[:8])


class BertScore(Ratio):
    """
    Precision, recall and F1 of greedily matched word-piece vectors, averaged over replies.

    Of several references the best score counts, as in the library. An empty reply has the raw
    scores 0, which rescaling moves below 0, as it does for every score below the baseline.

    :param encoder: the model
    :param layer: whose vectors are compared
    :param baseline: to rescale with, None for raw scores
    """

    key = "bert_score"
    outputs = ("bert_score_p", "bert_score_r", "bert_score_f")

    def __init__(self, encoder: Encoder, layer: int, baseline: Baseline | None):
        if not 0 <= layer <= encoder.n_layers:
            raise PersonaAgentsError(
                f"--bert-score-layer {layer}: {encoder.name} has layers 0 (its embeddings) to "
                f"{encoder.n_layers}."
            )
        self.encoder, self.layer, self.baseline = encoder, layer, baseline
        encoder.keep_layer(layer)

    @property
    def signature(self) -> str:
        from bert_score import __version__

        rescaled = f"baseline:{self.baseline.signature}" if self.baseline else "no"
        return (
            f"model:{self.encoder.signature}|layer:{self.layer}|idf:no|rescaled:{rescaled}"
            f"|average:reply|bert-score:{__version__}"
        )

    def applies(self, reply: Reply) -> bool:
        return bool(reply.references)

    def statistics(self, replies: Sequence[Reply]) -> list:
        pairs = [(reply.text, reference) for reply in replies for reference in reply.references]
        self.encoder.keep_layer(self.layer)
        vectors = self.encoder.embed(text for pair in pairs for text in pair)
        scores = iter(
            torch.cat(
                [
                    self._match([(vectors[a], vectors[b]) for a, b in pairs[i : i + BATCH]])
                    for i in range(0, len(pairs), BATCH)
                ]
            )
        )
        found = []
        for reply in replies:
            best = torch.stack([next(scores) for _ in reply.references]).amax(dim=0)  # (3,)
            if self.baseline is not None:
                best = (best - self.baseline.values) / (1 - self.baseline.values)
            found.append((*best.tolist(), 1))
        return found

    def _match(self, pairs: list[tuple[Vectors, Vectors]]) -> torch.Tensor:
        """The library's greedy matching of (reply, reference) pairs: P, R, F1 of each, (B, 3)."""
        from bert_score.utils import greedy_cos_idf

        replies, references = zip(*pairs)
        # it tells of empty texts on stderr, once a batch
        with torch.inference_mode(), contextlib.redirect_stderr(io.StringIO()):
            scores = greedy_cos_idf(*self._pad(references), *self._pad(replies))
        return torch.stack(scores, dim=-1).cpu()

    def _pad(self, texts: Sequence[Vectors]) -> tuple[torch.Tensor, ...]:
        """Vectors (B, T, d), mask (B, T) and weights (B, T) as greedy_cos_idf wants them."""
        device = self.encoder.device
        tokens = pad_sequence([t.tokens for t in texts], batch_first=True, padding_value=2.0)
        mask = pad_sequence([torch.ones_like(t.is_piece) for t in texts], batch_first=True)
        weights = pad_sequence([t.is_piece for t in texts], batch_first=True)
        return tokens.to(device), mask.bool().to(device), weights.to(device)
