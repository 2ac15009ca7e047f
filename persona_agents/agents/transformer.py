"""The Transformer baseline: ``-m persona_agents:transformer``."""

from __future__ import annotations

import torch
from parlai.agents.transformer.transformer import TransformerGeneratorAgent

from persona_agents.agents import options
from persona_agents.agents.recipe import PersonaRecipe
from persona_agents.errors import PersonaAgentsError
from persona_agents.models.attention import at_least_float32

WARMUP = 4000  # updates
# The base model of Vaswani et al. (2017), and how that paper trains it: Adam without weight decay
# (AdamW's decay is off), rate d^-0.5 min(step^-0.5, step warmup^-1.5), here given by its peak.
BASE = {"embedding_size": 512, "n_heads": 8, "ffn_size": 2048, "n_layers": 6, "n_positions": 512}
RECIPE = {
    "betas": (0.9, 0.98),
    "adam_eps": 1e-9,
    "weight_decay": 0.0,
    "gradient_clip": 0.0,  # off
    "learningrate": (BASE["embedding_size"] * WARMUP) ** -0.5,
    "lr_scheduler": "invsqrt",
    "invsqrt_lr_decay_gamma": WARMUP,
    "warmup_updates": WARMUP,
}


class TransformerAgent(PersonaRecipe, TransformerGeneratorAgent):
    """
    ParlAI's transformer/generator in the size of Vaswani's base model, trained as that paper does.

    Of ``--bert-model`` it takes the vocabulary only. ``--lr-scheduler linear`` trains it by the
    schedule that the other agents have.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        parser.add_argument_group("Transformer").add_argument(
            "--label-smoothing",
            type=float,
            default=0.1,
            help="Share of a target word's probability that training spreads evenly over all "
            "words. Loss and perplexity are reported without it.",
        )
        parser.set_defaults(**BASE, **RECIPE)
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        options.check_sizes(opt, *BASE)
        if opt["embedding_size"] % opt["n_heads"]:
            raise PersonaAgentsError(
                f"--embedding-size {opt['embedding_size']} cannot be divided among --n-heads "
                f"{opt['n_heads']}: make it a multiple."
            )
        if not 0 <= opt.get("label_smoothing", 0) < 1:
            raise PersonaAgentsError(
                f"--label-smoothing {opt['label_smoothing']}: must be at least 0 and less than 1."
            )

    def _n_positions(self) -> int:
        return self.module.encoder.n_positions

    def training_loss(self, batch, loss, output):
        """Cross-entropy with smoothed labels."""
        share = self.opt["label_smoothing"]
        if not share:
            return loss
        return (1 - share) * loss + share * self.uniform_loss(output[0], batch.label_vec)

    def uniform_loss(self, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """
        Mean cross-entropy against a uniform distribution over the vocabulary.

        :param scores: (B, T, V) logits. [CLS] and [PAD] do not count: ParlAI makes [CLS]
            impossible.
        :param target: (B, T); the mean is that of the positions that are not padding.
        """
        never = torch.tensor([self.START_IDX, self.NULL_IDX], device=scores.device)
        log_p = at_least_float32(scores).log_softmax(dim=-1).index_fill(-1, never, 0.0)
        per_token = -log_p.sum(dim=-1) / (scores.size(-1) - len(never))  # (B, T)
        real = target.ne(self.NULL_IDX)
        return (per_token * real).sum() / real.sum()
