"""The pointer-generator baseline: ``-m persona_agents:pgn``."""

from __future__ import annotations

from parlai.core.metrics import AverageMetric

from persona_agents.agents import options
from persona_agents.agents.base import ScoringAgent
from persona_agents.agents.provenance import Provenance
from persona_agents.agents.s2sa import SIZES
from persona_agents.models.pgn import PGN


class PGNAgent(Provenance, ScoringAgent):
    """
    ``s2sa`` with a pointer network over its whole input (:class:`persona_agents.models.pgn.PGN`).

    Of ``--bert-model`` it takes the vocabulary only.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("PGN")
        for name, what in (
            ("hiddensize", "Size of the LSTMs' states"),
            ("embeddingsize", "Size of the word embeddings"),
            ("numlayers", "Layers of the encoder's LSTM and of the decoder's"),
        ):
            group.add_argument(f"--{name}", type=int, default=SIZES[name], help=f"{what}.")
        group.add_argument(
            "--coverage",
            type="bool",
            default=False,
            help="Attention sees where it has been, and a loss (of weight 1) discourages going "
            "there again, against repetition. Perplexity is reported without that loss.",
        )
        return parser

    @classmethod
    def check_options(cls, opt) -> None:
        super().check_options(opt)
        options.check_sizes(opt, *SIZES)

    def build_model(self) -> PGN:
        opt = self.opt
        return PGN(
            len(self.dict),
            self.special_ids,
            opt["embeddingsize"],
            opt["hiddensize"],
            opt["numlayers"],
            opt["dropout"],
            opt["coverage"],
        )

    def training_loss(self, batch, loss, output):
        """Eq. 13: with coverage, the mean of -log p and of the coverage loss."""
        if not self.opt["coverage"]:
            return loss
        coverage_loss, real = output[3], batch.label_vec.ne(self.NULL_IDX)  # (B, T)
        metric = AverageMetric.from_mask(coverage_loss, real)
        self.record_local_metric("coverage_loss", metric)
        return loss + (coverage_loss * real).sum() / real.sum()
