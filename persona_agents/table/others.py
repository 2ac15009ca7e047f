"""Other samples of the same data: for swapped personas and for shuffled replies."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from parlai.core.message import Message
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.utils.data import DatatypeHelper

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import persona_of


def messages(opt) -> Iterator[Message]:
    """The messages of opt's task and split, once, in the order of the data, and not mutated."""
    fold = DatatypeHelper.fold(opt["datatype"])
    opt = copy.deepcopy(opt)
    opt.update(datatype=f"{fold}:evalmode" if fold == "train" else fold, mutators=None, batchsize=1)
    for teacher in create_task_agent_from_taskname(opt):
        while not teacher.epoch_done():
            message = teacher.act()
            if message.is_padding():
                break
            yield message
        teacher.shutdown()


class OtherPersonas:
    """
    For each persona of a task another one, always the same: the persona half their list away.

    If it shares a sentence with the first, the next one that does not is taken, as long as there
    is one.
    """

    def __init__(self, opt):
        found = dict.fromkeys(filter(None, map(persona_of, messages(opt))))
        if len(found) < 2:
            raise PersonaAgentsError(
                f"-t {opt['task']} has {len(found) or 'no'} persona: there is none to swap with."
            )
        self._personas = list(found)
        self._place = {persona: i for i, persona in enumerate(self._personas)}

    def of(self, persona: tuple[str, ...]) -> tuple[str, ...]:
        """The persona that stands in for this one of the data."""
        count, place = len(self._personas), self._place[persona]
        rest = [self._personas[(place + count // 2 + i) % count] for i in range(count)]
        apart = (other for other in rest if not set(other) & set(persona))
        return next(apart, None) or next(other for other in rest if other != persona)
