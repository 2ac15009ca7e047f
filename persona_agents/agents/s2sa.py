"""The LSTM baseline: ``-m persona_agents:s2sa``."""

from __future__ import annotations

from parlai.agents.seq2seq.seq2seq import Seq2seqAgent

from persona_agents.agents import options
from persona_agents.agents.recipe import PersonaRecipe
from persona_agents.errors import PersonaAgentsError

# The paper's sizes, which pgn has as well.
SIZES = {"hiddensize": 512, "embeddingsize": 512, "numlayers": 2}
# What a batch says of each input before truncation.
COUNTS = ("_context_original_length", "_context_truncate_rate", "_context_truncated_length")


class S2SAAgent(PersonaRecipe, Seq2seqAgent):
    """
    ParlAI's seq2seq as the paper has it: two LSTM layers of 512 with general attention (Luong).

    Of ``--bert-model`` it takes the vocabulary only; ParlAI's options of seq2seq remain.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        parser.set_defaults(attention="general", **SIZES)
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        options.check_sizes(opt, *SIZES, "numsoftmax")
        if opt.get("decoder") == "shared" and opt.get("bidirectional"):
            raise PersonaAgentsError(
                "--decoder shared does not work with --bidirectional true: leave one out."
            )

    def build_model(self, states=None):
        if self.NULL_IDX != 0:
            raise PersonaAgentsError(
                f"--bert-model {self.opt.get('bert_model')}: its [PAD] has the id {self.NULL_IDX}, "
                "but ParlAI's seq2seq takes 0 for padding. Give a BERT whose [PAD] is 0, or `none`."
            )
        return super().build_model(states)

    def batchify(self, *args, **kwargs):
        """ParlAI's, which sorts the batch by length, but not the counts of what was cut."""
        batch = super().batchify(*args, **kwargs)
        if batch.valid_indices is not None:
            order = batch.valid_indices.argsort().argsort()
            for name in COUNTS:
                if batch.get(name) is not None:
                    batch[name] = batch[name][order]
        return batch
