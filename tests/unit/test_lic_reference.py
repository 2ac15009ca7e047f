"""LIC against the naive reference and plain GPT, and the properties that its outputs must have."""

from __future__ import annotations

from typing import NamedTuple

import naive_lic as naive
import numpy as np
import pytest
import torch
from gpt_models import (
    FIRST_WORD,
    KINDS,
    SPECIAL,
    VOCABULARY,
    assert_close,
    double_heads,
    pad,
    sequence,
)

from persona_agents.models.lic import LIC

W = FIRST_WORD


class Sample(NamedTuple):
    persona: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...]
    reply: tuple[int, ...]  # without <bos>; ends in <eos>


SAMPLES = {
    "plain": Sample((W, W + 1, W + 2), ((W + 3, W + 4),), (W + 2, W + 5, SPECIAL.end)),
    "long": Sample(
        tuple(range(W, W + 12)),
        (tuple(range(W + 5, W + 14)),),
        (*range(W + 3, W + 12), SPECIAL.end),
    ),
    "one word": Sample((W + 6,), ((W + 7,),), (SPECIAL.end,)),
    "three turns": Sample((W + 1, W), ((W,), (W + 9, W + 2), (W + 4,)), (W + 3, SPECIAL.end)),
    "no persona": Sample((), ((W + 3, W + 8, W + 1),), (W + 4, W + 2, SPECIAL.end)),
    "no query": Sample((W + 4, W + 4), ((),), (W + 1, SPECIAL.end)),
    "neither": Sample((), ((),), (W + 1, W + 9, SPECIAL.end)),
    "unknown words": Sample((SPECIAL.unknown, W), ((SPECIAL.unknown,),), (W, SPECIAL.end)),
}
ALL = list(SAMPLES.values())


def build(kind, dtype=torch.float64, dropout=0.0):
    heads = double_heads(kind, dtype=dtype, dropout=dropout)
    return LIC(heads.transformer, SPECIAL).eval()


def reference(model, kind):
    """The reference's weights and shape."""
    weights = {n: v.double().numpy() for n, v in model.gpt.transformer.state_dict().items()}
    return weights, naive.Shape(kind, layers=2, heads=4)


def batch(samples, extra=0):
    ids = pad([sequence(sample.persona, *sample.turns) for sample in samples], extra)
    return ids, pad([sample.reply for sample in samples], extra)


def sources(sample):
    """Ids of both sources, as the reference reads them: () without words."""
    ids = sequence(sample.persona, *sample.turns)
    cut = 1 + len(sample.persona)
    return (tuple(ids[:cut]) if sample.persona else ()), (
        tuple(ids[cut:]) if any(sample.turns) else ()
    )


def log_probs(model, samples, extra=0):
    """log p of each sample's own steps: a list of (T_i, V)."""
    ids, ys = batch(samples, extra)
    with torch.no_grad():
        scores, _ = model.decode_forced(model.encoder(ids), ys)
    return [row[: len(sample.reply)] for row, sample in zip(scores, samples)]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_ragged_batch_agrees_with_the_reference(kind, dtype, tolerance):
    model = build(kind, dtype)
    weights, shape = reference(model, kind)
    for (name, sample), found in zip(SAMPLES.items(), log_probs(model, ALL)):
        expected = naive.lic(weights, shape, *sources(sample), (SPECIAL.start, *sample.reply[:-1]))
        difference = np.abs(found.double().numpy() - expected).max()
        assert difference < tolerance, f"{name}: log p differs by {difference}"


@pytest.mark.parametrize("kind", KINDS)
def test_without_sources_it_is_the_plain_gpt(kind):
    heads = double_heads(kind)
    model = LIC(heads.transformer, SPECIAL).eval()
    ids, ys = batch([SAMPLES["neither"], SAMPLES["neither"]], extra=3)
    said = torch.cat([torch.full_like(ys[:, :1], SPECIAL.start), ys[:, :-1]], dim=1)
    with torch.no_grad():
        decoded = model.decode(said, model.encoder(ids))
        logits, *_ = model.distribution(decoded, None)
        expected = heads(said).logits
    assert_close(logits, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_loss_agrees_with_the_reference(kind):
    model = build(kind)
    weights, shape = reference(model, kind)
    with torch.no_grad():
        found = model.source_loss(batch(ALL)[0])
    losses = ([], [])
    for sample in ALL:
        for collected, ids in zip(losses, sources(sample)):
            collected += naive.source_losses(weights, shape, ids, {SPECIAL.me, SPECIAL.partner})
    assert_close(found, np.mean([np.mean(each) for each in losses]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_source_loss_without_sources_is_zero(kind):
    ids, _ = batch([SAMPLES["neither"]])
    assert build(kind).source_loss(ids).item() == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_forward_gathers_the_target(kind):
    model = build(kind)
    ids, ys = batch(ALL)
    with torch.no_grad():
        log_p, best, encoded, source_loss = model(ids, True, ys=ys)
        full, _ = model.decode_forced(encoded, ys)
        assert len(model(ids, ys=ys)) == 3
        assert_close(source_loss, model.source_loss(ids))
    assert_close(log_p, full.gather(2, ys.unsqueeze(2)))
    assert best.equal(full.argmax(dim=2))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_samples_one_by_one(kind):
    model = build(kind)
    for together, sample in zip(log_probs(model, ALL), ALL):
        assert_close(together, log_probs(model, [sample])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    model = build(kind)
    before, loss = log_probs(model, ALL), model.source_loss(batch(ALL)[0])
    with torch.no_grad():
        # large, but the same for the words' own scores, of which padding's is left out
        model.gpt.words.weight[SPECIAL.pad] += 50.0
    keep = [word for word in range(VOCABULARY) if word != SPECIAL.pad]
    for other, row in zip(log_probs(model, ALL, extra=4), before):
        assert_close(other[:, keep].log_softmax(1), row[:, keep].log_softmax(1))
    with torch.no_grad():
        model.gpt.words.weight[SPECIAL.pad] -= 50.0
    assert_close(model.source_loss(batch(ALL, extra=4)[0]), loss)


@pytest.mark.parametrize("kind", KINDS)
def test_each_source_matters_and_they_are_apart(kind):
    """Both reach the reply; neither reaches the other's encoding."""
    model, sample = build(kind), SAMPLES["plain"]
    for other in (
        sample._replace(persona=(W + 9, W + 1, W + 2)),
        sample._replace(turns=((W + 9, W + 4),)),
    ):
        before, after = log_probs(model, [sample, other])
        assert (before - after).abs().max(dim=1).values.min() > 1e-3
    changed = sample._replace(turns=((W + 9, W + 4),))
    with torch.no_grad():
        one, two = (model.encoder(batch([s])[0]) for s in (sample, changed))
    for mine, theirs in zip(one.keys, two.keys):
        persona = one.persona[0]
        assert_close(mine.key[:, :, persona], theirs.key[:, :, persona])
        assert (mine.key[:, :, ~persona] - theirs.key[:, :, ~persona]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_sources_are_read_in_both_directions(kind):
    model = build(kind)
    sample = SAMPLES["long"]
    changed = sample._replace(persona=(*sample.persona[:-1], W + 20))
    with torch.no_grad():
        one, two = (model.encoder(batch([s])[0]).keys[0].key for s in (sample, changed))
    assert (one[:, :, 1] - two[:, :, 1]).abs().max() > 1e-4, "the first word sees the last"


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_does_not_see_later_words(kind):
    model, sample = build(kind), SAMPLES["long"]
    before = log_probs(model, [sample])[0]
    for step in range(len(sample.reply) - 1):
        reply = (*sample.reply[:step], sample.reply[step] + 1, *sample.reply[step + 1 :])
        after = log_probs(model, [sample._replace(reply=reply)])[0]
        assert_close(after[: step + 1], before[: step + 1])
        assert not torch.allclose(after[step + 1], before[step + 1], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_incremental_decoding_with_reordered_beams(kind):
    model = build(kind)
    samples = [SAMPLES[name] for name in ("long", "no persona", "three turns")]
    beams, parents = [0, 0, 1, 1, 2, 2], [1, 1, 3, 2, 5, 5]
    torch.manual_seed(0)
    words = torch.randint(W, VOCABULARY, (6, 7))
    words[:, 0] = SPECIAL.start
    mixed = torch.cat([words[parents, :3], words[:, 3:]], dim=1)
    with torch.no_grad():
        encoded = model.reorder_encoder_states(model.encoder(batch(samples)[0]), beams)
        cache, found = None, []
        for length in range(1, 4):
            scores, cache = model.decoder(words[:, :length], encoded, cache)
        cache = model.reorder_decoder_incremental_state(cache, parents)
        for length in range(4, 8):
            scores, cache = model.decoder(mixed[:, :length], encoded, cache)
            found.append(scores)
        expected, _ = model.decoder(mixed, encoded)
    assert_close(torch.cat(found, dim=1), expected[:, 3:])


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind):
    model = build(kind).train()
    ids, ys = batch(ALL)
    log_p, _, _, source_loss = model(ids, True, ys=ys)
    (source_loss - log_p[ys.ne(SPECIAL.pad)].mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-8, f"{name} learns nothing"
