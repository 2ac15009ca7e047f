"""TransferTransfo: ``-m persona_agents:transfertransfo``."""

from __future__ import annotations

import torch
from parlai.core.metrics import AverageMetric
from torch.nn import functional as F

from persona_agents.agents.distractors import Distractors
from persona_agents.agents.gpt_base import GPTAgent
from persona_agents.errors import PersonaAgentsError
from persona_agents.models.transfertransfo import TransferTransfo


class TransferTransfoAgent(GPTAgent):
    """
    A GPT fine-tuned on persona, dialogue and reply (:mod:`persona_agents.models.transfertransfo`).

    Its training loss is the reply's, plus that of choosing the reply among distractors. (Where
    several batches make an update, each weighs by its tokens, in both.)
    """

    distractors = None

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("TransferTransfo")
        group.add_argument(
            "--n-candidates",
            type=int,
            default=2,
            help="Replies to choose the right one from in training: it and N-1 of other samples. 1 "
            "trains the language model alone.",
        )
        group.add_argument(
            "--lm-weight",
            type=float,
            default=1.0,
            help="Weight of the reply's language-model loss.",
        )
        group.add_argument(
            "--choice-weight", type=float, default=1.0, help="Weight of the choice's loss."
        )
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        if opt.get("n_candidates", 2) < 1:
            raise PersonaAgentsError(f"--n-candidates {opt['n_candidates']}: must be at least 1.")
        for name in ("lm_weight", "choice_weight"):
            if opt.get(name, 1.0) < 0:
                raise PersonaAgentsError(f"--{name.replace('_', '-')} must not be negative.")

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        # Input, start and reply share the positions; half of them at least are the input's.
        limit = self._n_positions()
        self.label_truncate = min(self.label_truncate, limit // 2 - 1)
        self.text_truncate = min(self.text_truncate, limit - 1 - self.label_truncate)
        if shared is None:
            self.distractors = Distractors(opt, self._encode_reply)

    def build_model(self) -> TransferTransfo:
        return TransferTransfo(
            self.double_heads(), self.special_ids, with_choice=self.opt["n_candidates"] > 1
        )

    # -- choice among replies --------------------------------------------------------------------

    def _encode_reply(self, text: str) -> list[int]:
        return self._vectorize_text(text, False, True, self.label_truncate, False).tolist()

    def _model_input(self, batch):
        """While training, with distractors (B, N - 1, T)."""
        count = self.opt["n_candidates"] - 1
        if not (self.model.training and count):
            return (batch.text_vec,)
        drawn = []
        for text, label in zip(batch.text_vec.tolist(), batch.label_vec.tolist()):
            text, gold = ([i for i in ids if i != self.NULL_IDX] for ids in (text, label))
            # the same at every resumption, another in every epoch
            key = f"{self.opt.get('seed')} {self._number_training_updates} {text} {gold}"
            drawn += self.distractors.draw(gold, count, key)
        distractors, _ = self._pad_tensor([torch.LongTensor(ids) for ids in drawn], is_label=True)
        distractors = distractors.to(batch.text_vec.device)
        return batch.text_vec, distractors.unflatten(0, (-1, count))

    def training_loss(self, batch, loss, output):
        loss = self.opt["lm_weight"] * loss
        if len(output) == 3:
            return loss
        logits = output[3].float()  # (B, N)
        losses = F.cross_entropy(logits, torch.zeros_like(logits[:, 0]).long(), reduction="none")
        self.record_local_metric("choice_loss", AverageMetric.many(losses.tolist()))
        right = logits.argmax(dim=1).eq(0)
        self.record_local_metric("choice_acc", AverageMetric.many(right.tolist()))
        return loss + self.opt["choice_weight"] * losses.mean()

    def candidate_losses(self, encoded, ys):
        """Minus the choice logits, where the model has learnt to choose."""
        if self.module.choice_head is None:
            return super().candidate_losses(encoded, ys)
        hidden = self.module.decode_whole(ys, encoded).hidden
        return -self.module.choice(hidden.unsqueeze(0), ys.unsqueeze(0)).squeeze(0).float()
