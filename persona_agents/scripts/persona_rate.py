"""`parlai persona_rate`: human evaluation, from the systems' replies to the table.

    parlai persona_rate prepare STUDY --systems hcm=hcm.jsonl bert2bert=b2b.jsonl
    parlai persona_rate launch STUDY
    parlai persona_rate compile STUDY

The `parlai` command imports this module at every start, so the work, and Mephisto, are elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from persona_agents.errors import PersonaAgentsError

ACTIONS = ("prepare", "launch", "compile")


@register_script("persona_rate")
class PersonaRate(ParlaiScript):
    """Human evaluation of replies on Mephisto."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(False, False, "Let people rate replies: prepare, launch, compile")
        # One positional argument for both words, checked when run: ParlAI parses the command line a
        # second time with the command's own name in front.
        parser.add_argument(
            "words",
            nargs="*",
            metavar="ACTION STUDY",
            help="prepare STUDY: draw samples from systems' replies and make a folder for them; "
            "launch STUDY: show them to reviewers (needs Mephisto); "
            "compile STUDY: tables of what they said (needs Mephisto)",
        )
        cls._add_prepare_arguments(parser.add_argument_group("prepare"))
        launch = parser.add_argument_group("launch")
        launch.add_argument(
            "--config",
            choices=["local", "mturk_sandbox", "mturk"],
            default="local",
            help="where reviewers come from: this machine, Mechanical Turk's sandbox, or itself",
        )
        launch.add_argument(
            "--set",
            nargs="+",
            default=[],
            metavar="SETTING=VALUE",
            help="change settings of that configuration, e.g. mephisto.architect.port=3001",
        )
        compile_group = parser.add_argument_group("compile")
        compile_group.add_argument(
            "--without-failing",
            type="bool",
            default=False,
            help="leave out the reviewers who failed more than half of their attention checks",
        )
        return parser

    @staticmethod
    def _add_prepare_arguments(group):
        group.add_argument(
            "--systems",
            nargs="+",
            default=[],
            metavar="NAME=FILE",
            help="replies of each system: a world log of eval_model --world-logs, or lines of "
            '{"persona": [...], "query": "...", "reply": "...", "references": [...]}. A folder '
            "TABLE/TASK of persona_table stands for all systems trained there",
        )
        group.add_argument(
            "--test-set", default=None, help="whose replies are taken from such a folder"
        )
        group.add_argument("--samples", type=int, default=100, help="how many samples are drawn")
        group.add_argument("--seed", type=int, default=0, help="of the draw and of the order")
        group.add_argument(
            "--reviewers", type=int, default=3, help="different reviewers for each item"
        )
        group.add_argument(
            "--form",
            choices=["scales", "pairs"],
            default="scales",
            help="scales: each reply gets 0, 1 or 2 in three respects; pairs: the replies of two "
            "systems stand side by side",
        )
        group.add_argument(
            "--gold", type="bool", default=False, help="add the gold replies as one more system"
        )
        group.add_argument(
            "--attention-checks",
            type=int,
            default=0,
            help="mix in this many items that say what to choose",
        )
        group.add_argument(
            "--page-language",
            choices=["auto", "en", "zh"],
            default="auto",
            help="language of the page; auto: of the queries",
        )

    def run(self):
        """Do what was asked; returns its result as plain data."""
        words = self.opt["words"]
        if len(words) != 2 or words[0] not in ACTIONS:
            raise PersonaAgentsError(
                f"Say what to do with which folder: parlai persona_rate {'|'.join(ACTIONS)} STUDY"
            )
        self.study = words[1]
        return getattr(self, words[0])()

    def prepare(self):
        """Make a study."""
        from persona_agents.crowdsourcing.prepare import prepare
        from persona_agents.crowdsourcing.replies import find_systems

        if not self.opt["systems"]:
            raise PersonaAgentsError("prepare needs the replies: --systems NAME=FILE ...")
        result = prepare(
            find_systems(self.opt["systems"], self.opt["test_set"]),
            self.study,
            samples=self.opt["samples"],
            seed=self.opt["seed"],
            form=self.opt["form"],
            language=self.opt["page_language"],
            reviewers=self.opt["reviewers"],
            gold=self.opt["gold"],
            checks=self.opt["attention_checks"],
        )
        for name, count in result["left out"].items():
            if count:
                print(f"{name}: {count} replies to samples that not every system answered")
        print(
            f"{self.study}: {result['items']} items about {result['samples']} samples, "
            f"{result['ratings']} ratings. Show them: parlai persona_rate launch {self.study}"
        )
        return result

    def launch(self):
        """Run a study."""
        from persona_agents.crowdsourcing.persona_rating.run import configuration, launch

        return launch(configuration(self.opt["config"], self.study, self.opt["set"]))

    def compile(self):
        """Write the tables."""
        from persona_agents.crowdsourcing.persona_rating.analysis.compile import compile_study

        return compile_study(self.study, without_failing=self.opt["without_failing"])
