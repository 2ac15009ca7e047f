"""Persona-Chat, one question and one answer: `-t personachat_single_turn`, `…:revised`, `…:mini`."""

from __future__ import annotations

from persona_agents.tasks.base import SingleTurnTeacher
from persona_agents.tasks.content_words import Rule, add_filter_arguments, filter_rule
from persona_agents.tasks.files import add_reading_argument
from persona_agents.tasks.personachat_single_turn import build

SPLITS = ("train", "valid", "test")


class DefaultTeacher(SingleTurnTeacher):
    """ParlAI's `personachat:self_original`, cut to single turns with the responder's persona."""

    version = "original"

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Persona-Chat, single turns")
        group.add_argument(
            "--personachat-path",
            default=None,
            help="folder of {train,valid,test}_self_original.txt (:revised: _self_revised.txt); "
            "unset: what ParlAI downloads",
        )
        add_reading_argument(group)
        add_filter_arguments(parser.add_argument_group("Persona filter"), default=0)
        return parser

    @classmethod
    def survey(cls, opt):
        """For `parlai persona_data`: all pairs, dropped ones too, and the reports of the files."""
        rule = filter_rule(opt, 0, "en")
        files = {split: build.locate(opt, split, cls.version) for split in SPLITS}
        return build.survey(files, rule, bool(opt.get("skip_bad_lines")))

    def load(self, opt, fold):
        return build.load(opt, fold, filter_rule(opt, 0, "en"), self.version)


class RevisedTeacher(DefaultTeacher):
    """The same dialogues with the revised personas, which share fewer words with the answers."""

    version = "revised"


class MiniTeacher(SingleTurnTeacher):
    """The bundled, invented data (see mini.py)."""

    @classmethod
    def survey(cls, opt):
        """For `parlai persona_data`."""
        return build.survey({split: build.mini_file(split) for split in SPLITS}, Rule("en", 0))

    def load(self, opt, fold):
        return build.load_mini(fold)
