"""The multi-input Transformer of "Lost in Conversation": ``-m persona_agents:lic``."""

from __future__ import annotations

from parlai.core.metrics import AverageMetric

from persona_agents.agents.gpt_base import GPTAgent
from persona_agents.errors import PersonaAgentsError
from persona_agents.models.lic import LIC


class LICAgent(GPTAgent):
    """A GPT that encodes persona and query apart and decodes (:mod:`persona_agents.models.lic`)."""

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        parser.add_argument_group("LIC").add_argument(
            "--source-lm-weight",
            type=float,
            default=0.5,
            help="Weight of the auxiliary loss: predicting each word of persona and query from "
            "those before it. 0 leaves it out.",
        )
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        if opt.get("source_lm_weight", 0) < 0:
            raise PersonaAgentsError("--source-lm-weight must not be negative.")

    def build_model(self) -> LIC:
        return LIC(self.double_heads().transformer, self.special_ids)

    def _model_input(self, batch):
        return batch.text_vec, self.model.training and self.opt["source_lm_weight"] > 0

    def training_loss(self, batch, loss, output):
        if len(output) == 3:
            return loss
        source_loss = output[3]
        rows = [source_loss.item()] * len(output[1])
        self.record_local_metric("source_loss", AverageMetric.many(rows))
        return loss + self.opt["source_lm_weight"] * source_loss
