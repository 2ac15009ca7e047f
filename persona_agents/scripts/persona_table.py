"""`parlai persona_table`: the paper's tables on your data, from one command.

    parlai persona_table --table-file table.yml --output-folder OUT --jobs 2

trains and evaluates every system of the YAML file and writes tables, pictures and everything behind
them into the folder OUT. Given again, it goes on where it was stopped. The `parlai` command imports
this module at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from persona_agents.table.schema import SCHEMA


@register_script("persona_table")
class PersonaTable(ParlaiScript):
    """Systems by metrics, ablations, replies side by side (the paper's Tables 2, 3, 6 and 7)."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(
            False, False, "Train, evaluate and compare systems, as one YAML file says"
        )
        group = parser.add_argument_group("Tables")
        group.add_argument(
            "--table-file",
            default=None,
            metavar="FILE.yml",
            help="what is to be compared, see below",
        )
        group.add_argument(
            "--output-folder",
            default=None,
            help="where everything is written; in a folder where an earlier run was stopped, what "
            "is not done yet is done",
        )
        group.add_argument(
            "--jobs", type=int, default=1, help="how many systems are trained side by side"
        )
        parser.add_argument_group("The YAML file", SCHEMA)
        return parser

    def run(self):
        """Make the tables and return their rows as plain data."""
        from persona_agents.table import main

        return main.main(self.opt)
