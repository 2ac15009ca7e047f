"""The paper's agent: ``-m persona_agents:hcm``."""

from __future__ import annotations

from persona_agents import bert
from persona_agents.agents.base import PersonaGeneratorAgent
from persona_agents.agents.provenance import Provenance
from persona_agents.models.hcm import HCM


class HCMAgent(Provenance, PersonaGeneratorAgent):
    """
    BERT encoder and hierarchical copy decoder (:class:`persona_agents.models.hcm.HCM`).

    Its defaults are the paper's settings. The ablations: ``--bert-init embeddings`` is "w/o BERT",
    ``--copy none`` is "w/o HCM".
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        bert.add_size_args(parser)
        group = parser.add_argument_group("HCM")
        group.add_argument(
            "--bert-init",
            choices=("all", "embeddings", "none"),
            default="all",
            help="What is loaded from BERT: everything; the embeddings only, with a random encoder "
            "(the paper's w/o BERT); or nothing but sizes and vocabulary.",
        )
        group.add_argument(
            "--copy",
            choices=("hierarchical", "flat", "none"),
            default="hierarchical",
            help="The paper's two-level copy mechanism; one gate over the mean of both copy "
            "distributions; or none (the paper's w/o HCM).",
        )
        return parser

    def build_model(self) -> HCM:
        opt = self.opt
        saved = self.saved_opt(opt)
        config, load_weights = self.bert_config(saved)
        init = opt["bert_init"] if load_weights else "none"
        # which weights are BERT's, for this training and for those that go on from it
        opt["bert_parts"] = init if saved is None else saved.get("bert_parts", "none")
        model = HCM(
            bert.build(config) if init != "all" else bert.load_weights(bert.resolve(opt), config),
            self.special_ids,
            opt["n_decoder_layers"],
            opt["copy"],
            opt["dropout"],
        )
        if init == "embeddings":
            pretrained = bert.load_weights(bert.resolve(opt), config)
            model.bert.embeddings.load_state_dict(pretrained.embeddings.state_dict())
        if init != "none":
            model.start_generator_from_embeddings()
        return model

    def pretrained_parameters(self):
        parts = self.opt["bert_parts"]
        if parts == "none":
            return []
        part = self.module.bert if parts == "all" else self.module.bert.embeddings
        return list(part.parameters())
