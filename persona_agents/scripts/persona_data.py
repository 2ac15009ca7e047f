"""`parlai persona_data`: what a persona task's data look like, and what the filter drops.

    parlai persona_data -t cpc --cpc-path FOLDER
    parlai persona_data -t convai2 --json-file sizes.json --picture-file lengths.png

It prints the samples of each split, persona sentences per sample, lengths, what the splits have in
common, and kept and dropped pairs by reason with examples. The `parlai` command imports this module
at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script


@register_script("persona_data")
class PersonaData(ParlaiScript):
    """Statistics of one persona task."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(
            True, False, "Describe a persona task's data and what is filtered out"
        )
        group = parser.add_argument_group("Statistics of persona data")
        group.add_argument(
            "--examples-per-reason",
            type=int,
            default=3,
            help="how many dropped pairs are shown for each reason",
        )
        group.add_argument(
            "--json-file", default=None, help="write everything to this file as JSON"
        )
        group.add_argument(
            "--picture-file",
            default=None,
            help="write the distributions of lengths to this file (.png, .svg, .pdf); "
            "needs matplotlib",
        )
        return parser

    def run(self):
        """Print the statistics and return them as plain data."""
        from persona_agents.scripts import statistics

        return statistics.main(self.opt)
