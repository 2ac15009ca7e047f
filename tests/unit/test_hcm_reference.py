"""HCM against the naive reference, and the properties that its outputs must have."""

from __future__ import annotations

from dataclasses import replace

import naive_hcm as naive
import numpy as np
import pytest
import torch
import transformers

from persona_agents.models.hcm import HCM, SpecialIds

COPY = ("hierarchical", "flat", "none")
COPYING = COPY[:2]
# The attention's softmax is float32 whatever the model runs in: float64 models agree to this.
EXACT = 1e-9
CONFIG = naive.Config()
SAMPLES = naive.ragged_samples(CONFIG)
# Within one batch these are all different lengths; alone, each is a batch without a source.
LACKING = ("empty persona", "empty query", "both empty", "persona all unknown", "all unknown")


def build(config, seed=1, dtype=torch.float64, dropout=0.0):
    """The model with the reference's random weights, in evaluation mode."""
    bert = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            num_hidden_layers=config.encoder_layers,
            num_attention_heads=config.heads,
            intermediate_size=config.ffn,
            max_position_embeddings=config.positions,
            layer_norm_eps=config.eps,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        ),
        add_pooling_layer=False,
    )
    special = SpecialIds(pad=config.pad, start=config.cls, end=config.sep, unknown=config.unk)
    model = HCM(bert, special, config.decoder_layers, config.copy, dropout).double()
    weights = naive.random_weights(config, seed)
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return model.to(dtype).eval()


def pad(rows, extra=0, config=CONFIG):
    """Ragged id lists to (B, N), padded on the right, with `extra` columns of padding."""
    width = max(len(row) for row in rows) + extra
    return torch.tensor([[*row, *[config.pad] * (width - len(row))] for row in rows])


def batch(samples, extra=0, config=CONFIG):
    """Inputs (B, S) and responses that end in [SEP] (B, T)."""
    inputs = [naive.source_tokens(config, sample)[0] for sample in samples]
    return pad(inputs, extra), pad([naive.targets(config, sample) for sample in samples], extra)


def mixture(model, samples, extra=0):
    """log p_response of each sample's own steps: a list of (T_i, V)."""
    ids, ys = batch(samples, extra)
    with torch.no_grad():
        log_p, _ = model.decode_forced(model.encoder(ids), ys)
    return [row[: len(sample.decoder_input)] for row, sample in zip(log_p, samples)]


def set_gate(model, logit):
    """Make p_gen = sigmoid(logit) at every step."""
    with torch.no_grad():
        model.copy.gate.weight.zero_()
        model.copy.gate.bias.fill_(logit)


def assert_close(found, expected, tolerance=EXACT):
    torch.testing.assert_close(
        found, torch.as_tensor(expected, dtype=found.dtype), atol=tolerance, rtol=0
    )


# ------------------------------------------------------------------- agreement with the paper


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, EXACT), (torch.float32, 1e-5)])
@pytest.mark.parametrize("layers", [(2, 2), (1, 3)], ids=["2+2 layers", "1+3 layers"])
@pytest.mark.parametrize("copy", COPY)
def test_a_ragged_batch_agrees_with_the_reference(copy, layers, dtype, tolerance):
    config = replace(CONFIG, copy=copy, encoder_layers=layers[0], decoder_layers=layers[1])
    for seed in (1, 2):
        weights, model = naive.random_weights(config, seed), build(config, seed, dtype)
        samples = naive.ragged_samples(config, seed)
        for (name, sample), found in zip(samples.items(), mixture(model, list(samples.values()))):
            expected = np.log(naive.hcm(weights, config, sample).p_response)
            difference = np.abs(found.double().numpy() - expected).max()
            assert difference < tolerance, f"{name}: log p differs by {difference}"


@pytest.mark.parametrize("copy", COPYING)
def test_gates_and_copy_attention_agree_with_the_reference(copy):
    config = replace(CONFIG, copy=copy)
    weights, model, samples = naive.random_weights(config, 1), build(config), SAMPLES.values()
    ids, ys = batch(samples)
    starts = torch.full_like(ys[:, :1], config.cls)
    with torch.no_grad():
        encoded = model.encoder(ids)
        decoded = model.decode(torch.cat([starts, ys[:, :-1]], dim=1), encoded)
        modes = model.copy_modes(decoded, encoded)
        sources = model.copy_sources(decoded, encoded)
    for row, sample in enumerate(samples):
        expected, steps = naive.hcm(weights, config, sample), len(sample.decoder_input)
        copied = 1 - expected.p_gen
        assert_close(modes.generate[row, :steps].exp(), expected.p_gen)
        assert_close(modes.query[row, :steps].exp(), copied * expected.beta)
        assert_close(modes.persona[row, :steps].exp(), copied * expected.gamma)
        for source, attention, a in (
            (encoded.query, decoded.query_attention, expected.a_q),
            (encoded.persona, decoded.persona_attention, expected.a_p),
        ):
            word = source.word[row]
            assert word.sum() == a.shape[1]
            assert_close(attention[row, :steps][:, word], a)
            assert attention[row, :steps][:, ~word].abs().sum() == 0
            assert source.ids[row][word].tolist() == ids[row][source.position[row][word]].tolist()
        for found, p in ((sources.query, expected.p_query), (sources.persona, expected.p_persona)):
            one_hot = torch.eye(config.vocab, dtype=found.dtype)[sources.ids[row]]
            assert_close(found[row, :steps] @ one_hot, p)


@pytest.mark.parametrize("copy", COPY)
def test_the_loss_gathers_the_target_from_the_mixture(copy):
    config = replace(CONFIG, copy=copy)
    weights, model, samples = naive.random_weights(config, 1), build(config), SAMPLES.values()
    ids, ys = batch(samples)
    with torch.no_grad():
        log_p, best, encoded = model(ids, ys)
        log_p = log_p.squeeze(2)
        full, full_best = model.decode_forced(encoded, ys)
        scored, scored_best = model.score(encoded, ys)
    assert_close(log_p, full.gather(2, ys.unsqueeze(2)).squeeze(2))
    assert_close(scored, log_p)
    for words in (best, full_best, scored_best):
        assert words.equal(full.argmax(dim=2))
    for row, sample in zip(log_p, samples):
        expected = naive.cross_entropy(weights, config, sample)
        assert_close(-row[: len(expected)], expected)


# ------------------------------------------------------------------------ what must not matter


@pytest.mark.parametrize("copy", COPY)
def test_a_batch_equals_its_samples_one_by_one(copy):
    model, samples = build(replace(CONFIG, copy=copy)), list(SAMPLES.values())
    for together, sample in zip(mixture(model, samples), samples):
        assert_close(together, mixture(model, [sample])[0])


@pytest.mark.parametrize("copy", COPY)
def test_padding_changes_nothing(copy):
    model, samples = build(replace(CONFIG, copy=copy)), list(SAMPLES.values())
    before = mixture(model, samples)
    for wider, row in zip(mixture(model, samples, extra=5), before):
        assert_close(wider, row)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[CONFIG.pad] = 1e3
    for other, row in zip(mixture(model, samples, extra=5), before):
        assert_close(other, row)


@pytest.mark.parametrize("copy", COPY)
def test_a_step_does_not_see_later_words(copy):
    model = build(replace(CONFIG, copy=copy))
    sample = SAMPLES["long"]
    before = mixture(model, [sample])[0]
    for step in range(1, len(sample.decoder_input)):
        start, word = sample.decoder_input[:step], sample.decoder_input[step]
        other = CONFIG.first_word if word != CONFIG.first_word else word + 1
        changed = (*start, other, *sample.decoder_input[step + 1 :])
        after = mixture(model, [replace(sample, decoder_input=changed)])[0]
        assert_close(after[:step], before[:step])
        assert not torch.allclose(after[step], before[step], atol=1e-3)


# --------------------------------------------------------------------------- the distribution


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("copy", COPY)
def test_the_mixture_sums_to_one(copy, training):
    model = build(replace(CONFIG, copy=copy), dropout=0.5).train(training)
    for log_p in mixture(model, list(SAMPLES.values())):
        assert_close(log_p.exp().sum(dim=1), np.ones(len(log_p)))
        assert torch.isfinite(log_p).all()


def test_dropout_leaves_the_copy_attention_alone():
    """a_q and a_p of the first layer, which depend on dropout through nothing but themselves."""
    model = build(replace(CONFIG, decoder_layers=1), dropout=0.0).train()
    ids, ys = batch(list(SAMPLES.values()))
    attention = model.layers[0].query_attention
    with torch.no_grad():
        encoded = model.encoder(ids)
        expected = model.decode(ys, encoded).query_attention
        attention.dropout.p = 0.5
        assert_close(model.decode(ys, encoded).query_attention, expected)


@pytest.mark.parametrize("copy", COPYING)
def test_only_the_sources_words_are_copied(copy):
    model = build(replace(CONFIG, copy=copy))
    set_gate(model, -100.0)
    for sample, log_p in zip(SAMPLES.values(), mixture(model, list(SAMPLES.values()))):
        not_copied = {CONFIG.pad, CONFIG.cls, CONFIG.sep, CONFIG.unk}
        words = set(sample.persona + sample.query) - not_copied
        others = [word for word in range(CONFIG.vocab) if word not in words]
        if words:
            assert log_p[:, sorted(words)].exp().min() > 1e-6
            assert log_p[:, others].exp().max() < 1e-30


@pytest.mark.parametrize("copy", COPYING)
def test_generating_always_equals_no_copying(copy):
    model, plain = build(replace(CONFIG, copy=copy)), build(replace(CONFIG, copy="none"))
    plain.load_state_dict(model.state_dict(), strict=False)
    set_gate(model, 100.0)
    samples = list(SAMPLES.values())
    for row, expected in zip(mixture(model, samples), mixture(plain, samples)):
        assert_close(row, expected)


@pytest.mark.parametrize("part", ["persona", "query"])
@pytest.mark.parametrize("copy", COPY)
def test_each_source_matters(copy, part):
    model, sample = build(replace(CONFIG, copy=copy)), SAMPLES["plain"]
    other = replace(sample, **{part: getattr(SAMPLES["long"], part)})
    before, after = mixture(model, [sample, other])
    assert (before - after).abs().max(dim=1).values.min() > 0.01


def test_words_copied_from_both_sources_add_up():
    model = build(CONFIG)
    set_gate(model, -100.0)
    word = CONFIG.first_word
    sample = naive.Sample((word, word, word), (word, word), (CONFIG.cls, word))
    assert_close(mixture(model, [sample])[0][:, word].exp(), np.ones(2))


# ------------------------------------------------------------------------------------ decoding


def steps(model, encoded, words, cache=None, start=0):
    """Incremental log-probabilities of each next word (B, T - start, V), and the last cache."""
    rows = []
    for length in range(start + 1, words.size(1) + 1):
        states, cache = model.decoder(words[:, :length], encoded, cache)
        rows.append(model.output(states)[:, -1:])
    return torch.cat(rows, dim=1), cache


@pytest.mark.parametrize("copy", COPY)
def test_incremental_decoding_equals_full_decoding(copy):
    model, samples = build(replace(CONFIG, copy=copy)), list(SAMPLES.values())
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
@pytest.mark.parametrize("copy", COPY)
def test_reordered_beams_go_on_from_their_parents(copy, as_list):
    model = build(replace(CONFIG, copy=copy))
    names = ("long", "empty query", "unknown words")
    samples = [SAMPLES[name] for name in names]
    ids, _ = batch(samples)
    # Two beams an input, then a step at which beams die, split and change places.
    beams = torch.tensor([0, 0, 1, 1, 2, 2])
    parents = torch.tensor([1, 1, 3, 2, 5, 5])
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


# ----------------------------------------------------------------------------------- gradients


def backward(model, samples):
    """Gradients of the mean loss over the samples' own words; returns the loss."""
    ids, ys = batch(samples)
    log_p = model(ids, ys)[0].squeeze(2)
    real = torch.zeros_like(log_p, dtype=torch.bool)
    for row, sample in enumerate(samples):
        real[row, : len(sample.decoder_input)] = True
    loss = -log_p[real].mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("copy", COPY)
def test_every_parameter_learns(copy):
    model = build(replace(CONFIG, copy=copy)).train()
    backward(model, list(SAMPLES.values()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert torch.isfinite(parameter.grad).all(), f"{name} has a broken gradient"
        # A bias of the keys moves all scores alike: softmax cannot see it.
        if not name.endswith("key.bias"):
            assert parameter.grad.abs().max() > 1e-8, f"{name} learns nothing"


@pytest.mark.parametrize("copy", COPYING)
def test_gradients_agree_with_the_references_differences(copy):
    """For each parameter, along a random direction, by central differences of the naive loss."""
    config = replace(CONFIG, copy=copy, encoder_layers=1, decoder_layers=1)
    weights, model = naive.random_weights(config, 1), build(config)
    samples = [SAMPLES[name] for name in ("unknown words", "empty persona")]
    backward(model, samples)

    def loss(weights):
        return np.concatenate([naive.cross_entropy(weights, config, s) for s in samples]).mean()

    rng, step = np.random.default_rng(0), 1e-5
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        ahead, behind = (
            loss({**weights, name: weights[name] + sign * step * direction}) for sign in (1, -1)
        )
        found = (parameter.grad.numpy() * direction).sum()
        assert found == pytest.approx((ahead - behind) / (2 * step), abs=1e-5, rel=1e-4), name


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.parametrize("copy", COPY)
def test_without_a_source_the_gradients_are_finite_and_complete(copy, name):
    """Distributed training needs a gradient, if only of zero, of every parameter in every batch."""
    model = build(replace(CONFIG, copy=copy), dtype=torch.float32).train()
    assert torch.isfinite(backward(model, [SAMPLES[name]]))
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{parameter_name} takes no part"
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("target", ["in both sources", "in no source"])
@pytest.mark.parametrize("logit", [-100.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("copy", COPYING)
def test_a_saturated_gate_gives_finite_loss_and_gradients(copy, dtype, logit, target):
    model = build(replace(CONFIG, copy=copy), dtype=dtype).train()
    set_gate(model, logit)
    word, other = CONFIG.first_word, CONFIG.first_word + 1
    asked = word if target == "in both sources" else other
    sample = naive.Sample((word, word), (word,), (CONFIG.cls, asked, asked))
    loss = backward(model, [sample, *(SAMPLES[name] for name in LACKING)])
    assert torch.isfinite(loss)
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


# ---------------------------------------------------------------------------------- parameters


def test_the_generator_is_not_tied_to_the_embeddings():
    model = build(CONFIG)
    embeddings = model.bert.embeddings.word_embeddings.weight
    assert not torch.equal(model.generator.weight, embeddings)
    model.start_generator_from_embeddings()
    assert torch.equal(model.generator.weight, embeddings)
    with torch.no_grad():
        embeddings.add_(1.0)
    assert not torch.isclose(model.generator.weight, embeddings).any()
    assert model.generator.weight.requires_grad


def test_parameters_are_the_papers_and_no_more():
    for copy in COPY:
        config = replace(CONFIG, copy=copy)
        found = {name: tuple(p.shape) for name, p in build(config).named_parameters()}
        assert found == naive.weight_shapes(config)
