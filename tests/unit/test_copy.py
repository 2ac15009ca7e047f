"""The copy arithmetic (eqs. 10-16, in logarithms) on tensors small enough to check by hand."""

from __future__ import annotations

import math

import pytest
import torch

from persona_agents.models import copy as copying

B, T, S, V, D = 3, 4, 6, 9, 5
# Words repeat within a source and across both; positions 0-2 are the persona, 3-5 the query.
IDS = torch.tensor([[4, 5, 4, 4, 6, 7], [8, 8, 8, 8, 8, 8], [4, 5, 6, 7, 8, 4]])
FULL, EMPTY = torch.full((B,), True), torch.full((B,), False)


def random_parts(seed=0, dtype=torch.float64):
    """Logits (B, T, V), modes and sources, all of them proper distributions."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(B, T, V, generator=draw, dtype=torch.float64)
    modes = torch.randn(B, T, 3, generator=draw, dtype=torch.float64).log_softmax(dim=2)
    attention = torch.rand(B, T, S, generator=draw, dtype=torch.float64)
    in_persona = (torch.arange(S) < 3).expand(B, S)
    sources = copying.Sources(
        IDS,
        query=copying.copy_distribution(attention, ~in_persona),
        persona=copying.copy_distribution(attention, in_persona),
    )
    return logits.to(dtype), copying.Modes(*modes.unbind(dim=2)), sources


def one_hot_mixture(logits, modes, sources):
    """Eq. 16 as it is printed: probabilities (B, T, V) through one-hot matrices."""
    one_hot = torch.eye(V, dtype=torch.float64)[sources.ids]  # (B, S, V)
    parts = (
        (modes.generate, logits.softmax(dim=2)),
        (modes.query, sources.query @ one_hot),
        (modes.persona, sources.persona @ one_hot),
    )
    return sum(mode.exp().unsqueeze(2) * p for mode, p in parts)


def gate(hierarchical=True, dtype=torch.float64, logit=None):
    """A gate with random weights, or with p_gen = sigmoid(logit) at every step."""
    torch.manual_seed(3)
    made = copying.CopyGate(D, hierarchical).to(dtype)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape))
        if logit is not None:
            made.gate.weight.zero_()
            made.gate.bias.fill_(logit)
    return made


def states(dtype=torch.float64):
    """C_query, C_persona, h and e, each (B, T, D)."""
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(B, T, D, generator=draw).to(dtype).requires_grad_() for _ in range(4)]


# ------------------------------------------------------------------------------ eqs. 10 and 11


def test_positions_that_cannot_be_copied_hand_their_mass_to_the_others():
    attention = torch.tensor([[[0.5, 0.1, 0.3, 0.1]]], dtype=torch.float64)
    found = copying.copy_distribution(attention, torch.tensor([[False, True, True, False]]))
    torch.testing.assert_close(found, torch.tensor([[[0.0, 0.25, 0.75, 0.0]]]).double())


@pytest.mark.parametrize("attention", [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
def test_nothing_to_copy_is_no_mass_and_no_nan(attention):
    attention = torch.tensor([[attention]], requires_grad=True)
    for copyable in ([False, False, False], [True, True, False]):
        found = copying.copy_distribution(attention, torch.tensor([copyable]))
        assert torch.isfinite(found).all()
        assert found[..., ~torch.tensor(copyable)].abs().sum() == 0
        (gradient,) = torch.autograd.grad(found.square().sum(), attention)
        assert torch.isfinite(gradient).all()


# ------------------------------------------------------------------------------ eqs. 14 and 15


def test_the_gate_is_the_printed_equations():
    made = gate()
    c_query, c_persona, h, e = states()
    modes = made(c_query, c_persona, h, e, FULL, FULL)
    w_b, b_b, w_c = made.gate.weight[0], made.gate.bias, made.source.weight
    for b in range(B):
        for t in range(T):
            together = torch.cat([c_query[b, t], c_persona[b, t], h[b, t], e[b, t]])
            p_gen = 1 / (1 + math.exp(-(together @ w_b + b_b).item()))
            scores = [(c[b, t] @ w_c @ e[b, t]).item() for c in (c_query, c_persona)]
            beta = math.exp(scores[0]) / (math.exp(scores[0]) + math.exp(scores[1]))
            found = [mode[b, t].exp().item() for mode in modes]
            assert found == pytest.approx([p_gen, (1 - p_gen) * beta, (1 - p_gen) * (1 - beta)])


def test_the_flat_gate_gives_both_sources_half():
    modes = gate(hierarchical=False)(*states(), FULL, FULL)
    torch.testing.assert_close(modes.query, modes.persona)
    torch.testing.assert_close(2 * modes.query.exp(), 1 - modes.generate.exp())


@pytest.mark.parametrize("hierarchical", [True, False])
def test_an_absent_source_gets_no_weight(hierarchical):
    made = gate(hierarchical)
    p_gen = made.generate_logit(*states()).sigmoid()
    no_persona = made(*states(), FULL, EMPTY)
    no_query = made(*states(), EMPTY, FULL)
    neither = made(*states(), EMPTY, EMPTY)
    for modes, only in ((no_persona, no_persona.query), (no_query, no_query.persona)):
        torch.testing.assert_close(modes.generate.exp(), p_gen)
        torch.testing.assert_close(only.exp(), 1 - p_gen)
    torch.testing.assert_close(neither.generate, torch.zeros(B, T).double())
    for absent in (no_persona.persona, no_query.query, neither.persona, neither.query):
        assert (absent.exp() == 0).all()


@pytest.mark.parametrize("hierarchical", [True, False])
def test_absence_is_decided_row_by_row(hierarchical):
    made = gate(hierarchical)
    has_query = torch.tensor([True, False, True])
    has_persona = torch.tensor([False, True, True])
    together = made(*states(), has_query, has_persona)
    for row in range(B):
        alone = made(
            *(state[row : row + 1] for state in states()),
            has_query[row : row + 1],
            has_persona[row : row + 1],
        )
        for found, expected in zip(together, alone):
            torch.testing.assert_close(found[row : row + 1], expected)


# ------------------------------------------------------------------------------------- eq. 16


@pytest.mark.parametrize("seed", range(3))
def test_the_mixture_is_the_one_hot_mixture(seed):
    parts = random_parts(seed)
    found = copying.mixture(*parts).exp()
    torch.testing.assert_close(found, one_hot_mixture(*parts))
    torch.testing.assert_close(found.sum(dim=2), torch.ones(B, T).double())


@pytest.mark.parametrize("seed", range(3))
def test_the_target_is_gathered_from_the_mixture(seed):
    parts = random_parts(seed)
    full = copying.mixture(*parts)
    for word in range(V):
        target = torch.full((B, T), word)
        torch.testing.assert_close(
            copying.target_log_prob(copying.log_decode(parts[0]), target, *parts[1:]),
            full[..., word],
        )


def test_the_best_word_is_the_mixtures_argmax():
    winners = set()
    for seed in range(30):
        logits, modes, sources = random_parts(seed)
        full = copying.mixture(logits, modes, sources)
        best = copying.best_word(copying.log_decode(logits), modes, sources)
        assert best.equal(full.argmax(dim=2))
        copied, generated = best != logits.argmax(dim=2), best == logits.argmax(dim=2)
        winners.update(["copied"] * int(copied.any()) + ["generated"] * int(generated.any()))
    assert winners == {"copied", "generated"}


def test_a_repeated_word_wins_by_its_sum():
    """Word 4 has 0.3 + 0.3 of the persona and beats word 5, the largest single position."""
    ids = torch.tensor([[4, 5, 4]])
    persona = torch.tensor([[[0.3, 0.4, 0.3]]])
    sources = copying.Sources(ids, query=torch.zeros_like(persona), persona=persona)
    never = torch.tensor([[-math.inf]])
    modes = copying.Modes(torch.tensor([[-20.0]]), query=never, persona=torch.tensor([[0.0]]))
    assert copying.best_word(copying.log_decode(torch.zeros(1, 1, V)), modes, sources).item() == 4


def test_without_copying_there_is_only_the_vocabulary():
    logits = random_parts()[0]
    expected = logits.log_softmax(dim=2)
    torch.testing.assert_close(copying.mixture(logits), expected)
    assert copying.best_word(copying.log_decode(logits)).equal(logits.argmax(dim=2))
    target = torch.randint(V, (B, T))
    torch.testing.assert_close(
        copying.target_log_prob(copying.log_decode(logits), target),
        expected.gather(2, target.unsqueeze(2)).squeeze(2),
    )


# ------------------------------------------------------------------------------------ numerics


@pytest.mark.parametrize("word", [4, 8, 0], ids=["in both", "in the query", "in none"])
def test_the_targets_gradient_is_right(word):
    ids = torch.tensor([[4, 5, 4, 4, 6, 8]])
    draw = torch.Generator().manual_seed(7)
    logits, attention, modes = (
        torch.randn(1, 2, size, generator=draw, dtype=torch.float64).requires_grad_()
        for size in (V, S, 3)
    )

    def loss(logits, attention, modes):
        in_persona = torch.arange(S).unsqueeze(0) < 3
        weights = attention.exp()
        sources = copying.Sources(
            ids,
            query=copying.copy_distribution(weights, ~in_persona),
            persona=copying.copy_distribution(weights, in_persona),
        )
        modes = copying.Modes(*modes.log_softmax(dim=2).unbind(dim=2))
        return copying.target_log_prob(
            copying.log_decode(logits), torch.full((1, 2), word), modes, sources
        )

    assert torch.autograd.gradcheck(loss, (logits, attention, modes))


@pytest.mark.parametrize(
    "has_query, has_persona", [(FULL, FULL), (FULL, EMPTY), (EMPTY, FULL), (EMPTY, EMPTY)]
)
@pytest.mark.parametrize("word", [4, 0], ids=["in a source", "in no source"])
@pytest.mark.parametrize("logit", [-100.0, 0.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("hierarchical", [True, False])
def test_saturation_and_missing_mass_stay_finite(
    hierarchical, dtype, logit, word, has_query, has_persona
):
    made, inputs = gate(hierarchical, dtype, logit), states(dtype)
    draw = torch.Generator().manual_seed(9)
    logits = (50 * torch.randn(B, T, V, generator=draw)).to(dtype).requires_grad_()
    attention = torch.randn(B, T, S, generator=draw).softmax(dim=2).requires_grad_()
    in_persona = (torch.arange(S) < 3).expand(B, S)
    sources = copying.Sources(
        IDS,
        query=copying.copy_distribution(attention, ~in_persona & has_query.unsqueeze(1)),
        persona=copying.copy_distribution(attention, in_persona & has_persona.unsqueeze(1)),
    )
    modes = made(*inputs, has_query, has_persona)
    log_p = copying.target_log_prob(
        copying.log_decode(logits), torch.full((B, T), word), modes, sources
    )
    full = copying.mixture(logits, modes, sources)
    assert log_p.dtype == full.dtype == torch.float32
    assert torch.isfinite(log_p).all()
    torch.testing.assert_close(full[..., word], log_p)
    torch.testing.assert_close(full.exp().sum(dim=2), torch.ones(B, T))
    parameters = list(made.parameters())
    gradients = torch.autograd.grad(
        log_p.sum(), [logits, attention, *inputs, *parameters], allow_unused=True
    )
    for gradient in gradients:
        assert gradient is None or torch.isfinite(gradient).all()


@pytest.mark.parametrize("gap", [80, 88, 95, 100, 103, 110, 500])
def test_unknown_words_that_take_nearly_all_attention_leave_finite_gradients(gap):
    scores = torch.tensor([[[0.0, -gap, -gap - 1.0]]], requires_grad=True)  # (1, 1, 3), [UNK] first
    copyable = torch.tensor([[False, True, True]])
    distribution = copying.copy_distribution(scores.softmax(dim=-1), copyable)
    assert distribution.sum().item() == pytest.approx(1.0)
    distribution[0, 0, 1].log().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("mass", [0.0, 1e-44, 1e-40, 1e-38, 1e-30])
def test_a_word_with_next_to_no_mass_leaves_finite_gradients(mass):
    logits = torch.zeros(1, 1, V, requires_grad=True)
    share = torch.tensor([[[mass, 1.0 - mass]]], requires_grad=True)  # (1, 1, S)
    sources = copying.Sources(torch.tensor([[4, 5]]), share, torch.zeros(1, 1, 2))
    modes = copying.Modes(*(torch.tensor([[mode]]) for mode in (-100.0, 0.0, -math.inf)))
    log_prob = copying.target_log_prob(
        copying.log_decode(logits), torch.tensor([[4]]), modes, sources
    )
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert logits.grad.isfinite().all() and share.grad.isfinite().all()
