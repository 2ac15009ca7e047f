"""What the agents share that are built on a GPT."""

from __future__ import annotations

from torch import nn

from persona_agents import gpt
from persona_agents.agents.base import ScoringAgent
from persona_agents.agents.gpt_history import GPTHistory
from persona_agents.gpt_dictionary import ME, PARTNER, PERSONA, GPTDictionaryAgent
from persona_agents.models.gpt import SpecialIds


class GPTAgent(ScoringAgent):
    """
    An agent whose sizes, vocabulary and weights are those of ``--gpt-model``.

    Its input is ``<bos> persona <partner> turn <me> turn … <partner> query``. Sub-classes
    implement ``build_model`` from :meth:`double_heads`.
    """

    SAVED = ("gpt_config", "gpt_weights")

    @classmethod
    def dictionary_class(cls):
        return GPTDictionaryAgent

    @classmethod
    def history_class(cls):
        return GPTHistory

    @classmethod
    def check_options(cls, opt) -> None:
        gpt.GPT.check_options(opt)
        super().check_options(opt)

    @property
    def special_ids(self) -> SpecialIds:
        names = (PERSONA, ME, PARTNER)
        return SpecialIds(*super().special_ids, *(self.dict[name] for name in names))

    def _n_positions(self) -> int:
        return self.module.gpt.transformer.config.n_positions

    def double_heads(self) -> nn.Module:
        """transformers' double-heads model with a row for each word of the dictionary."""
        opt, size = self.opt, len(self.dict)
        saved = self.saved_opt(opt)
        pretrained = saved is None and not gpt.GPT.is_none(opt)
        if pretrained:
            config = gpt.load_config(gpt.GPT.resolve(opt))
        elif saved is None:
            config = gpt.small_config(opt, size)
        else:  # it brings its configuration along: neither hub nor folder is needed
            gpt.GPT.check_sizes_kept(opt, saved["gpt_config"])
            config = gpt.from_description(saved["gpt_config"])
            if config.vocab_size != size:
                gpt.GPT.reject_vocabulary(opt, config.vocab_size, size)
        gpt.set_dropout(config, opt["dropout"])
        if pretrained:
            model = gpt.load_weights(gpt.GPT.resolve(opt), config)
            gpt.resize(model, size)
        else:
            model = gpt.build(config)
        opt["gpt_config"] = gpt.describe(model.config)
        # whether they are a pretrained model's, for trainings that go on from this one too
        opt["gpt_weights"] = pretrained if saved is None else saved["gpt_weights"]
        return model

    def pretrained_parameters(self) -> list[nn.Parameter]:
        return list(self.module.gpt.parameters()) if self.opt["gpt_weights"] else []

    def _encoder_input(self, batch):
        return (batch.text_vec,)
