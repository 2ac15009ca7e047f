"""TransferTransfo against transformers' double-heads models, and what must not matter to it."""

from __future__ import annotations

from typing import NamedTuple

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
from torch.nn import functional as F

from persona_agents.models.transfertransfo import TransferTransfo

W = FIRST_WORD
END = SPECIAL.end


class Sample(NamedTuple):
    persona: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...]
    replies: tuple[tuple[int, ...], ...]  # the gold one first; without <bos>, ending in <eos>


SAMPLES = {
    "plain": Sample((W, W + 1), ((W + 3,),), ((W + 2, W + 5, END), (W + 7, END), (END,))),
    "long": Sample(
        tuple(range(W, W + 9)),
        (tuple(range(W + 5, W + 12)),),
        ((*range(W, W + 11), END), (W + 4, END), (W + 4, W + 4, END)),
    ),
    "three turns": Sample(
        (W + 1,), ((W,), (W + 9, W + 2), (W + 4,)), ((W + 3, END), (W + 6, W, END), (W + 1, END))
    ),
    "no persona": Sample((), ((W + 3, W + 8),), ((W + 4, END), (W, W, W, END), (W + 2, END))),
    "no query": Sample((W + 4,), ((),), ((W + 1, END), (W + 2, END), (W + 3, END))),
}
ALL = list(SAMPLES.values())


def build(kind, dtype=torch.float64):
    heads = double_heads(kind, dtype=dtype)
    return TransferTransfo(heads, SPECIAL).eval(), heads


def batch(samples, extra=0):
    """Inputs (B, S), gold replies (B, T) and distractors (B, N - 1, T)."""
    ids = pad([sequence(s.persona, *s.turns) for s in samples], extra)
    replies = pad([reply for s in samples for reply in s.replies], extra)
    replies = replies.unflatten(0, (len(samples), -1))
    return ids, replies[:, 0], replies[:, 1:]


def whole(sample, reply):
    """The sequence and the segments of a sample, spelled out: what TransferTransfo trains on."""
    ids = [SPECIAL.start, *sample.persona]
    segments = [SPECIAL.persona] * len(ids)
    for place, turn in enumerate([*sample.turns, reply]):
        speaker = SPECIAL.me if (len(sample.turns) - place) % 2 == 0 else SPECIAL.partner
        ids += [speaker, *turn]
        segments += [speaker] * (1 + len(turn))
    return ids, segments


def of_the_library(heads, samples):
    """Logits, choice logits and both losses of the double-heads model on spelled-out sequences."""
    sequences = [[whole(s, reply) for reply in s.replies] for s in samples]
    width = max(len(ids) for row in sequences for ids, _ in row)

    def stack(values, filler):
        rows = [v + [filler] * (width - len(v)) for v in values]
        return torch.tensor(rows).unflatten(0, (len(samples), -1))

    flat = [pair for row in sequences for pair in row]
    labels = [  # words of the gold reply only
        [*[-100] * (len(ids) - len(reply)), *(reply if reply is s.replies[0] else ())]
        for s, row in zip(samples, sequences)
        for (ids, _), reply in zip(row, s.replies)
    ]
    with torch.no_grad():
        return heads(
            input_ids=stack([ids for ids, _ in flat], SPECIAL.pad),
            token_type_ids=stack([segments for _, segments in flat], SPECIAL.pad),
            mc_token_ids=torch.tensor([[len(ids) - 1 for ids, _ in row] for row in sequences]),
            labels=stack(labels, -100),
            mc_labels=torch.zeros(len(samples), dtype=torch.long),
            return_dict=True,
        )


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 2e-5)])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_losses_are_the_librarys(kind, dtype, tolerance):
    model, heads = build(kind, dtype)
    expected = of_the_library(heads, ALL)
    ids, ys, distractors = batch(ALL)
    with torch.no_grad():
        log_p, best, encoded, choice = model(ids, distractors, ys=ys)
        full, _ = model.decode_forced(encoded, ys)
    for row, sample in enumerate(ALL):
        length, before = len(sample.replies[0]), len(whole(sample, ())[0])
        logits = expected.logits[row, 0, before - 1 : before - 1 + length]
        assert_close(full[row, :length], logits.log_softmax(-1), tolerance)
    assert_close(choice, expected.mc_logits, tolerance)
    assert_close(-log_p.squeeze(2)[ys.ne(SPECIAL.pad)].mean(), expected.loss, tolerance)
    loss = F.cross_entropy(choice, torch.zeros(len(ALL), dtype=torch.long))
    assert_close(loss, expected.mc_loss, tolerance)
    assert best.equal(full.argmax(dim=2))


@pytest.mark.parametrize("kind", KINDS)
def test_distractors_do_not_change_the_reply(kind):
    model, _ = build(kind)
    ids, ys, distractors = batch(ALL)
    with torch.no_grad():
        with_others, without = model(ids, distractors, ys=ys), model(ids, ys=ys)
    real = ys.ne(SPECIAL.pad)
    assert_close(with_others[0][real], without[0][real])
    assert len(with_others) == 4 and len(without) == 3


def everything(model, samples, extra=0):
    """log p (T_i, V) and choice logits (N,) of each sample."""
    ids, ys, distractors = batch(samples, extra)
    with torch.no_grad():
        _, _, encoded, choice = model(ids, distractors, ys=ys)
        scores, _ = model.decode_forced(encoded, ys)
    rows = [row[: len(s.replies[0])] for row, s in zip(scores, samples)]
    return list(zip(rows, choice))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_samples_one_by_one(kind):
    model, _ = build(kind)
    for (row, choice), sample in zip(everything(model, ALL), ALL):
        ((alone, choice_alone),) = everything(model, [sample])
        assert_close(row, alone)
        assert_close(choice, choice_alone)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_enters_neither_attention_nor_heads(kind):
    model, _ = build(kind)
    before = everything(model, ALL)
    with torch.no_grad():
        model.gpt.words.weight[SPECIAL.pad] += 50.0
    keep = [word for word in range(VOCABULARY) if word != SPECIAL.pad]
    for (row, choice), (wider, other) in zip(before, everything(model, ALL, extra=3)):
        # the output matrix is tied, so padding's own score, and nothing else, has changed
        assert_close(wider[:, keep].log_softmax(1), row[:, keep].log_softmax(1))
        assert_close(other, choice)


@pytest.mark.parametrize("kind", KINDS)
def test_incremental_decoding_with_reordered_beams(kind):
    model, _ = build(kind)
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
def test_segments_are_persona_partner_and_owner(kind):
    model, _ = build(kind)
    sample = SAMPLES["three turns"]
    _, segments = whole(sample, ())
    found = model.segment_tokens(torch.tensor([sequence(sample.persona, *sample.turns)]))
    assert found.tolist() == [segments[:-1]]


@pytest.mark.parametrize("with_choice", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_learns(kind, with_choice):
    model = TransferTransfo(double_heads(kind), SPECIAL, with_choice).train()
    ids, ys, distractors = batch(ALL)
    loss = 0
    if with_choice:
        log_p, _, _, choice = model(ids, distractors, ys=ys)
        loss = F.cross_entropy(choice, torch.zeros(len(ALL), dtype=torch.long))
    else:
        log_p, *_ = model(ids, ys=ys)
    (loss - log_p[ys.ne(SPECIAL.pad)].mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # the same is added to all choices
        if name != "choice_head.summary.bias":
            assert parameter.grad.abs().max() > 1e-8, f"{name} learns nothing"
