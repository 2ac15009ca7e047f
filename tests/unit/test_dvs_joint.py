"""The gradient estimator of DVS2S against enumeration of all vocabularies, and its pieces."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from persona_agents.models import dvs_joint
from persona_agents.models.dvs2s import DVS2S, Sizes

F, C = 7, 6  # pad, start, end, unknown and three function words; six content words
PAD, START, END = 0, 1, 2
KAPPA = 1.5
ALL = torch.tensor(list(itertools.product((False, True), repeat=C)))  # (64, C)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    model = DVS2S(Sizes(F + C, F, embedding=4, hidden=5), PAD, START).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
        model.embedding.weight[PAD].zero_()
    return model


@pytest.fixture(scope="module")
def batch():
    ids = torch.tensor([[4, 8, 9, 5], [10, 6, 0, 0], [7, 11, 0, 0]])
    ys = torch.tensor([[5, 8, 12, 4, END], [7, 7, 6, END, 0], [6, 4, END, 0, 0]])
    return ids, ys


def lengths(ys):
    return ys.ne(PAD).sum(dim=1)


def naive_log_probs(model, ids, ys, row, words):
    """log p(y_j) of one reply within a set of words, by a plain softmax; padding is left out."""
    source = ids[row : row + 1, : int(ids[row].ne(PAD).sum())]
    target = ys[row : row + 1, : int(ys[row].ne(PAD).sum())]
    scores, _ = model.decode_forced(model.encoder(source), target)
    columns = sorted(words)
    probabilities = scores[0][:, columns].softmax(dim=-1)
    places = [columns.index(word) for word in target[0].tolist()]
    return torch.log(probabilities[torch.arange(len(places)), places]), target[0].tolist()


def naive_reward(model, ids, ys, row, content):
    chosen = set(range(F)) | {F + c for c in range(C) if content[c]}
    gold = set(ys[row].tolist())
    log_probs, target = naive_log_probs(model, ids, ys, row, chosen | gold)
    return log_probs.sum() - KAPPA * sum(word not in chosen for word in target)


def naive_probability(model, ids, row, content):
    """p(T|X) as a product of Bernoulli probabilities."""
    source = ids[row : row + 1, : int(ids[row].ne(PAD).sum())]
    beta = model.word_logits(model.encoder(source))[0].sigmoid()
    return torch.where(content, beta, 1 - beta).prod()


def gradient(model, value) -> torch.Tensor:
    gradients = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    zeros = (torch.zeros_like(p) for p in model.parameters())
    return torch.cat([(z if g is None else g).flatten() for g, z in zip(gradients, zeros)])


def loss_of(model, ids, ys, sets, baseline=0.0, length_norm=False):
    """The loss (B,) of phase 2 for given vocabularies (B, n, C)."""
    return model(
        ids,
        ys,
        lambda *x: dvs_joint.joint(
            *x,
            kappa=KAPPA,
            sets=sets,
            baseline=lambda value: baseline,
            length_norm=length_norm,
        ),
    ).loss


def expectation(model, ids, ys, row, **settings):
    """The estimator's expectation for one reply: all 64 vocabularies, weighted by p(T|X)."""
    total = 0.0
    for content in ALL:
        with torch.no_grad():
            weight = naive_probability(model, ids, row, content)
        sets = content.expand(len(ids), 1, C)
        total = total - weight * gradient(model, loss_of(model, ids, ys, sets, **settings)[row])
    return total


def objective(model, ids, ys, row):
    """L of one reply, by enumeration."""
    return sum(
        naive_probability(model, ids, row, content) * naive_reward(model, ids, ys, row, content)
        for content in ALL
    )


class TestEstimator:
    @pytest.mark.parametrize("row", range(3))
    def test_it_is_the_gradient_of_the_objective(self, model, batch, row):
        exact = gradient(model, objective(model, *batch, row))
        assert exact.abs().max() > 1e-2
        estimated = expectation(model, *batch, row)
        assert (exact - estimated).abs().max() < 1e-6
        # both parts are tested: no parameter's gradient vanishes
        names = ("predictor", "projection", "decoder_gru", "encoder_gru", "bridge")
        sizes = [p.numel() for p in model.parameters()]
        for (name, _), part in zip(model.named_parameters(), exact.split(sizes)):
            assert not name.startswith(names) or part.abs().max() > 0, name

    def test_length_normalisation_is_the_formula(self, model, batch):
        ids, ys = batch
        m = lengths(ys)[0].item()
        expected = 0.0
        for content in ALL:  # E[dR + R/m d log p(T)]
            probability = naive_probability(model, ids, 0, content)
            reward = naive_reward(model, ids, ys, 0, content)
            surrogate = reward + (reward / m).detach() * probability.log()
            expected = expected + probability.detach() * gradient(model, surrogate)
        estimated = expectation(model, ids, ys, 0, length_norm=True)
        assert (expected - estimated).abs().max() < 1e-6

    def test_a_baseline_leaves_the_expectation(self, model, batch):
        plain = expectation(model, *batch, 0, length_norm=True)
        shifted = expectation(model, *batch, 0, length_norm=True, baseline=-1.7)
        assert (plain - shifted).abs().max() < 1e-9

    def test_a_baseline_lowers_the_variance(self, model, batch):
        """By more than half here, where rewards lie around -3 and b_k at their mean."""
        ids, ys = batch
        with torch.no_grad():
            weights = torch.stack([naive_probability(model, ids, 0, content) for content in ALL])
            values = torch.stack([naive_reward(model, ids, ys, 0, c) for c in ALL]) / lengths(ys)[0]
        mean = (weights * values).sum().item()

        def variance(baseline):
            settings = {"length_norm": True, "baseline": baseline}
            gradients = []
            for content in ALL:
                sets = content.expand(len(ids), 1, C)
                gradients.append(gradient(model, loss_of(model, ids, ys, sets, **settings)[0]))
            gradients = torch.stack(gradients)
            centre = (weights[:, None] * gradients).sum(dim=0)
            return (weights[:, None] * (gradients - centre) ** 2).sum().item()

        ratio = variance(mean) / variance(0.0)
        print(f"variance with the baseline / without: {ratio:.3f}")
        assert ratio < 0.5

    def test_sampled_mean_agrees_within_its_standard_error(self, model, batch):
        ids, ys = batch
        torch.manual_seed(0)
        n, groups = 200, 30
        means = []
        for _ in range(groups):
            found = model(
                ids, ys, lambda *x: dvs_joint.joint(*x, kappa=KAPPA, samples=n, length_norm=False)
            )
            means.append(-gradient(model, found.loss[0]))
        means = torch.stack(means)
        error = means.std(dim=0) / math.sqrt(groups)
        exact = expectation(model, ids, ys, 0)
        real = error > 1e-12
        z = ((means.mean(dim=0) - exact)[real] / error[real]).abs()
        assert (means.mean(dim=0) - exact)[~real].abs().max() < 1e-9
        assert z.max() < 4 and z.mean() < 1.5
