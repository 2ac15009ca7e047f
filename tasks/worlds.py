"""The chats of our tasks: a person with a model, and a model with itself, each with a persona."""

from __future__ import annotations

import contextlib
import random
import re
import sys
from copy import deepcopy

from parlai.agents.local_human.local_human import LocalHumanAgent
from parlai.core.agents import Agent
from parlai.core.message import Message
from parlai.core.worlds import validate
from parlai.tasks.interactive.worlds import InteractiveWorld
from parlai.tasks.self_chat.worlds import SelfChatWorld
from parlai.utils.misc import load_cands
from persona_agents.tasks.files import DataFile, Report, read_lines

from persona_agents import chat
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn, parse_turn

TEXTS = {
    "en": {
        "model": "The model's persona",
        "partner": "Your persona",
        "none": "(none)",
        "again": "Chat done. A new one begins.",
        "done": "Chat done.",
        "help": (
            "/persona shows the model's persona\n"
            "/persona ONE|TWO gives it another one\n"
            "/draw draws one from the data\n"
            "/why says where the words of the last reply come from\n"
            "/reset forgets what was said and keeps the persona\n"
            "/help shows this\n"
            "[DONE] ends this chat and begins another; [EXIT], /exit, Ctrl-D or Ctrl-C end everything"
        ),
        "reset": "Forgotten. The persona stays.",
        "unknown": "There is no command {}.",
        "prompt": "Enter Your Message: ",
        "opener": "hi !",
        "prefix": "your persona: ",
    },
    "zh": {
        "model": "模型的人设",
        "partner": "你的人设",
        "none": "（无）",
        "again": "对话结束。新的对话开始。",
        "done": "对话结束。",
        "help": (
            "/人设 显示模型的人设\n"
            "/人设 一句|另一句 换成这个人设\n"
            "/换 重新抽取人设\n"
            "/为什么 说明上一条回复中词的来源\n"
            "/重来 忘掉说过的话，保留人设\n"
            "/帮助 显示本说明\n"
            "[DONE] 结束对话并开始新的对话；[EXIT]、/退出、Ctrl-D 或 Ctrl-C 退出"
        ),
        "reset": "已忘掉说过的话，人设不变。",
        "unknown": "没有 {} 这个命令。",
        "prompt": "请输入：",
        "opener": "你好！",
        "prefix": "人设：",
    },
}
COMMANDS = {
    "persona": "persona",
    "人设": "persona",
    "draw": "draw",
    "换": "draw",
    "why": "why",
    "为什么": "why",
    "reset": "reset",
    "重来": "reset",
    "exit": "exit",
    "quit": "exit",
    "退出": "exit",
    "help": "help",
    "帮助": "help",
}
DRAW = "draw"  # the value of --partner-persona that draws one


def parse_persona(text: str) -> tuple[str, ...]:
    """The sentences of a persona that is written in one line with | (or the full-width ｜) between."""
    return tuple(filter(None, (part.strip() for part in re.split("[|｜]", text))))


def read_personas(path: str) -> list[tuple[str, ...]]:
    """The personas in a file, one a line as in `parse_persona`; raises PersonaAgentsError."""
    personas = [persona for _, persona in read_lines(DataFile(path), parse_persona, Report())]
    personas = [persona for persona in personas if persona]
    if not personas:
        raise PersonaAgentsError(f"{path} holds no persona. It wants one a line: ONE|TWO.")
    return personas


class PersonaWorld:
    """What both worlds share: where personas come from. Sub-classes implement `task_samples`."""

    language = "en"
    adds_seed = True  # whether the command has no --seed of its own

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Personas of a chat")
        group.add_argument(
            "--persona",
            default=None,
            metavar='"ONE|TWO"',
            help="the model's persona, sentences separated by |; unset: one is drawn",
        )
        group.add_argument(
            "--partner-persona",
            default=None,
            metavar='"ONE|TWO"',
            help="the persona of the other one, who is you, or in a self chat the model again; "
            f"'{DRAW}' draws one; unset: you have none, the model draws one",
        )
        group.add_argument(
            "--persona-file",
            default=None,
            help="file to draw personas from, one a line, sentences separated by |; "
            "unset: the task's valid split",
        )
        if cls.adds_seed:
            group.add_argument("--seed", type=int, default=None, help="fixes what is drawn")
        return parser

    def task_samples(self, opt) -> list:
        """Samples (persona, query, response) to draw personas and openers from."""
        raise NotImplementedError

    @property
    def texts(self) -> dict[str, str]:
        """What the world says, in the task's language."""
        return TEXTS[self.language]

    def init_contexts(self, shared=None):
        self.rng = random.Random(self.opt.get("seed"))
        self.persona: tuple[str, ...] = ()
        self.partner_persona: tuple[str, ...] = ()
        # Filled when something is to be drawn: with --persona no data are needed.
        self.pool = shared["pool"] if shared else {}
        if self.opt.get("persona_file"):
            self.pool["personas"] = read_personas(self.opt["persona_file"])
        elif not self.opt.get("persona"):
            self._fill_pool()

    def _fill_pool(self) -> None:
        if "openers" in self.pool:
            return
        try:
            samples = list(self.task_samples(self.opt))
        except PersonaAgentsError as error:
            raise PersonaAgentsError(
                f'{error} To chat without the data give the persona: --persona "ONE|TWO".'
            ) from error
        self.pool.setdefault("personas", distinct_personas(samples))
        self.pool["openers"] = list(dict.fromkeys(sample.query for sample in samples))

    def share(self):
        return {**super().share(), "pool": self.pool}

    def draw(self) -> tuple[str, ...]:
        """A persona of the file or of the task's data."""
        if "personas" not in self.pool:
            self._fill_pool()
        return self.rng.choice(self.pool["personas"])

    def start_personas(self, partner_draws: bool) -> None:
        """Set both personas as the options say, for a new chat."""
        self.persona = parse_persona(self.opt.get("persona") or "") or self.draw()
        wanted = self.opt.get("partner_persona") or (DRAW if partner_draws else "")
        self.partner_persona = self.draw() if wanted == DRAW else parse_persona(wanted)


class PersonaInteractiveWorld(PersonaWorld, InteractiveWorld):
    """
    A person chats with a model that plays a persona, and may change it in the middle of the chat.

    The persona is shown at the start of each chat and reaches the model as `your persona:` lines
    before the person's next message, as in the task. Lines that begin with / are commands, empty
    ones are ignored. With --provenance each reply is shown once more, painted by source.
    """

    def __init__(self, opt, agents, shared=None):
        if agents and type(agents[0]) is LocalHumanAgent:
            agents = [Person(opt, self.language), *agents[1:]]
        super().__init__(opt, agents, shared)
        self.told = False  # whether the model knows its present persona
        self.keep_persona = False  # whether the next chat goes on with it
        self.legend_shown = False

    def set_persona(self, persona) -> None:
        """Give the model another persona, from the next message on."""
        self.persona, self.told = tuple(persona), False

    def show(self, title: str, persona) -> None:
        """Print a persona for the person."""
        print(
            "\n".join([f"[ {title} ]", *(f"  {line}" for line in persona or [self.texts["none"]])])
        )

    def command(self, text: str) -> None:
        """Carry out a line that begins with /; StopIteration ends the chat."""
        name, *rest = text[1:].split(maxsplit=1) or [""]
        action = COMMANDS.get(name.lower())
        if action == "help" or action is None:
            print(self.texts["unknown"].format(text) if action is None else self.texts["help"])
        elif action == "why":
            self.explain()
        elif action == "reset":
            self.keep_persona = True
            raise StopIteration
        elif action == "exit":
            self.agents[0].finished = True
            raise StopIteration
        else:
            self.change_persona(action, rest)

    def change_persona(self, action: str, rest: list[str]) -> None:
        """Draw another persona, take the one that was typed, or show the present one."""
        if action == "draw":
            try:
                self.set_persona(self.draw())
            except PersonaAgentsError as error:  # no data to draw from: the chat goes on
                print(error)
        elif rest:
            self.set_persona(parse_persona(rest[0]))
        self.show(self.texts["model"], self.persona)

    def explain(self) -> None:
        """Print where the words of the last reply come from."""
        model, texts = self.agents[1], chat.TEXTS[self.language]
        if not hasattr(model, "explain_last") or model.why_not():
            reason = model.why_not() if hasattr(model, "why_not") else ""
            print(" ".join(filter(None, (texts["cannot"], reason))))
            return
        found = model.explain_last() if self.turn_cnt else []
        colour = chat.use_colour(sys.stdout)
        print(chat.why(found[0], self.language, colour) if found else texts["nothing"])

    def show_answer(self, answer) -> None:
        """Show the model's reply, and with --provenance where its words come from."""
        self.agents[0].observe(validate(answer))
        if answer.get("provenance"):
            colour = chat.use_colour(sys.stdout)
            print(chat.painted_reply(answer["text"], answer["provenance"], colour))
            if not self.legend_shown:
                print(chat.legend(self.language, colour))
            self.legend_shown = True

    def begin(self) -> None:
        """Start a chat: choose the personas and show them."""
        if not self.keep_persona:
            self.start_personas(partner_draws=False)
        self.keep_persona = self.told = self.legend_shown = False
        self.show(self.texts["model"], self.persona)
        if self.partner_persona:
            self.show(self.texts["partner"], self.partner_persona)

    def message(self) -> Message:
        """The person's next message, after commands and empty lines before it."""
        while True:
            act = Message(deepcopy(self.agents[0].act()))
            text = (act.get("text") or "").strip()
            if text.startswith(("/", "／")):
                self.command(text)
            elif text or act.get("episode_done"):
                return act

    def parley(self):
        """One message of the person, commands before it included, and the model's answer."""
        _, model = self.agents
        if self.turn_cnt == 0:
            self.begin()
        try:
            act = self.message()
            if not self.told:
                act.force_set("text", format_turn(self.persona, act.get("text") or ""))
                self.told = True
            model.observe(validate(act))
            answer = model.act()
        except KeyboardInterrupt:
            print()
            self.agents[0].finished = True
            self.end()
            return
        except StopIteration:
            self.end()
            return
        self.show_answer(answer)
        self.acts = [act, answer]
        self.update_counters()
        self.turn_cnt += 1
        if act["episode_done"]:
            self.finalize_episode()
            self.turn_cnt = 0

    def end(self) -> None:
        """End the chat in the person's turn."""
        self.reset()
        self.finalize_episode()
        self.turn_cnt = 0

    def finalize_episode(self):
        if self.keep_persona:
            print(self.texts["reset"])
        else:
            print(self.texts["done" if self.epoch_done() else "again"])


class Person(LocalHumanAgent):
    """ParlAI's agent for the person at the keyboard, in the task's language."""

    def __init__(self, opt, language: str):
        Agent.__init__(self, opt)  # LocalHumanAgent's own would print its English help
        self.id = "localHuman"
        self.episodeDone = self.finished = False
        self.fixedCands_txt = load_cands(opt.get("local_human_candidates_file"))
        self.texts = TEXTS[language]
        if sys.stdin.isatty():  # only then can a wide character be deleted whole
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - input() edits its line with it
        print(self.texts["help"])

    def act(self):
        try:
            text = chat.clean(input(self.texts["prompt"]))
        except EOFError:
            print()
            self.finished = True
            raise StopIteration from None
        if "[DONE]" in text or "[EXIT]" in text:
            self.finished = "[EXIT]" in text
            raise StopIteration
        done = bool(self.opt.get("single_turn"))
        candidates = self.fixedCands_txt
        text = text.replace("\\n", "\n")  # as ParlAI's: \n begins a new line
        return Message(id=self.id, text=text, label_candidates=candidates, episode_done=done)


class PersonaSelfChatWorld(PersonaWorld, SelfChatWorld):
    """
    A model chats with itself, either side with a persona of its own.

    The first says a query of the task's data to begin with, if they are there, else a greeting.
    """

    adds_seed = False

    def get_contexts(self):
        self.start_personas(partner_draws=True)
        return [format_turn(self.persona, ""), format_turn(self.partner_persona, "")]

    def set_persona(self, side: int, persona) -> None:
        """Give the first (0) or second (1) side another persona in the middle of the chat."""
        if side == 0:
            self.persona = tuple(persona)
        else:
            self.partner_persona = tuple(persona)
        context = Message(id="context", text=format_turn(persona, ""), episode_done=False)
        self.agents[side].observe(validate(context))

    def init_openers(self):
        # ParlAI's own would take whole messages of the task, persona lines included.
        if self.opt.get("seed_messages_from_task"):
            self._fill_pool()
        elif self.opt.get("seed_messages_from_file"):
            super().init_openers()

    def get_openers(self, episode_num):
        openers = self._openers or self.pool.get("openers") or [self.texts["opener"]]
        return [self.rng.choice(openers)]

    def display(self):
        """The last acts for people, without the prefix that models know the persona by."""
        lines, colour = [], chat.use_colour(sys.stdout)
        for act, agent in zip(self.acts, self.agents):
            act = act or {}
            turn = parse_turn(act.get("text") or "")
            said = [f"{self.texts['prefix']}{line}" for line in turn.persona]
            query = turn.query
            if act.get("provenance"):
                query = chat.painted_reply(act["text"], act["provenance"], colour)
            lines += [f"[{agent.id}]: {line}" for line in [*said, query] if line]
        return "\n".join(lines)


def distinct_personas(samples) -> list[tuple[str, ...]]:
    """The personas of some samples, each once, in the order of the file."""
    return list(dict.fromkeys(sample.persona for sample in samples))
