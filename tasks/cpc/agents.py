"""CPC, Baidu's Chinese Persona-Chat: `-t cpc`, `cpc:raw` and the bundled `cpc:mini`."""

from __future__ import annotations

from persona_agents.tasks.base import SingleTurnTeacher
from persona_agents.tasks.content_words import add_filter_argument, filter_option
from persona_agents.tasks.cpc import build


class RawTeacher(SingleTurnTeacher):
    """Single turns of the real data, every pair of adjacent turns."""

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Chinese Persona-Chat (cpc)")
        group.add_argument(
            "--cpc-path",
            default=None,
            help="folder of Persona_train.json and Persona_dev.json; unset: DATAPATH/CPC",
        )
        add_filter_argument(group, default=1)
        return parser

    def load(self, opt, fold):
        return build.load(build.folder_of(opt), fold, minimum=0)


class DefaultTeacher(RawTeacher):
    """Single turns whose response has to do with the persona (see content_words.py)."""

    def load(self, opt, fold):
        return build.load(build.folder_of(opt), fold, filter_option(opt, default=1))


class MiniTeacher(SingleTurnTeacher):
    """The bundled, invented data (see mini.py); nothing is filtered."""

    def load(self, opt, fold):
        return build.load_mini(fold)
