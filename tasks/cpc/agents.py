"""CPC, Baidu's Chinese Persona-Chat: `-t cpc`, `cpc:raw`, `cpc:multi_turn` and `cpc:mini`."""

from __future__ import annotations

from persona_agents.tasks.base import SingleTurnTeacher, WholeDialogueTeacher
from persona_agents.tasks.content_words import add_filter_arguments, filter_rule
from persona_agents.tasks.cpc import build
from persona_agents.tasks.files import add_reading_argument


def add_arguments(parser) -> None:
    """Add the options of all tasks that read the real data."""
    group = parser.add_argument_group("Chinese Persona-Chat (cpc)")
    group.add_argument(
        "--cpc-path",
        default=None,
        help="folder of Persona_train.json and Persona_dev.json or of the provider's zips, one such "
        "zip, or one file of dialogues, which is cut into all splits; unset: DATAPATH/CPC",
    )
    group.add_argument(
        "--cpc-split",
        choices=["session", "persona"],
        default="session",
        help="what is held out of the training file for test: dialogues, or personas, so that no "
        "persona of a test sample occurs in training",
    )
    add_reading_argument(group)


class RawTeacher(SingleTurnTeacher):
    """Single turns of the real data, every pair of adjacent turns."""

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        add_arguments(parser)
        add_filter_arguments(parser.add_argument_group("Persona filter"), default=1)
        return parser

    def load(self, opt, fold):
        return build.load_for(opt, fold, build.settings_of(opt))


class DefaultTeacher(RawTeacher):
    """Single turns whose response has to do with the persona (see content_words.py)."""

    def load(self, opt, fold):
        rule = filter_rule(opt, default=1, language="zh")
        return build.load_for(opt, fold, build.settings_of(opt, rule=rule))


class MultiTurnTeacher(WholeDialogueTeacher):
    """Whole dialogues, unfiltered, each told twice: either speaker is once the one who answers."""

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        add_arguments(parser)
        return parser

    def load(self, opt, fold):
        return build.load_for(opt, fold, build.settings_of(opt, whole=True))


class MiniTeacher(SingleTurnTeacher):
    """The bundled, invented data (see mini.py); nothing is filtered."""

    def load(self, opt, fold):
        return build.load_mini(fold)
