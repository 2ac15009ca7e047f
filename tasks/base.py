"""What the tasks share: a sample, a teacher of single turns, the files of a split, and errors."""

from __future__ import annotations

import os
import random
from typing import NamedTuple

from parlai.core.message import Message
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, is_distributed, num_workers
from parlai.utils.misc import AttrDict

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn


class Sample(NamedTuple):
    """One question and one answer, with the persona of the one who answers."""

    persona: tuple[str, ...]
    query: str
    response: str


class SingleTurnTeacher(FixedDialogTeacher):
    """
    A teacher whose episodes are single turns: a message is the persona's lines and the query.

    For `-dt train` it shows each sample once per epoch in a new order, where ParlAI's own teachers
    draw with replacement. The order depends on `--seed` and the epoch alone. Batch members (which
    share one counter) and workers (which take turns) together go through one sequence of epochs, so
    the shared `index.value`, the number of draws made less one, is all there is to save and restore.
    Every other datatype goes in the order of the files.

    Subclasses implement `load(opt, fold)`.
    """

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = opt["task"]
        self.random = False  # the base class's name for drawing with replacement
        self.shuffled = self.datatype == "train"
        if shared:
            self.samples, self.order = shared["samples"], shared["order"]
        else:
            self.samples = self.load(opt, DatatypeHelper.fold(self.datatype))
            self.order = AttrDict(epoch=None, indices=None)
            if is_distributed() and not DatatypeHelper.is_training(self.datatype):
                self.samples = self.samples[get_rank() :: num_workers()]
        self.reset()

    def load(self, opt, fold: str) -> list[Sample]:
        """The samples of a fold ('train', 'valid' or 'test'); raises PersonaAgentsError."""
        raise NotImplementedError

    def share(self):
        shared = super().share()
        shared.update(samples=self.samples, order=self.order)
        return shared

    def num_episodes(self) -> int:
        return len(self.samples)

    def num_examples(self) -> int:
        return len(self.samples)

    def get(self, episode_idx, entry_idx=0) -> Message:
        sample = self.samples[episode_idx]
        return Message(
            text=format_turn(sample.persona, sample.query),
            labels=[sample.response],
            episode_done=True,
        )

    def next_episode_idx(self, num_eps=None, loop=None) -> int:
        if not self.shuffled:
            return super().next_episode_idx(num_eps, loop)
        self.index.value += 1
        # Worker w of W takes the draws w, W + w, 2 W + w, … of the one sequence of epochs.
        worker, workers = _worker(self.opt)
        epoch, position = divmod(self.index.value * workers + worker, len(self.samples))
        if self.order.epoch != epoch:
            indices = list(range(len(self.samples)))
            random.Random(f"{self.opt.get('seed') or 0} {epoch}").shuffle(indices)
            self.order.epoch, self.order.indices = epoch, indices
        return self.order.indices[position]


def _worker(opt) -> tuple[int, int]:
    """(number, count) of the processes that go through the training data together."""
    worker, workers = get_rank(), num_workers()
    if opt.get("background_index") is not None:  # one of --num-workers, for dynamic batching
        worker = worker * opt["num_workers"] + opt["background_index"]
        workers *= opt["num_workers"]
    return worker, workers


def find_file(folder: str, names, how_to_get: str) -> str:
    """
    The file of a split in a folder.

    :param str folder: where to look
    :param names: accepted file names, the first that exists is taken
    :param str how_to_get: ends the message if there is none
    :return: its path
    """
    if not os.path.isdir(folder):
        raise PersonaAgentsError(f"There is no folder {folder}. {how_to_get}")
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise PersonaAgentsError(f"{folder} holds no {' or '.join(names)}. {how_to_get}")


class BadLineError(PersonaAgentsError):
    """A line of a data file cannot be read."""

    def __init__(self, path: str, line: int, reason: str):
        super().__init__(
            f"{path}, line {line}: {reason}. Mend or delete the line, or fetch the file again."
        )


def read_lines(path: str):
    """
    Yield (number, line) for the lines of a UTF-8 file that are not blank.

    A byte order mark and CRLF line ends are tolerated, another encoding is an error.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
            except UnicodeDecodeError as error:
                raise BadLineError(path, number, f"not UTF-8 ({error.reason})") from None
            if line.strip():
                yield number, line
