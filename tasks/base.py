"""What the tasks share: a sample, and teachers of single turns and of whole dialogues."""

from __future__ import annotations

from typing import NamedTuple

from parlai.core.message import Message
from parlai.core.metrics import SumMetric
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, is_distributed, num_workers
from parlai.utils.misc import AttrDict
from persona_agents.tasks import order

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import options, reports
from persona_agents.persona import format_turn


class Sample(NamedTuple):
    """One question and one answer, with the persona of the one who answers."""

    persona: tuple[str, ...]
    query: str
    response: str


class Pair(NamedTuple):
    """A turn and the answer to it; `reason` says why they are no sample, None if they are one.

    `dialogue` names the dialogue, the same for all pairs of it within a split.
    """

    split: str
    dialogue: object
    sample: Sample
    reason: str | None


class SingleTurnTeacher(FixedDialogTeacher):
    """
    A teacher whose episodes are single turns: a message is the persona's lines and the query.

    For `-dt train` it shows each sample once per epoch in a new order, where ParlAI's own teachers
    draw with replacement. The order depends on `--seed` and the epoch alone. Batch members (which
    share one counter) and workers (which take turns) together go through one sequence of epochs, so
    the shared `index.value`, the number of draws made less one, is all there is to save and restore.
    Every other datatype goes in the order of the files.

    It reports this package's metrics too where `--metrics` names them. A sample without a label is
    counted, and judged by those metrics that need none; ParlAI's own teachers leave it out of all.

    Subclasses implement `load(opt, fold)`.
    """

    @classmethod
    def add_cmdline_args(cls, parser, partial_opt=None):
        super().add_cmdline_args(parser, partial_opt)
        options.add_cmdline_args(parser)
        parser.add_argument_group("Order of training").add_argument(
            "--bucket-by-length",
            type="bool",
            default=False,
            help="Make up training batches of samples of about the same length, so that less is "
            "spent on padding. Their order stays random.",
        )
        return parser

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.recorder = reports.Recorder(opt, shared["recorder"] if shared else None)
        self.id = opt["task"]
        self.random = False  # the base class's name for drawing with replacement
        self.shuffled = self.datatype == "train"
        if shared:
            self.samples, self.order = shared["samples"], shared["order"]
        else:
            self.samples = self.load(opt, DatatypeHelper.fold(self.datatype))
            keys = None
            if self.shuffled and opt.get("bucket_by_length"):
                keys = [order.sort_key(sample) for sample in self.samples]
            self.order = AttrDict(epoch=None, indices=None, keys=keys)
            if is_distributed() and not DatatypeHelper.is_training(self.datatype):
                self.samples = self.samples[get_rank() :: num_workers()]
        self.reset()

    def load(self, opt, fold: str):
        """A sequence, the samples of 'train', 'valid' or 'test'; raises PersonaAgentsError."""
        raise NotImplementedError

    def share(self):
        shared = super().share()
        shared.update(samples=self.samples, order=self.order, recorder=self.recorder.scorer)
        return shared

    def reset(self):
        super().reset()
        self.recorder.reset()

    def process_action(self, action: Message) -> Message:
        if "labels" in action and not action["labels"]:
            action.pop("labels")  # ParlAI and its agents stumble over an empty list
        self.recorder.asked(action)
        return super().process_action(action)

    def observe(self, observation):
        if self.lastY is not None or self.last_act is None or self.last_act.is_padding():
            return super().observe(observation)
        self.metrics.clear_recent()
        found = self.recorder.answered((), observation)
        reports.note(self.metrics, observation, {"exs": SumMetric(1), **found})
        return observation

    def custom_evaluation(self, teacher_action, labels, model_response) -> None:
        for name, metric in self.recorder.answered(labels, model_response).items():
            self.metrics.add(name, metric)

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
        epoch, position = divmod(self.index.value * workers + worker, self.num_episodes())
        if self.order.epoch != epoch:
            self.order.epoch, self.order.indices = epoch, self._order_of(epoch, workers)
        return self.order.indices[position]

    def _order_of(self, epoch: int, workers: int) -> list[int]:
        seed = self.opt.get("seed") or 0
        if self.order.keys is None:
            return order.permutation(self.num_episodes(), seed, epoch)
        batch_size = self.opt.get("batchsize", 1) * workers
        return order.bucketed(self.order.keys, seed, epoch, batch_size)


class WholeDialogueTeacher(SingleTurnTeacher):
    """
    The same with whole dialogues: `load` gives episodes, lists of samples of one persona each.

    As in ParlAI's persona tasks, only the first message of an episode has the persona's lines.
    """

    def __init__(self, opt, shared=None):
        if opt.get("bucket_by_length"):
            raise PersonaAgentsError(
                f"--bucket-by-length works with tasks of single turns only, not with -t {opt['task']}: "
                "the turns of a dialogue follow each other. Leave it out."
            )
        super().__init__(opt, shared)

    def num_examples(self) -> int:
        stored = getattr(self.samples, "num_examples", None)  # known without reading them
        return sum(map(len, self.samples)) if stored is None else stored

    def get(self, episode_idx, entry_idx=0) -> Message:
        episode = self.samples[episode_idx]
        sample = episode[entry_idx]
        return Message(
            text=sample.query if entry_idx else format_turn(sample.persona, sample.query),
            labels=[sample.response],
            episode_done=entry_idx == len(episode) - 1,
        )


def _worker(opt) -> tuple[int, int]:
    """(number, count) of the processes that go through the training data together."""
    worker, workers = get_rank(), num_workers()
    if opt.get("background_index") is not None:  # one of --num-workers, for dynamic batching
        worker = worker * opt["num_workers"] + opt["background_index"]
        workers *= opt["num_workers"]
    return worker, workers
