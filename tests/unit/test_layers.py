"""The faster layers compute what torch's do, with the weights as they are now."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import transformers
from torch.nn import functional as F

from persona_agents.models import layers
from persona_agents.models.layers import Dropout, Linear, use_fast_layers

needs_onednn = pytest.mark.skipif(not layers.HAS_ONEDNN, reason="this torch has no oneDNN")


def plain(layer: Linear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer.weight, layer.bias)


def check(layer, x: torch.Tensor) -> None:
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return Linear(24, 40).eval()


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (3, 24), (2, 5, 24), (0, 24), (2, 0, 24)])
@torch.no_grad()
def test_inputs_of_all_shapes(shape, bias):
    layer = Linear(24, 40, bias=bias).eval()
    x = torch.randn(shape)
    check(layer, x)
    assert layer._packed is not None
    check(layer, torch.randn(24, 7).t())  # rows that are not contiguous


@needs_onednn
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
    check(layer, x)
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


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (1, 24), (6, 24), (2, 5, 24), (0, 24)])
@pytest.mark.parametrize("frozen", ["", "x", "weight", "bias"])
def test_gradients(shape, bias, frozen):
    torch.manual_seed(1)
    layer = Linear(24, 40, bias=bias).train()
    x = torch.randn(shape, requires_grad=frozen != "x")
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(name != frozen)
    learns = [part for part in (x, *layer.parameters()) if part.requires_grad]
    found, wanted = layer(x), plain(layer, x)
    assert layer._packed is None
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    found[..., 0], wanted[..., 0] = 0, 0  # written to in place, as models do with words they forbid
    upstream = torch.randn(wanted.shape)
    for one, other in zip(
        torch.autograd.grad(found, learns, upstream), torch.autograd.grad(wanted, learns, upstream)
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@needs_onednn
def test_training_is_computed_by_onednn(layer, monkeypatch):
    asked = []
    original = layers.product
    monkeypatch.setattr(layers, "product", lambda *parts: asked.append(1) or original(*parts))
    layer.train()(torch.randn(3, 24, requires_grad=True)).sum().backward()
    assert len(asked) == 2  # forwards, and back to x


def test_other_precisions_are_computed_by_torch(layer):
    x = torch.randn(3, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        with torch.no_grad():
            assert layer(x).dtype == torch.bfloat16
    assert torch.autograd.gradcheck(layer.double(), x.double().requires_grad_())
    assert layer._packed is None
    with torch.inference_mode():
        check(Linear(24, 40).eval(), x)  # weights without a version


@torch.no_grad()
def test_compilers_get_torchs_own_product(layer):
    x, graphs = torch.randn(3, 24), []

    def backend(graph, inputs):
        graphs.append(graph.code)
        return graph.forward

    check(torch.compile(layer, backend=backend), x)
    assert graphs and "mkldnn" not in "".join(graphs)
    check(torch.jit.trace(layer, x), x)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_wrong_width_is_named_as_by_torch(layer, gradients):
    with torch.set_grad_enabled(gradients), pytest.raises(RuntimeError, match="3x6 and 24x40"):
        layer(torch.randn(3, 6))


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
    use_fast_layers(bert)
    after = dict(bert.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in after)
    plain_layers = (torch.nn.Linear, torch.nn.Dropout)
    assert not any(type(module) in plain_layers for module in bert.modules())
    assert not any(module.training for module in bert.modules())
    torch.testing.assert_close(bert(ids).logits, expected, rtol=1e-5, atol=1e-5)
    # the head still is the embedding
    assert bert.get_output_embeddings().weight is bert.get_input_embeddings().weight


# -- dropout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_evenly_and_keeps_the_mean(p):
    torch.manual_seed(1)
    x = torch.ones(400_000, requires_grad=True)
    found = Dropout(p).train()(x)
    kept = found.ne(0)
    assert found[kept].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-4)
    error = 5 * (p * (1 - p) / 100_000) ** 0.5  # five standard deviations
    for place in range(4):  # the four elements that one draw serves
        assert kept[place::4].float().mean().item() == pytest.approx(1 - p, abs=error)
    pairs = kept.view(-1, 4).float()
    assert torch.corrcoef(pairs.t()).triu(1).abs().max() < 0.02  # they know nothing of each other
    found.sum().backward()
    assert x.grad.equal(found.detach())  # the gradient goes through the same mask


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_of_all_shapes(shape, dtype):
    found = Dropout(0.5).train()(torch.ones(shape, dtype=dtype))
    assert found.shape == shape and found.dtype == dtype
    assert set(found.flatten().tolist()) <= {0.0, 2.0}


def test_dropout_follows_the_seed():
    x, dropout, found = torch.randn(50, 7), Dropout(0.3).train(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(dropout(x))
    assert found[0].equal(found[1]) and not found[0].equal(found[2])


@pytest.mark.parametrize("p, training", [(0.0, True), (0.3, False), (1.0, True)])
def test_dropout_of_all_or_nothing(p, training):
    x = torch.randn(50)
    assert Dropout(p).train(training)(x).equal(x * (p < 1))
