"""`parlai persona_zoo`: list the models, pack a trained one, verify a packed one.

    parlai persona_zoo
    parlai persona_zoo -mf models/hcm --pack hcm_cpc.zip --card-report report.json
    parlai persona_zoo --verify hcm_cpc.zip -t cpc --cpc-path FOLDER -dt test -bs 32

The `parlai` command imports this module at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script
from parlai.scripts import eval_model


@register_script("persona_zoo")
class PersonaZoo(ParlaiScript):
    """Models to share: their list, packing and verifying."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(True, True, "List, pack and verify models of persona_agents")
        eval_model.setup_args(parser)  # for --verify with a task
        parser.set_params(datatype="test")
        group = parser.add_argument_group("Packed models")
        group.add_argument(
            "--pack",
            default=None,
            metavar="ARCHIVE.zip",
            help="write the model of --model-file to this file: weights, dictionary, options without "
            "paths and accounts, model card, checksums; its own checksum goes to ARCHIVE.zip.sha256",
        )
        group.add_argument(
            "--half",
            type="bool",
            default=False,
            help="pack the weights in half precision (they are float32 again once loaded)",
        )
        group.add_argument(
            "--card-report",
            default=None,
            metavar="REPORT.json",
            help="what `parlai eval_model --report-filename REPORT.json` wrote: its metrics and their "
            "signatures go into the model card",
        )
        group.add_argument(
            "--card-license", default=None, help="what the model card says of the licence"
        )
        group.add_argument(
            "--verify",
            default=None,
            metavar="ARCHIVE.zip",
            help="check an archive and load its model; with --task evaluate it too, on --datatype",
        )
        return parser

    def run(self):
        """Do what the options ask for; returns the report of an evaluation, if there was one."""
        from persona_agents.scripts import zoo_commands

        return zoo_commands.main(self.opt)
