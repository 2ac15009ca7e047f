"""PGN against the naive reference, against s2sa, and the properties that its outputs must have."""

from __future__ import annotations

from dataclasses import replace

import naive_pgn as naive
import numpy as np
import pytest
import torch
from naive_hcm import Sample, source_tokens
from parlai.agents.seq2seq.modules import Seq2seq

from persona_agents.models.pgn import PGN, SpecialIds

EXACT = 1e-9
CONFIG = naive.Config()
CONFIGS = {
    "plain": CONFIG,
    "coverage": replace(CONFIG, coverage=True),
    "one layer, equal sizes": replace(CONFIG, layers=1, embedding=10),
}
SAMPLES = naive.ragged_samples(CONFIG)
# Alone, each is a batch with nothing to copy, or with less than usual.
LACKING = ("empty persona", "empty query", "both empty", "persona all unknown", "all unknown")


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def build(config, seed=1, dtype=torch.float64, dropout=0.0):
    """The model with the reference's random weights, in evaluation mode."""
    special = SpecialIds(pad=config.pad, start=config.cls, end=config.sep, unknown=config.unk)
    model = PGN(
        config.vocab,
        special,
        config.embedding,
        config.hidden,
        config.layers,
        dropout,
        config.coverage,
    ).double()
    weights = naive.random_weights(config, seed)
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return model.to(dtype).eval()


def pad(rows, extra=0):
    """Ragged id lists to (B, N), padded on the right, with `extra` columns of padding."""
    width = max(len(row) for row in rows) + extra
    return torch.tensor([[*row, *[CONFIG.pad] * (width - len(row))] for row in rows])


def batch(samples, extra=0):
    """Inputs (B, S) and responses that end in [SEP] (B, T)."""
    inputs = [source_tokens(CONFIG, sample)[0] for sample in samples]
    return pad(inputs, extra), pad([naive.targets(CONFIG, sample) for sample in samples], extra)


def mixture(model, samples, extra=0):
    """log p of each sample's own steps: a list of (T_i, V)."""
    ids, ys = batch(samples, extra)
    with torch.no_grad():
        log_p, _ = model.decode_forced(model.encoder(ids), ys)
    return [row[: len(sample.decoder_input)] for row, sample in zip(log_p, samples)]


def set_gate(model, logit):
    """Make p_gen = sigmoid(logit) at every step."""
    with torch.no_grad():
        model.pointer.weight.zero_()
        model.pointer.bias.fill_(logit)


def assert_close(found, expected, tolerance=EXACT):
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=found.dtype), atol=tolerance, rtol=0
    )


# -------------------------------------------------------------------- agreement with the equations


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, EXACT), (torch.float32, 1e-5)])
def test_a_ragged_batch_agrees_with_the_reference(config, dtype, tolerance):
    for seed in (1, 2):
        weights, model = naive.random_weights(config, seed), build(config, seed, dtype)
        samples = naive.ragged_samples(config, seed)
        for (name, sample), found in zip(samples.items(), mixture(model, list(samples.values()))):
            with np.errstate(divide="ignore"):  # padding has probability 0
                expected = np.log(naive.pgn(weights, config, sample).p)
            expected[:, config.pad] = found[:, config.pad].double()
            difference = np.abs(found.double().numpy() - expected).max()
            assert difference < tolerance, f"{name}: log p differs by {difference}"


def test_gate_attention_and_coverage_agree_with_the_reference(config):
    weights, model, samples = naive.random_weights(config, 1), build(config), SAMPLES.values()
    ids, ys = batch(samples)
    starts = torch.full_like(ys[:, :1], config.cls)
    with torch.no_grad():
        encoded = model.encoder(ids)
        decoded = model.decode(torch.cat([starts, ys[:, :-1]], dim=1), encoded)
        _, modes, _ = model.distribution(decoded, encoded)
        outputs = model(ids, ys)
    assert len(outputs) == 3 + config.coverage
    for row, sample in enumerate(samples):
        expected, steps = naive.pgn(weights, config, sample), len(sample.decoder_input)
        length = expected.attention.shape[1]
        assert_close(modes.generate[row, :steps].exp(), expected.p_gen)
        assert_close(modes.copy[row, :steps].exp(), 1 - expected.p_gen)
        assert_close(decoded.attention[row, :steps, :length], expected.attention)
        assert decoded.attention[row, :, length:].abs().sum() == 0, "padding is not looked at"
        assert_close(decoded.coverage[row, :steps, :length], expected.coverage)
        if config.coverage:
            assert_close(outputs[3][row, :steps], expected.coverage_loss)
            assert expected.coverage_loss.sum() > 0 or steps == 1


def test_the_loss_gathers_the_target_from_the_mixture(config):
    weights, model, samples = naive.random_weights(config, 1), build(config), SAMPLES.values()
    ids, ys = batch(samples)
    with torch.no_grad():
        log_p, best, encoded, *_ = model(ids, ys)
        log_p = log_p.squeeze(2)
        full, full_best = model.decode_forced(encoded, ys)
        scored, scored_best = model.score(encoded, ys)
    for row, sample in enumerate(samples):
        expected = naive.cross_entropy(weights, config, sample)
        steps = len(expected)
        assert_close(-log_p[row, :steps], expected)
        assert_close(scored[row, :steps], log_p[row, :steps])
        assert_close(full[row, :steps].gather(1, ys[row, :steps, None])[:, 0], log_p[row, :steps])
    for words in (best, full_best, scored_best):
        assert words.equal(full.argmax(dim=2))


# ------------------------------------------------------------------------------ agreement with s2sa

# names of the same weights in ParlAI's seq2seq
IN_SEQ2SEQ = {
    "source_embeddings": "encoder.lt",
    "target_embeddings": "decoder.lt",
    "encoder_lstm": "encoder.rnn",
    "decoder_lstm": "decoder.rnn",
    "attention": "decoder.attention.attn",
    "combine": "decoder.attention.attn_combine",
    "to_embedding": "output.o2e",
    "generator": "output",
}


def seq2seq(config, model):
    """ParlAI's seq2seq with the weights that it shares with this model."""
    twin = Seq2seq(
        config.vocab,
        config.embedding,
        config.hidden,
        numlayers=config.layers,
        attention="general",
        padding_idx=config.pad,
        start_idx=config.cls,
        end_idx=config.sep,
        unknown_idx=config.unk,
    ).double()
    weights = {"START": twin.START}
    for name, value in model.state_dict().items():
        part, _, rest = name.partition(".")
        if part in IN_SEQ2SEQ:
            weights[f"{IN_SEQ2SEQ[part]}.{rest}"] = value
    twin.load_state_dict(weights)
    return twin.eval()


def test_training_starts_from_the_same_weights_as_seq2seqs():
    """Up to chance: each tensor has its spread."""
    torch.manual_seed(0)
    large = replace(CONFIG, vocab=400, embedding=48, hidden=64)
    sizes = large.vocab, large.embedding, large.hidden
    model = PGN(sizes[0], SpecialIds(0, 2, 3, 1), *sizes[1:])
    expected = Seq2seq(*sizes, attention="general").state_dict()
    for name, value in model.state_dict().items():
        part, _, rest = name.partition(".")
        if part in IN_SEQ2SEQ:
            found = expected[f"{IN_SEQ2SEQ[part]}.{rest}"]
            assert value.std().item() == pytest.approx(found.std().item(), rel=0.25), name


@pytest.mark.parametrize("name", ["plain", "one layer, equal sizes"])
def test_generating_always_equals_seq2seq(name):
    config = CONFIGS[name]
    model = build(config)
    twin = seq2seq(config, model)
    set_gate(model, 100.0)
    # ParlAI packs sorted batches only
    samples = sorted(SAMPLES.values(), key=lambda s: -len(source_tokens(config, s)[0]))
    ids, ys = batch(samples)
    with torch.no_grad():
        found, best = model.decode_forced(model.encoder(ids), ys)
        logits, twins_best, _ = twin(ids, ys=ys)
    expected = logits.log_softmax(dim=2)
    real = torch.arange(config.vocab) != config.pad
    for row, sample in enumerate(samples):
        steps = len(sample.decoder_input)
        assert_close(found[row, :steps, real], expected[row, :steps, real])
        assert best[row, :steps].equal(twins_best[row, :steps])
    set_gate(model, 0.0)  # the pointer network is all that differs
    with torch.no_grad():
        other, _ = model.decode_forced(model.encoder(ids), ys)
    assert (other[:, 0, real] - expected[:, 0, real]).abs().max() > 0.1


# ---------------------------------------------------------------------------- what must not matter


def test_a_batch_equals_its_samples_one_by_one(config):
    model, samples = build(config), list(SAMPLES.values())
    for together, sample in zip(mixture(model, samples), samples):
        assert_close(together, mixture(model, [sample])[0])


def test_padding_changes_nothing(config):
    model, samples = build(config), list(SAMPLES.values())
    before = mixture(model, samples)
    for wider, row in zip(mixture(model, samples, extra=5), before):
        assert_close(wider, row)
    with torch.no_grad():
        model.source_embeddings.weight[CONFIG.pad] = 1e3
    for other, row in zip(mixture(model, samples, extra=5), before):
        assert_close(other, row)


def test_a_step_does_not_see_later_words(config):
    model, sample = build(config), SAMPLES["long"]
    before = mixture(model, [sample])[0]
    for step in range(1, len(sample.decoder_input)):
        word = sample.decoder_input[step]
        other = CONFIG.first_word if word != CONFIG.first_word else word + 1
        changed = (*sample.decoder_input[:step], other, *sample.decoder_input[step + 1 :])
        after = mixture(model, [replace(sample, decoder_input=changed)])[0]
        assert_close(after[:step], before[:step])
        assert (after[step] - before[step])[1:].abs().max() > 1e-3


# ------------------------------------------------------------------------------- the distribution


@pytest.mark.parametrize("training", [False, True])
def test_the_mixture_sums_to_one(config, training):
    model = build(config, dropout=0.5).train(training)
    for log_p in mixture(model, list(SAMPLES.values())):
        assert_close(log_p.exp().sum(dim=1), np.ones(len(log_p)))
        assert torch.isfinite(log_p).all()


def test_only_the_inputs_words_are_copied(config):
    model = build(config)
    set_gate(model, -100.0)
    for sample, log_p in zip(SAMPLES.values(), mixture(model, list(SAMPLES.values()))):
        words = set(sample.persona + sample.query) - {
            CONFIG.pad,
            CONFIG.cls,
            CONFIG.sep,
            CONFIG.unk,
        }
        others = [word for word in range(CONFIG.vocab) if word not in words]
        if words:
            assert log_p[:, sorted(words)].exp().sum(dim=1).min() > 1 - 1e-9
            assert log_p[:, others].exp().max() < 1e-30


def test_coverage_changes_where_the_model_looks():
    model, samples = build(CONFIGS["coverage"]), list(SAMPLES.values())
    with_it = mixture(model, samples)
    with torch.no_grad():
        model.coverage.zero_()
    for after, before in zip(mixture(model, samples), with_it):
        assert_close(after[0], before[0])  # nothing is covered at the first step
    assert (mixture(model, samples)[-1] - with_it[-1])[1:, 1:].abs().max() > 0.01


# --------------------------------------------------------------------------------------- decoding


def steps(model, encoded, words, cache=None, start=0):
    """Incremental log-probabilities of each next word (B, T - start, V), and the last cache."""
    rows = []
    for length in range(start + 1, words.size(1) + 1):
        states, cache = model.decoder(words[:, :length], encoded, cache)
        rows.append(model.output(states)[:, -1:])
    return torch.cat(rows, dim=1), cache


def test_incremental_decoding_equals_full_decoding(config):
    model, samples = build(config), list(SAMPLES.values())
    ids, _ = batch(samples)
    words = pad([sample.decoder_input for sample in samples])
    with torch.no_grad():
        encoded = model.encoder(ids)
        one_by_one, _ = steps(model, encoded, words)
        at_once = model.output(model.decoder(words, encoded)[0])
    for row, full, expected in zip(one_by_one, at_once, mixture(model, samples)):
        assert_close(row[: len(expected)], expected)
        assert_close(full[: len(expected)], expected)


@pytest.mark.parametrize("as_list", [False, True])
def test_reordered_beams_go_on_from_their_parents(config, as_list):
    model = build(config)
    samples = [SAMPLES[name] for name in ("long", "empty query", "unknown words")]
    ids, _ = batch(samples)
    # Two beams an input, then a step at which beams die, split and change places.
    beams, parents = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1, 1, 3, 2, 5, 5])
    torch.manual_seed(0)
    words = torch.randint(CONFIG.first_word, CONFIG.vocab, (6, 6))
    words[:, 0] = CONFIG.cls
    mixed = torch.cat([words[parents, :3], words[:, 3:]], dim=1)
    beam_rows, parent_rows = (rows.tolist() if as_list else rows for rows in (beams, parents))
    with torch.no_grad():
        encoded = model.reorder_encoder_states(model.encoder(ids), beam_rows)
        _, cache = steps(model, encoded, words[:, :3])
        cache = model.reorder_decoder_incremental_state(cache, parent_rows)
        found, _ = steps(model, encoded, mixed, cache, start=3)
    expected = mixture(
        model,
        [
            replace(samples[beams[row]], decoder_input=tuple(mixed[row].tolist()))
            for row in range(6)
        ],
    )
    assert_close(found, torch.stack(expected)[:, 3:])


# -------------------------------------------------------------------------------------- gradients


def backward(model, samples):
    """Gradients of the mean loss over the samples' own words, coverage included; the loss."""
    ids, ys = batch(samples)
    log_p, _, _, *coverage = model(ids, ys)
    losses = -log_p.squeeze(2) + sum(coverage)
    real = torch.zeros_like(losses, dtype=torch.bool)
    for row, sample in enumerate(samples):
        real[row, : len(sample.decoder_input)] = True
    loss = losses[real].mean()
    loss.backward()
    return loss


def test_every_parameter_learns(config):
    model = build(config).train()
    backward(model, list(SAMPLES.values()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert torch.isfinite(parameter.grad).all(), f"{name} has a broken gradient"
        assert parameter.grad.abs().max() > 1e-8, f"{name} learns nothing"


def test_gradients_agree_with_the_references_differences(config):
    """For each parameter, along a random direction, by central differences of the naive loss."""
    weights, model = naive.random_weights(config, 1), build(config)
    samples = [SAMPLES[name] for name in ("unknown words", "empty persona")]
    backward(model, samples)

    def loss(weights):
        rows = []
        for sample in samples:
            rows.append(naive.cross_entropy(weights, config, sample))
            if config.coverage:
                rows[-1] = rows[-1] + naive.pgn(weights, config, sample).coverage_loss
        return np.concatenate(rows).mean()

    rng, step = np.random.default_rng(0), 1e-5
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        if "embeddings" in name:
            direction[config.pad] = 0.0
        ahead, behind = (
            loss({**weights, name: weights[name] + sign * step * direction}) for sign in (1, -1)
        )
        found = (parameter.grad.numpy() * direction).sum()
        assert found == pytest.approx((ahead - behind) / (2 * step), abs=1e-5, rel=1e-4), name


@pytest.mark.parametrize("name", LACKING)
def test_without_a_source_the_gradients_are_finite_and_complete(config, name):
    model = build(config, dtype=torch.float32).train()
    assert torch.isfinite(backward(model, [SAMPLES[name]]))
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{parameter_name} takes no part"
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("target", ["in the input", "not in the input"])
@pytest.mark.parametrize("logit", [-100.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_saturated_gate_gives_finite_loss_and_gradients(config, dtype, logit, target):
    model = build(config, dtype=dtype).train()
    set_gate(model, logit)
    word = CONFIG.first_word
    asked = word if target == "in the input" else word + 1
    sample = Sample((word, word), (word,), (CONFIG.cls, asked, asked))
    assert torch.isfinite(backward(model, [sample, *(SAMPLES[name] for name in LACKING)]))
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_parameters_are_the_equations_and_no_more(config):
    found = {name: tuple(p.shape) for name, p in build(config).named_parameters()}
    assert found == naive.weight_shapes(config)
