"""`parlai persona_score`: score a file of replies, and compare two systems' replies.

    parlai persona_score --replies log.jsonl
    parlai persona_score --replies ours.txt --compare theirs.txt --references gold.txt \
        --personas personas.txt --metrics corpus_bleu,char_f1,p_cover --json-file scores.json

No dialogue model is needed: the replies may be any system's. The `parlai` command imports this
module at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from persona_agents.metrics import options


@register_script("persona_score")
class PersonaScore(ParlaiScript):
    """Scores of a file of replies."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(True, False, "Score replies that a system has written to a file")
        group = parser.add_argument_group("Scoring of replies")
        group.add_argument(
            "--replies",
            default=None,
            metavar="FILE",
            help="replies: a log of `eval_model --world-logs`; or JSON lines with the keys reply, "
            "references, persona (lists or strings) and query; or plain text, one a line",
        )
        group.add_argument(
            "--compare",
            default=None,
            metavar="FILE",
            help="another system's replies to the same samples: tells what differs, by paired "
            "bootstrap",
        )
        group.add_argument(
            "--references",
            default=None,
            metavar="FILE",
            help="beside plain text: the gold replies, one a line",
        )
        group.add_argument(
            "--personas",
            default=None,
            metavar="FILE",
            help="beside plain text: the persona of each reply, its sentences separated by |",
        )
        group.add_argument(
            "--queries",
            default=None,
            metavar="FILE",
            help="beside plain text: what each reply answers, one a line",
        )
        group.add_argument(
            "--metrics",
            "-mcs",
            default="persona,corpus_distinct,verbatim,length",
            help="metrics, separated by commas; persona stands for corpus_bleu, char_f1, "
            "bert_score, p_cover and p_em",
        )
        group.add_argument(
            "--language",
            default="auto",
            choices=["auto", "en", "zh"],
            help="chooses models and word splitting; auto: Chinese if most gold replies are",
        )
        group.add_argument(
            "--resamples", type=int, default=1000, help="bootstrap samples of --compare"
        )
        group.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")
        group.add_argument(
            "--json-file", default=None, help="write everything to this file as JSON"
        )
        group.add_argument(
            "--no-cuda", action="store_true", help="let the metrics' models run on the CPU"
        )
        options.add_cmdline_args(parser)
        return parser

    def run(self):
        """Print the scores and return them as plain data."""
        from persona_agents.scripts import persona_score_main

        return persona_score_main.main(self.opt)
