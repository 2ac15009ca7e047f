"""What replying computes otherwise than training gives the same numbers."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers

from persona_agents.models import layers
from persona_agents.models.attention import MultiHeadAttention, project_for
from persona_agents.models.hcm import HCM, SpecialIds
from persona_agents.models.lengths import ROWS, by_length

PAD, UNK, CLS, SEP, V = 0, 1, 2, 3, 60


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        vocab_size=V, num_hidden_layers=2, hidden_dropout_prob=0.0, **sizes
    )
    bert = transformers.BertModel(config, add_pooling_layer=False)
    return HCM(bert, SpecialIds(PAD, CLS, SEP, UNK), n_decoder_layers=2).double().eval()


def inputs(n: int, extra: int = 0) -> torch.Tensor:
    """n inputs of all lengths; some have no persona, some no query."""
    generator = torch.Generator().manual_seed(n)
    rows = []
    for i in range(n):
        persona, query = ((i * 7) % 11 if i % 5 else 0), ((i * 5) % 7 if i % 6 else 0)
        words = torch.randint(UNK, V, (persona + query,), generator=generator)
        words = words.masked_fill((words == CLS) | (words == SEP), UNK).tolist()
        rows.append([CLS, *words[:persona], SEP, CLS, *words[persona:], SEP])
    width = max(map(len, rows)) + extra
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


@pytest.mark.parametrize("n", [1, ROWS, ROWS + 1, 5 * ROWS + 3])
def test_reading_in_groups_of_like_length(model, n):
    ids, seen = inputs(n, extra=3), []

    def read(group):
        seen.append(group.shape)
        return model.read(group)

    with torch.no_grad():
        found, expected = by_length(read, ids, PAD), model.read(ids)
    real = ids.ne(PAD)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-12)
    assert len(seen) == (1 if n <= ROWS else -(-n // ROWS))
    if n > ROWS:
        assert sum(rows * length for rows, length in seen) < ids.numel()


def test_training_reads_the_batch_as_it_is(model):
    ids, seen = inputs(3 * ROWS), []
    by_length(lambda group: seen.append(group.shape) or model.read(group), ids, PAD)
    assert seen == [ids.shape]


def test_keys_of_several_attentions_are_those_of_each():
    torch.manual_seed(1)
    attentions = [MultiHeadAttention(8, 2, 0.0).double() for _ in range(3)]
    memory = torch.randn(4, 5, 8, dtype=torch.float64)
    real = torch.arange(5) < torch.tensor([[5], [2], [0], [3]])
    for found, attention in zip(project_for(attentions, memory, real), attentions):
        expected = attention.project(memory)
        for part, whole in zip(found, expected):
            wanted = whole * real[:, None, :, None]
            torch.testing.assert_close(part, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_beams_that_share_an_input_are_scored_as_if_each_had_its_own(model, k):
    ids = inputs(9)
    rows = torch.arange(len(ids)).repeat_interleave(k)
    words = torch.randint(4, V, (len(rows), 3), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        encoded = model.encoder(ids)
        own = model.reorder_encoder_states(encoded, rows)
        shared_cache = own_cache = None
        for length in (1, 2, 3):  # the first step without a cache, the others with one
            shared, shared_cache = model.decoder(words[:, :length], encoded, shared_cache)
            each, own_cache = model.decoder(words[:, :length], own, own_cache)
            assert shared.shape == (len(rows), 1, V)
            torch.testing.assert_close(shared, each, rtol=0, atol=1e-10)
        whole_shared, _ = model.decoder(words, encoded)
        whole, _ = model.decoder(words, own)
    torch.testing.assert_close(whole_shared, whole, rtol=0, atol=1e-10)
    torch.testing.assert_close(whole[:, -1:], each, rtol=0, atol=1e-10)


@pytest.mark.skipif(not layers.HAS_ONEDNN, reason="this torch has no oneDNN")
@torch.no_grad()
def test_packed_weights_give_the_scores_of_plain_ones(model, monkeypatch):
    model, ids = copy.deepcopy(model).float(), inputs(2 * ROWS)
    words = torch.randint(4, V, (len(ids), 4), generator=torch.Generator().manual_seed(1))

    def scores():
        """Those of four steps, (4, B, V)."""
        encoded, cache, found = model.encoder(ids), None, []
        for length in (1, 2, 3, 4):
            log_probs, cache = model.decoder(words[:, :length], encoded, cache)
            found.append(log_probs[:, -1])
        return torch.stack(found)

    packed = scores()
    used = [module for module in model.modules() if getattr(module, "_packed", None)]
    assert len(used) > 6 * len(model.layers)
    monkeypatch.setattr(layers, "HAS_ONEDNN", False)
    torch.testing.assert_close(packed, scores(), rtol=0, atol=1e-5)
