"""Wrong replies to choose the right one from."""

from __future__ import annotations

import copy
import random
from typing import Callable

from parlai.core.teachers import create_task_agent_from_taskname

from persona_agents.errors import PersonaAgentsError

_TRIES = 100  # draws for each distractor before giving up


def replies_of(opt) -> list[str]:
    """Every different reply of the split that a task trains on, in its order."""
    opt = copy.deepcopy(opt)
    if "ordered" not in opt["datatype"]:
        opt["datatype"] += ":ordered"  # each sample once; "train" alone draws them
    opt.update(batchsize=1, metrics="default")
    replies = {}
    for teacher in create_task_agent_from_taskname(opt):
        while not teacher.epoch_done():
            turn = teacher.act()
            replies.update(dict.fromkeys(turn.get("labels") or turn.get("eval_labels") or ()))
        teacher.shutdown()
    return list(replies)


class Distractors:
    """
    Replies of other samples of the same split.

    What is drawn depends on a key alone, and on nothing drawn before: a training that is resumed
    draws what it would have drawn.

    :param opt: options that name task and split, which are read at the first draw.
    :param encode: text to the ids of a reply, cut and ended like a label.
    """

    def __init__(self, opt, encode: Callable[[str], list[int]]):
        self.opt, self.encode = opt, encode
        self.pool = None
        self.different = None  # the replies of the pool as the model reads them

    def draw(self, gold: list[int], count: int, key: str) -> list[list[int]]:
        """``count`` different replies, none of them ``gold``."""
        if self.pool is None:
            self.pool = replies_of(self.opt)
        rng = random.Random(key)
        chosen, seen = [], {tuple(gold)}
        for _ in range(_TRIES * count if self._may_suffice(gold, count) else 0):
            reply = self.encode(rng.choice(self.pool))
            # compared as the model reads them: two texts may be equal there
            if tuple(reply) not in seen:
                seen.add(tuple(reply))
                chosen.append(reply)
            if len(chosen) == count:
                return chosen
        raise PersonaAgentsError(
            f"--n-candidates {count + 1}: the training data of {self.opt['task']} has too few "
            f"different replies ({len(self.pool)}) to draw distractors from. Lower the option; 1 "
            "leaves the choice among replies out."
        )

    def _may_suffice(self, gold: list[int], count: int) -> bool:
        """Whether the pool can hold ``count`` replies; reads it whole only where that is in doubt."""
        if count > len(self.pool):
            return False
        if 10 * count > len(self.pool):
            if self.different is None:
                self.different = {tuple(self.encode(text)) for text in self.pool}
            return len(self.different - {tuple(gold)}) >= count
        return True
