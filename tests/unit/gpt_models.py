"""Small GPTs of transformers' for tests: random weights that are not those it starts from."""

from __future__ import annotations

import torch
import transformers

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
