"""The interactive world of our tasks: the model gets a persona, which ParlAI's own world lacks."""

from __future__ import annotations

import random
from copy import deepcopy

from parlai.core.message import Message
from parlai.core.worlds import validate
from parlai.tasks.interactive.worlds import InteractiveWorld

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn


class PersonaInteractiveWorld(InteractiveWorld):
    """
    A chat in which the model plays a persona: the one of `--persona`, or one of the task's data.

    It is shown at the start of each chat and reaches the model as `your persona:` lines before the
    human's first message, as in the task. Subclasses implement `task_personas`.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Persona of an interactive chat")
        group.add_argument(
            "--persona",
            default=None,
            metavar='"ONE|TWO"',
            help="the model's persona, sentences separated by |; unset: one of the task's data",
        )
        group.add_argument(
            "--seed", type=int, default=None, help="fixes which personas are drawn from the data"
        )
        return parser

    def task_personas(self, opt) -> list[tuple[str, ...]]:
        """The personas to draw from."""
        raise NotImplementedError

    def init_contexts(self, shared=None):
        self.rng = random.Random(self.opt.get("seed"))
        self.persona: tuple[str, ...] = ()
        if self.opt.get("persona"):
            lines = (line.strip() for line in self.opt["persona"].split("|"))
            self.personas = [tuple(filter(None, lines))]
        elif shared:
            self.personas = shared["personas"]
        else:
            try:
                self.personas = self.task_personas(self.opt)
            except PersonaAgentsError as error:
                raise PersonaAgentsError(
                    f'{error} To chat without the data give the persona: --persona "ONE|TWO".'
                ) from error

    def share(self):
        return {**super().share(), "personas": self.personas}

    def parley(self):
        """One message of the human and the model's answer."""
        first = self.turn_cnt == 0
        if first:
            self.persona = self.rng.choice(self.personas)
            print("\n".join(["[ The model's persona: ]", *(f"  {line}" for line in self.persona)]))
        human, model = self.agents
        try:
            act = Message(deepcopy(human.act()))
        except StopIteration:
            self.reset()
            self.finalize_episode()
            self.turn_cnt = 0
            return
        if first:
            act.force_set("text", format_turn(self.persona, act.get("text") or ""))
        model.observe(validate(act))
        answer = model.act()
        human.observe(validate(answer))
        self.acts = [act, answer]
        self.update_counters()
        self.turn_cnt += 1
        if act["episode_done"]:
            self.finalize_episode()
            self.turn_cnt = 0


def distinct_personas(samples) -> list[tuple[str, ...]]:
    """The personas of some samples, each once, in the order of the file."""
    return list(dict.fromkeys(sample.persona for sample in samples))
