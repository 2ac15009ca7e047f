"""`parlai persona_explain`: heat maps of where the words of replies come from.

    parlai persona_explain -mf models/hcm -t cpc:mini -n 3
    parlai persona_explain -mf models/hcm --persona "i have a cat.|i live in rome." --query "any pets?"
    parlai persona_explain -mf models/hcm --log-file chat.jsonl

For each reply: the attention to query and persona by which words are copied, and p_gen, beta and
gamma at every step, as one picture (PNG) each and all together in one HTML file. The `parlai`
command imports this module at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script


@register_script("persona_explain")
class PersonaExplain(ParlaiScript):
    """Pictures of where a copying model's words come from."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(True, True, "Draw where the words of a model's replies come from")
        group = parser.add_argument_group("Explaining replies")
        group.add_argument(
            "-n", "--num-examples", type=int, default=5, help="how many samples of the task"
        )
        group.add_argument(
            "--query", default=None, help="explain the reply to this question instead of samples"
        )
        group.add_argument(
            "--persona",
            default=None,
            metavar='"ONE|TWO"',
            help="the model's persona for --query, sentences separated by |",
        )
        group.add_argument(
            "--log-file",
            default=None,
            help="explain the replies of this log instead, as `parlai interactive --outfile` and "
            "`parlai eval_model --world-logs` write it",
        )
        group.add_argument(
            "--explain-folder",
            default=None,
            help="where to write index.html and 001.png, 002.png, …; unset: MODEL_FILE.explain",
        )
        # interactive mode: no optimiser is built for a model that was saved while training
        parser.set_defaults(datatype="valid", interactive_mode=True)
        return parser

    def run(self):
        """Write the pictures; returns the explained replies as plain data."""
        from persona_agents.scripts import persona_explain_run

        return persona_explain_run.main(self.opt)
