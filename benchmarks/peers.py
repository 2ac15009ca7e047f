"""What the speed benchmarks compare: HCM, a naive HCM, BERT2BERT and ParlAI's Transformer, all of one size."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import torch
from parlai.core.agents import create_agent, create_agent_from_shared
from parlai.core.message import Message
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.scripts.build_dict import build_dict
from parlai.scripts.train_model import setup_args
from torch import nn
from transformers import BertConfig, BertModel, EncoderDecoderConfig, EncoderDecoderModel

from persona_agents.models.hcm import HCM, SpecialIds
from persona_agents.persona import format_turn

SPECIAL = SpecialIds(pad=0, start=2, end=3, unknown=1)
LENGTH_MARK = 1000  # first of the ids that tell a model how long its reply is to be


class Size(NamedTuple):
    """Sizes of encoder and decoder; the defaults are those of docs/speed.md."""

    d: int = 384
    heads: int = 12
    ffn: int = 1536
    layers: int = 6
    vocabulary: int = 21_128  # bert-base-chinese's

    def bert(self, **more) -> BertConfig:
        return BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.d,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.ffn,
            pad_token_id=SPECIAL.pad,
            **more,
        )


SIZES = {"small": Size(), "base": Size(768, 12, 3072, 12)}  # base: BERT-base's


class NaiveHCM(HCM):
    """HCM as the equations stand: one-hot matrices, and the mixture of the whole vocabulary."""

    def score(self, encoded, ys):
        decoded = self.decode(self._shift_right(ys), encoded)
        logits, modes, sources = self.distribution(decoded, encoded)
        one_hot = nn.functional.one_hot(sources.ids, logits.size(-1)).to(logits.dtype)  # (B, S, V)
        mixed = modes.generate.exp().unsqueeze(-1) * logits.softmax(dim=-1)  # (B, T, V)
        for mode, attention in ((modes.query, sources.query), (modes.persona, sources.persona)):
            mixed = mixed + mode.exp().unsqueeze(-1) * (attention @ one_hot)
        log_p = mixed.clamp_min(1e-9).log()
        return log_p.gather(-1, ys.unsqueeze(-1)).squeeze(-1), mixed.argmax(dim=-1)


def hcm(size: Size, kind=HCM) -> HCM:
    """HCM, or another ``kind`` of it, with random weights."""
    return kind(BertModel(size.bert(), add_pooling_layer=False), SPECIAL, size.layers)


def bert2bert(size: Size) -> EncoderDecoderModel:
    """transformers' model of BERT2BERT, with random weights."""
    config = EncoderDecoderConfig.from_encoder_decoder_configs(
        size.bert(), size.bert(is_decoder=True, add_cross_attention=True)
    )
    config.decoder_start_token_id, config.eos_token_id = SPECIAL.start, SPECIAL.end
    config.pad_token_id, config.vocab_size = SPECIAL.pad, size.vocabulary
    return EncoderDecoderModel(config=config)


def batch(size: Size, n: int, source: int, target: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs (n, source), two thirds of them persona, and replies (n, target)."""
    ids = torch.randint(10, size.vocabulary, (n, source))
    middle = source * 2 // 3
    ids[:, 0] = ids[:, middle + 1] = SPECIAL.start
    ids[:, middle] = ids[:, -1] = SPECIAL.end
    ys = torch.randint(10, size.vocabulary, (n, target))
    ys[:, -1] = SPECIAL.end
    return ids, ys


# -- agents that reply -----------------------------------------------------------------------------


class Ending(nn.Module):
    """
    A model of ParlAI's kind whose replies have given lengths, whatever its weights are.

    The input's second id says the length: LENGTH_MARK + number of words.
    """

    def __init__(self, model: nn.Module, end: int):
        super().__init__()
        self.inner, self.end = model, end
        self.beams_share_input = getattr(model, "beams_share_input", False)

    def encoder(self, ids, *more):
        return self.inner.encoder(ids, *more), ids[:, 1] - LENGTH_MARK

    def decoder(self, words, encoded, state=None):
        states, lengths = encoded
        if self.beams_share_input:
            lengths = lengths.repeat_interleave(len(words) // len(lengths))
        scores, state = self.inner.decoder(words, states, state)
        scores = self.inner.output(scores[:, -1:])
        set_end(scores[:, 0], self.end, lengths.eq(words.size(1) - 1))
        return scores, state

    def output(self, scores):
        return scores

    def reorder_encoder_states(self, encoded, rows):
        states, lengths = encoded
        return self.inner.reorder_encoder_states(states, rows), lengths[rows]

    def reorder_decoder_incremental_state(self, state, rows):
        return self.inner.reorder_decoder_incremental_state(state, rows)


def set_end(scores: torch.Tensor, end: int, ends: torch.Tensor) -> None:
    """Make the end certain in the rows (R,) where it is due, and impossible in the others."""
    scores[:, end] = torch.where(ends, 1e4, -1e4).to(scores.dtype)


def agent(name: str, args, folder: str, **settings):
    """
    An agent of this package with random weights, and Chinese characters as its vocabulary.

    :param args: its ``size``, and ``device``: cpu or cuda.
    """
    size = args.size
    bert_folder = Path(folder) / f"bert-{size.d}"
    if not bert_folder.is_dir():
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words += [chr(code) for code in range(33, 127)]
        words += [chr(code) for code in range(0x4E00, 0x4E00 + size.vocabulary - len(words))]
        BertModel(size.bert(), add_pooling_layer=False).save_pretrained(bert_folder)
        (bert_folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    opt = setup_args().parse_kwargs(
        model=f"persona_agents:{name}",
        bert_model=str(bert_folder),
        model_file=str(Path(folder) / f"{name}-{size.d}"),
        loglevel="error",
        no_cuda=args.device == "cpu",
        **task(),
        **settings,
    )
    opt["dict_file"] = opt["model_file"] + ".dict"
    build_dict(opt, skip_if_built=True)
    return create_agent(opt)


def transformer(args, folder: str, **settings):
    """ParlAI's transformer/generator."""
    size = args.size
    sizes = {"embedding_size": size.d, "n_heads": size.heads, "ffn_size": size.ffn}
    return agent("transformer", args, folder, n_layers=size.layers, **sizes, **settings)


def task() -> dict:
    """Options of the real Chinese corpus where it is at hand, else of the bundled one."""
    data = os.environ.get("PERSONA_AGENTS_DATA")
    if data:
        return {"task": "cpc:raw", "cpc_path": str(Path(data) / "cpc")}
    return {"task": "cpc:mini"}


def batches(agent, n: int, size: int, marked: bool = True) -> list:
    """
    The agent's batches of n held-out samples as they come, replies in ``label_vec``.

    They are those of "valid", then of "test", which has few in the public sample of CPC; repeated
    only if both have fewer than n.
    """
    held_out = []
    for split in ("valid", "test"):
        (teacher,) = create_task_agent_from_taskname({**agent.opt, "datatype": split})
        held_out += teacher.samples
    samples = list(itertools.islice(itertools.cycle(held_out), n))
    clone, found = create_agent_from_shared(agent.share()), []
    for begin in range(0, n, size):
        observations = []
        for persona, query, response in samples[begin : begin + size]:
            text = format_turn(persona, query)
            message = {"text": text, "eval_labels": [response], "episode_done": True}
            observations.append(clone.observe(Message(message)))
            clone.reset()
        found.append(agent.batchify(observations))
        if marked:
            words = found[-1].label_vec.ne(agent.NULL_IDX).sum(dim=1) - 1
            found[-1].text_vec[:, 1] = LENGTH_MARK + words
        if agent.use_cuda:
            found[-1] = found[-1].to("cuda")
    return found


# -- measuring -------------------------------------------------------------------------------------


def seconds(call) -> float:
    """Wall-clock time of one call."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def compare(calls: dict, repeats: int) -> dict[str, float]:
    """Median seconds of each call; they take turns, after one round that does not count."""
    times = {name: [] for name in calls}
    for _ in range(repeats + 1):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return {name: statistics.median(measured[1:]) for name, measured in times.items()}
