"""`parlai persona_vocab`: the words of a DVS2S model, and the vocabulary T of an input.

    parlai persona_vocab -mf models/dvs2s
    parlai persona_vocab -mf models/dvs2s --query "any pets?" --persona "i love my dog|i run"

It prints how many words the dictionary has and which of them are function words, with part of
speech and count; with `--query`, the most probable content words of T. The `parlai` command imports
this module at every start, so the work is done elsewhere.
"""

from __future__ import annotations

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script


@register_script("persona_vocab")
class PersonaVocab(ParlaiScript):
    """Function words of a model, and the vocabulary of an input."""

    @classmethod
    def setup_args(cls):
        parser = ParlaiParser(
            True, True, "Show a DVS2S model's words and the vocabulary of an input"
        )
        group = parser.add_argument_group("Vocabulary")
        group.add_argument("--query", default=None, help="show T for this input")
        group.add_argument(
            "--persona", default=None, help="persona sentences of the input, separated by |"
        )
        group.add_argument(
            "--show-words", type=int, default=50, help="how many words of each kind are printed"
        )
        return parser

    def run(self):
        """Print words and T; returns them as plain data."""
        from persona_agents.scripts import vocabulary

        return vocabulary.main(self.opt)
