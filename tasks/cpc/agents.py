"""CPC, Baidu's Chinese Persona-Chat: `-t cpc`, `cpc:raw`, `cpc:multi_turn` and `cpc:mini`."""

from __future__ import annotations

from parlai.core.message import Message
from parlai.utils.data import DatatypeHelper
from persona_agents.tasks.base import SingleTurnTeacher, WholeDialogueTeacher
from persona_agents.tasks.content_words import add_filter_arguments, filter_rule
from persona_agents.tasks.cpc import build, official
from persona_agents.tasks.files import add_reading_argument

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn


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
        "--cpc-url",
        default=None,
        metavar="URL#sha256=…",
        help="a mirror of your own: address of a zip or file that is fetched on first use into "
        "--cpc-path or DATAPATH/CPC and checked; several with commas between",
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

    @classmethod
    def settings(cls, opt) -> build.Settings:
        """What the options ask for."""
        return build.settings_of(opt)

    @classmethod
    def survey(cls, opt):
        """For `parlai persona_data`: all pairs, dropped ones too, and the reports of the files."""
        return build.survey(build.sources_of(opt), cls.settings(opt))

    def load(self, opt, fold):
        return build.load_for(opt, fold, self.settings(opt))


class DefaultTeacher(RawTeacher):
    """Single turns whose response has to do with the persona (see content_words.py)."""

    @classmethod
    def settings(cls, opt) -> build.Settings:
        return build.settings_of(opt, rule=filter_rule(opt, default=1, language="zh"))


class MultiTurnTeacher(WholeDialogueTeacher):
    """Whole dialogues, unfiltered, each told twice: either speaker is once the one who answers."""

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        add_arguments(parser)
        return parser

    def load(self, opt, fold):
        return build.load_for(opt, fold, build.settings_of(opt, whole=True))


class OfficialTestTeacher(SingleTurnTeacher):
    """
    The contest's test file, for evaluation only, whatever the datatype.

    A message has the persona and the last `--history-size` turns (all of them if that is -1 or
    unknown). A sample without an answer has no label: the model replies, which `--world-logs`
    writes, the sample is counted (`exs`), and no metric that needs a reference is reported.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        add_arguments(parser)
        return parser

    def load(self, opt, fold):
        if DatatypeHelper.is_training(opt["datatype"]) and "evalmode" not in opt["datatype"]:
            raise PersonaAgentsError(
                "-t cpc:official_test has no training data: it is for evaluation (-dt test)."
            )
        return official.load(build.folder_of(opt), bool(opt.get("skip_bad_lines")))

    def get(self, episode_idx, entry_idx=0):
        sample = self.samples[episode_idx]
        turns = self.opt.get("history_size") or -1
        history = sample.history[-turns:] if turns > 0 else sample.history
        message = Message(text=format_turn(sample.persona, "\n".join(history)), episode_done=True)
        if sample.response is not None:
            message["labels"] = [sample.response]
        return message


class MiniTeacher(SingleTurnTeacher):
    """The bundled, invented data (see mini.py); nothing is filtered."""

    @classmethod
    def survey(cls, opt):
        """For `parlai persona_data`."""
        sources = [build.mini_source(split) for split in ("train", "valid", "test")]
        return build.survey(sources, build.Settings())

    def load(self, opt, fold):
        return build.load_mini(fold)
