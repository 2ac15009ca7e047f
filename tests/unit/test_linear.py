"""The packed linear map computes what torch's does, with the weights as they are now."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import transformers
from torch.nn import functional as F

from persona_agents.models import linear
from persona_agents.models.linear import Linear, pack_linears

needs_packing = pytest.mark.skipif(not linear.CAN_PACK, reason="this torch cannot pack weights")


def plain(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer.weight, layer.bias)


def check(layer: Linear, x: torch.Tensor) -> None:
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return Linear(24, 40).eval()


@needs_packing
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (3, 24), (2, 5, 24), (0, 24), (2, 0, 24)])
@torch.no_grad()
def test_inputs_of_all_shapes(shape, bias):
    layer = Linear(24, 40, bias=bias).eval()
    x = torch.randn(shape)
    check(layer, x)
    assert layer._packed is not None
    check(layer, torch.randn(24, 7).t())  # rows that are not contiguous


@needs_packing
@torch.no_grad()
def test_weights_that_change_are_packed_anew(layer):
    x = torch.randn(3, 24)
    before = layer(x)
    layer.weight.mul_(2)
    check(layer, x)
    layer.load_state_dict({"weight": torch.randn(40, 24), "bias": torch.randn(40)})
    check(layer, x)
    layer.weight = torch.nn.Parameter(torch.randn(40, 24))
    check(layer, x)
    assert not torch.allclose(layer(x), before)


@pytest.mark.parametrize("fused", [True, False] if torch.__version__ >= (2, 4) else [False])
def test_weights_that_an_optimiser_changes(layer, fused):
    x = torch.randn(3, 24)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=fused)
    with torch.no_grad():
        before = layer(x)
    layer(x).sum().backward()  # in evaluation mode all the while
    optimizer.step()
    with torch.no_grad():
        check(layer, x)
        assert not torch.allclose(layer(x), before)


@torch.no_grad()
def test_training_drops_what_is_packed(layer):
    x = torch.randn(3, 24)
    layer(x)
    layer.train()
    assert layer._packed is None
    layer.weight.data.mul_(2)  # as some optimisers do, unseen by autograd
    layer.eval()
    check(layer, x)


@torch.no_grad()
def test_another_precision_and_back(layer):
    x = torch.randn(3, 24)
    layer(x)
    assert layer.double()(x.double()).equal(plain(layer, x.double()))
    assert layer._packed is None
    check(layer.float(), x)


def test_training_and_gradients_are_torchs(layer):
    x = torch.randn(3, 24)
    layer(x).sum().backward()  # evaluation mode, but a gradient is wanted
    assert layer._packed is None and layer.weight.grad is not None
    with torch.no_grad():
        assert layer.train()(x).equal(plain(layer, x))
        with torch.autocast("cpu", torch.bfloat16):
            assert layer.eval()(x).dtype == torch.bfloat16
    assert layer._packed is None
    with torch.inference_mode():
        check(Linear(24, 40).eval(), x)  # weights without a version


@torch.no_grad()
def test_a_model_with_packed_weights_can_be_copied_and_saved(layer):
    x = torch.randn(3, 24)
    expected = layer(x)
    assert copy.deepcopy(layer)(x).equal(expected)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.load(file, weights_only=False)(x).equal(expected)


@torch.no_grad()
def test_another_librarys_module_keeps_parameters_names_and_results():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, num_hidden_layers=2, is_decoder=True, **sizes)
    bert = transformers.BertLMHeadModel(config).eval()
    ids = torch.randint(50, (2, 7))
    expected, before = bert(ids).logits, dict(bert.named_parameters())
    pack_linears(bert)
    after = dict(bert.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in after)
    assert not any(type(module) is torch.nn.Linear for module in bert.modules())
    torch.testing.assert_close(bert(ids).logits, expected, rtol=1e-5, atol=1e-5)
    # the head still is the embedding
    assert bert.get_output_embeddings().weight is bert.get_input_embeddings().weight
