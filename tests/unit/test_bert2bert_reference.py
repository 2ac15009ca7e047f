"""BERT2BERT against transformers' EncoderDecoderModel on the same weights, and its beams."""

from __future__ import annotations

import zlib

import pytest
import torch
import transformers

from persona_agents import bert
from persona_agents.models.bert2bert import BERT2BERT
from persona_agents.models.generator import SpecialIds

PAD, START, END, UNKNOWN, WORD = 0, 1, 2, 3, 4
SPECIAL = SpecialIds(PAD, START, END, UNKNOWN)
VOCABULARY = 23
INPUTS = [  # [CLS] persona [SEP] [CLS] query [SEP]
    [START, 5, 6, 7, END, START, 8, 9, END],
    [START, 12, END, START, 13, END],
    [START, END, START, 20, 21, 22, 5, 6, 7, 9, END],
    [START, 4, 4, 4, END, START, END],
]
REPLIES = [[5, 6, END], [7, END], [8, 9, 10, 11, 12, END], [END]]
# Its attention and masks are the library's, which computes masks and softmax as it likes.
EXACT = 1e-6


def config(dropout=0.0):
    return transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=24, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, pad_token_id=PAD,
    )  # fmt: skip


def build(n_decoder_layers=2):
    """Weights that depend on their names alone, not on the library's version."""
    pair, _ = bert.encoder_decoder(config(), n_decoder_layers, None)
    with torch.no_grad():
        for name, parameter in pair.named_parameters():
            torch.manual_seed(zlib.crc32(name.encode()))
            parameter.copy_(0.4 * torch.randn_like(parameter))
            if name.endswith("LayerNorm.weight"):
                parameter.add_(1.0)
    return BERT2BERT(pair, SPECIAL).eval()


def pad(rows, extra=0):
    width = max(map(len, rows)) + extra
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def segments(ids):
    return (ids.eq(START).cumsum(1) > 1).long()


def of_the_library(model, ids, ys):
    """What EncoderDecoderModel itself says, labels unshifted and padding ignored."""
    pair = model.pair
    pair.config.decoder_start_token_id, pair.config.pad_token_id = START, PAD
    with torch.no_grad():
        return pair(
            input_ids=ids,
            attention_mask=ids.ne(PAD).long(),
            token_type_ids=segments(ids),
            labels=ys.masked_fill(ys.eq(PAD), -100),
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_decoder_layers", [1, 2])
def test_logits_and_loss_are_the_librarys(n_decoder_layers):
    model, ids, ys = build(n_decoder_layers), pad(INPUTS), pad(REPLIES)
    expected = of_the_library(model, ids, ys)
    with torch.no_grad():
        log_p, best, encoded = model(ids, ys)
        full, _ = model.decode_forced(encoded, ys)
    real = ys.ne(PAD)
    logits = expected.logits[real]
    torch.testing.assert_close(full[real], logits.log_softmax(-1), atol=EXACT, rtol=EXACT)
    assert best[real].equal(logits.argmax(-1))
    loss = -log_p.squeeze(2)[real].mean()
    torch.testing.assert_close(loss, expected.loss, atol=EXACT, rtol=EXACT)


def greedy(model, ids, length):
    """Replies word by word from the cache, as search asks for them."""
    encoded = model.encoder(ids)
    words, cache = torch.full((len(ids), 1), START), None
    ended = torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(length):
        scores, cache = model.decoder(words, encoded, cache)
        word = scores[:, -1].argmax(-1).masked_fill(ended, PAD)
        words, ended = torch.cat([words, word[:, None]], dim=1), ended | word.eq(END)
    return words


@pytest.mark.filterwarnings("ignore")
def test_greedy_replies_are_those_of_generate():
    model, ids, ys = build(), pad(INPUTS), pad(REPLIES)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):  # until the replies differ, in length too
        log_p, _, _ = model(ids, ys)
        optimizer.zero_grad()
        (-log_p.squeeze(2)[ys.ne(PAD)].mean()).backward()
        optimizer.step()
    with torch.no_grad():
        found = greedy(model, ids, 8)
        expected = model.pair.generate(
            input_ids=ids, attention_mask=ids.ne(PAD).long(), token_type_ids=segments(ids),
            max_new_tokens=8, min_length=0, do_sample=False, num_beams=1,
            decoder_start_token_id=START, bos_token_id=START, eos_token_id=END, pad_token_id=PAD,
        )  # fmt: skip
    lengths = {int(row.ne(PAD).sum()) for row in found}
    assert len(lengths) > 2, "a ragged batch of replies"
    assert found[:, : expected.size(1)].equal(expected)
    assert found[:, expected.size(1) :].eq(PAD).all()


def rows_of(model, ids, ys):
    with torch.no_grad():
        scores, _ = model.decode_forced(model.encoder(ids), ys)
    return [row[: int(y.ne(PAD).sum())] for row, y in zip(scores, ys)]


def test_padding_and_the_rest_of_the_batch_change_nothing():
    model = build()
    together = rows_of(model, pad(INPUTS, extra=3), pad(REPLIES, extra=2))
    for row, ids, reply in zip(together, INPUTS, REPLIES):
        (alone,) = rows_of(model, pad([ids]), pad([reply]))
        torch.testing.assert_close(row, alone, atol=EXACT, rtol=EXACT)


def test_labels_are_shifted_once():
    """The first word is predicted from [CLS] alone, and changing it leaves that prediction."""
    model, ids = build(), pad(INPUTS[:1])
    one, two = (rows_of(model, ids, pad([[word, 6, END]]))[0] for word in (5, 9))
    torch.testing.assert_close(one[0], two[0])
    assert (one[1] - two[1]).abs().max() > 1e-3


@pytest.mark.parametrize("as_list", [True, False])
def test_incremental_decoding_with_reordered_beams(as_list):
    model, ids = build(), pad(INPUTS[:3])
    beams, parents = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1, 1, 3, 2, 5, 5])
    torch.manual_seed(0)
    words = torch.randint(WORD, VOCABULARY, (6, 7))
    words[:, 0] = START
    mixed = torch.cat([words[parents, :3], words[:, 3:]], dim=1)
    if as_list:
        beams, parents = beams.tolist(), parents.tolist()
    with torch.no_grad():
        encoded = model.reorder_encoder_states(model.encoder(ids), beams)
        cache, found = None, []
        for length in range(1, 4):
            scores, cache = model.decoder(words[:, :length], encoded, cache)
        cache = model.reorder_decoder_incremental_state(cache, parents)
        for length in range(4, 8):
            scores, cache = model.decoder(mixed[:, :length], encoded, cache)
            found.append(scores)
        expected, _ = model.decoder(mixed, encoded)
    torch.testing.assert_close(torch.cat(found, 1), expected[:, 3:], atol=EXACT, rtol=EXACT)


def test_every_parameter_learns():
    model, ids, ys = build().train(), pad(INPUTS), pad(REPLIES)
    log_p, _, _ = model(ids, ys)
    (-log_p.squeeze(2)[ys.ne(PAD)].mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # a key's bias moves all scores alike: softmax takes it away
        assert parameter.grad.abs().max() > 1e-8 or name.endswith("key.bias"), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("with_head", [True, False])
def test_both_sides_start_from_bert(tmp_path, with_head):
    torch.manual_seed(2)
    saved = (transformers.BertForMaskedLM if with_head else transformers.BertModel)(config())
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    saved.save_pretrained(tmp_path)
    own = (
        saved.state_dict() if with_head else {f"bert.{k}": v for k, v in saved.state_dict().items()}
    )
    pair, new_parts = bert.encoder_decoder(config(), 2, str(tmp_path))
    assert new_parts == (["crossattention"] if with_head else ["cls.predictions", "crossattention"])
    for side in (pair.encoder, pair.decoder):
        names = dict(side.named_parameters())
        for name, value in names.items():
            key = name if side is pair.decoder else f"bert.{name}"
            if not any(part in key for part in new_parts):
                assert torch.equal(value, own[key]), name
        assert not any("pooler" in name for name in names)
    tied = pair.decoder.cls.predictions.decoder.weight
    assert tied is pair.decoder.bert.embeddings.word_embeddings.weight
    mine = pair.encoder.embeddings.word_embeddings.weight
    assert mine.data_ptr() != tied.data_ptr(), "two BERTs, not one shared"
