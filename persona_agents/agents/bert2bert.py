"""BERT2BERT: ``-m persona_agents:bert2bert``."""

from __future__ import annotations

from persona_agents import bert
from persona_agents.agents.base import PersonaGeneratorAgent
from persona_agents.models.bert2bert import BERT2BERT


class BERT2BERTAgent(PersonaGeneratorAgent):
    """BERT as encoder and as decoder (:mod:`persona_agents.models.bert2bert`)."""

    SAVED = ("bert_config", "new_parts")

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        bert.add_size_args(parser)
        return parser

    def build_model(self) -> BERT2BERT:
        opt = self.opt
        saved = self.saved_opt(opt)
        config, pretrained = self.bert_config(saved)
        pair, new_parts = bert.encoder_decoder(
            config, opt["n_decoder_layers"], bert.resolve(opt) if pretrained else None
        )
        # what is not BERT's, for trainings that go on from this one too
        opt["new_parts"] = new_parts if saved is None else saved["new_parts"]
        return BERT2BERT(pair, self.special_ids)

    def _n_positions(self) -> int:
        return self.module.pair.encoder.config.max_position_embeddings

    def pretrained_parameters(self):
        named = self.module.pair.named_parameters()
        return [p for name, p in named if not any(part in name for part in self.opt["new_parts"])]
