"""The network of DVS2S against its equations, and the choice of T."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from persona_agents.models import dvs_joint
from persona_agents.models.dvs2s import DVS2S, Sizes
from persona_agents.models.dvs_vocabulary import ChosenVocabulary, choose_content

F, C = 6, 9
PAD, START, END = 0, 1, 2
IDS = torch.tensor([[7, 4, 9, 12], [14, 5, 0, 0], [8, 0, 0, 0]])
YS = torch.tensor([[9, 4, 11, END], [5, END, 0, 0], [13, 13, END, 0]])


@pytest.fixture
def model():
    torch.manual_seed(2)
    return DVS2S(Sizes(F + C, F, embedding=3, hidden=4), PAD, START).double()


def gru_cell(gru, suffix, x, h):
    """torch's cell: the reset gate is applied after the product with h."""
    w_i, w_h, b_i, b_h = (
        getattr(gru, f"{name}_l0{suffix}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (w_i @ x + b_i).chunk(3), (w_h @ h + b_h).chunk(3)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - z) * torch.tanh(n_x + r * n_h) + z * h


def naive_features(model, words, reply):
    """[y_{i-1}; h_{i-1}; c_i] for each word of a reply, and h_t, word by word."""
    m = model.sizes.hidden
    embedded = [model.embedding.weight[word] for word in words]
    forward, backward = [torch.zeros(m).double()], [torch.zeros(m).double()]
    for x in embedded:
        forward.append(gru_cell(model.encoder_gru, "", x, forward[-1]))
    for x in reversed(embedded):
        backward.append(gru_cell(model.encoder_gru, "_reverse", x, backward[-1]))
    memory = [torch.cat(pair) for pair in zip(forward[1:], reversed(backward[1:]))]
    summary = torch.tanh(
        model.bridge.weight @ torch.cat((forward[-1], backward[-1])) + model.bridge.bias
    )
    w_alpha = torch.cat((model.attend_memory.weight, model.attend_state.weight), dim=1)
    rows, before = [], summary
    for word in [START, *reply[:-1]]:
        y = model.embedding.weight[word]
        state = gru_cell(model.decoder_gru, "", y, before)
        energies = torch.stack(
            [
                (model.attend_score.weight @ torch.tanh(w_alpha @ torch.cat((h, state))))[0]
                for h in memory
            ]
        )
        context = sum(a * h for a, h in zip(energies.softmax(0), memory))
        rows.append(torch.cat((y, before, context)))
        before = state
    return torch.stack(rows), summary


class TestNetwork:
    def test_equations_and_padding(self, model):
        encoded = model.encoder(IDS)
        features = model.features(encoded, YS)
        for row in range(3):
            words = [word for word in IDS[row].tolist() if word != PAD]
            reply = [word for word in YS[row].tolist() if word != PAD]
            expected, summary = naive_features(model, words, reply)
            assert torch.allclose(encoded.summary[row], summary, atol=1e-12)
            assert torch.allclose(features[row, : len(reply)], expected, atol=1e-12)

    def test_step_by_step_is_teacher_forcing(self, model):
        encoded = model.encoder(IDS)
        whole, state = model.features(encoded, YS), encoded.summary
        words = torch.cat((torch.full((3, 1), START), YS[:, :-1]), dim=1)
        for step in range(YS.size(1)):
            features, state = model.decode(words[:, step : step + 1], state, encoded)
            assert torch.allclose(features[:, 0], whole[:, step], atol=1e-12)

    def test_special_tokens_must_be_function_words(self):
        with pytest.raises(ValueError, match="special tokens"):
            DVS2S(Sizes(9, 1), PAD, START)


class TestPredictor:
    def test_start(self):
        torch.manual_seed(0)
        v, f = 400, 20
        model = DVS2S(Sizes(v, f, embedding=32, hidden=64), PAD, START)
        shares = torch.rand(v - f) * 0.1
        model.start_predictor(shares, torch.ones(v), END)
        ids = torch.randint(4, v, (300, 20))
        with torch.no_grad():
            logits = model.word_logits(model.encoder(ids))
        assert (logits.mean(dim=0) - torch.logit(shares.clamp(1e-6))).abs().mean() < 0.2
        inside = dvs_joint.content_of(ids, f, v - f)
        centred = logits - logits.mean(dim=0)
        assert centred[inside].mean() > centred[~inside].mean() + 0.05

    def test_loss_is_the_cross_entropy_of_all_content_words(self, model):
        logits = torch.randn(3, C).double() * 3
        held = dvs_joint.content_of(YS, F, C)
        assert held.nonzero().tolist() == [[0, 3], [0, 5], [2, 7]]
        expected = cross_entropy(logits, held.double(), reduction="none").sum(dim=1)
        assert torch.allclose(dvs_joint.predictor_loss(logits, held), expected)

    def test_sampled_negatives(self):
        logits, held = torch.randn(1, C).double(), torch.zeros(1, C, dtype=torch.bool)
        held[0, 3] = True
        negatives = torch.tensor([[3, 5, 5]])  # 3 is in the reply and does not count
        one = torch.tensor(1.0).double()
        expected = cross_entropy(logits[0, 3], one) + 2 * cross_entropy(logits[0, 5], 0 * one)
        assert torch.allclose(dvs_joint.predictor_loss(logits, held, negatives), expected[None])

    def test_log_probability_of_sets(self):
        logits = torch.tensor([[0.3, -2.0]]).double()
        sets = torch.tensor([[[True, False], [True, True]]])
        a, b = (1 / (1 + math.exp(-x)) for x in (0.3, -2.0))
        expected = [[math.log(a * (1 - b)), math.log(a * b)]]
        found = dvs_joint.log_prob_of_sets(logits, sets)
        assert torch.allclose(found, torch.tensor(expected).double())


class TestChoice:
    LOGITS = torch.tensor([[0.0, 3.0, -1.0, 2.0], [-5.0, -4.0, -3.0, -2.0], [1.0, 1.0, 4.0, -9.0]])

    def test_top_k(self):
        content, mask = choose_content(self.LOGITS, 2, None)
        assert content.tolist() == [[1, 3], [2, 3], [0, 2]] or content.tolist()[2] == [1, 2]
        assert mask is None

    def test_threshold(self):
        content, mask = choose_content(self.LOGITS, 2, 0.5)
        chosen = [row[keep].tolist() for row, keep in zip(content, mask)]
        assert chosen == [[0, 1, 3], [], [0, 1, 2]]
        assert all(row == sorted(row) for row in content.tolist())

    @pytest.mark.parametrize("rule", [(2, None), (0, None), (2, 0.5), (2, 0.999)])
    @pytest.mark.parametrize("path", ["gather", "union"])
    def test_columns_and_words(self, rule, path):
        weight, bias = torch.randn(F + 4, 5), torch.randn(F + 4)
        content, mask = choose_content(self.LOGITS, *rule)
        vocabulary = ChosenVocabulary(weight, bias, F, content, mask, torch.float32, path)
        features = torch.randn(3, 2, 5)
        scores, every = vocabulary.scores(features), features @ weight.T + bias
        all_words = torch.arange(F + 4).expand(3, -1)
        columns, held = vocabulary.to_columns(all_words), vocabulary.holds(all_words)
        assert held.sum(dim=1).tolist() == vocabulary.sizes.tolist()
        for row in range(3):
            words = held[row].nonzero().squeeze(1)
            assert words[:F].tolist() == list(range(F))
            own = columns[row, words]
            assert torch.allclose(scores[row][:, own], every[row][:, words], atol=1e-5)
            assert torch.equal(vocabulary.row(row).to_words(own[None])[0], words)
            others = torch.ones(vocabulary.n_columns, dtype=torch.bool)
            others[own] = False
            assert (scores[row][:, others] < -1e19).all()
        kept = vocabulary.keep(torch.tensor([2, 0]))
        assert torch.allclose(kept.scores(features[[2, 0]]), scores[[2, 0]], atol=1e-5)
