"""The order in which our teachers show their samples, through ParlAI's own worlds."""

from __future__ import annotations

import pytest
from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task
from persona_agents.tasks import base
from persona_agents.tasks.cpc.build import load_mini

from persona_agents.persona import format_turn

TASK = "cpc:mini"
VALID = [format_turn(sample.persona, sample.query) for sample in load_mini("valid")]
TRAIN = [format_turn(sample.persona, sample.query) for sample in load_mini("train")]


class WatchingAgent(RepeatLabelAgent):
    """Writes down what all of its clones are shown, in order."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.seen = shared["seen"] if shared else []

    def share(self):
        return {**super().share(), "seen": self.seen}

    def observe(self, observation):
        if not observation.is_padding():
            self.seen.append(observation["text"])
            observation = observation.copy()
            observation["text_vec"] = [0] * len(observation["text"])  # dynamic batching measures it
        return super().observe(observation)


class BatchAgent(WatchingAgent):
    """Acts for the whole batch at once, as dynamic batching wants it."""

    def batch_act(self, observations):
        return [{"id": self.id, "text": "", "episode_done": False} for _ in observations]

    def self_observe(self, message):
        pass


def options(datatype, batchsize=1, **more):
    parser = ParlaiParser(True, False)
    opt = parser.parse_kwargs(task=TASK, datatype=datatype, batchsize=batchsize)
    opt.update(more)
    return opt


def shown(datatype, count, agent=WatchingAgent, **settings) -> list[str]:
    """The texts of the first `count` samples."""
    opt = options(datatype, **settings)
    watcher = agent(opt)
    world = create_task(opt, watcher)
    while len(watcher.seen) < count:
        world.parley()
    return watcher.seen[:count]


@pytest.fixture
def small(monkeypatch):
    """Training on the 304 pairs of the valid split, so that an epoch is short."""
    from parlai.tasks.cpc.agents import MiniTeacher

    monkeypatch.setattr(MiniTeacher, "load", lambda self, opt, fold: load_mini("valid"))
    return len(VALID)


@pytest.mark.parametrize("batchsize", [1, 4, 7])
def test_each_sample_once_an_epoch(small, batchsize):
    texts = shown("train", 3 * small, batchsize=batchsize)
    epochs = [texts[start : start + small] for start in range(0, 3 * small, small)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(VALID)
        assert epoch != VALID
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert texts == shown("train", 3 * small), "the batch size does not change the order"


def test_dynamic_batching(small):
    settings = {"batchsize": 4, "dynamic_batching": "full", "truncate": 128}
    texts = shown("train", 6 * small, agent=BatchAgent, **settings)
    for start in range(0, 6 * small, small):
        assert sorted(texts[start : start + small]) == sorted(VALID)


def test_dynamic_batching_evaluates_each_sample_once():
    opt = options("valid", 4, dynamic_batching="full", truncate=128)
    watcher = BatchAgent(opt)
    world = create_task(opt, watcher)
    while not world.epoch_done():
        world.parley()
    assert sorted(watcher.seen) == sorted(VALID)


def test_seed(small):
    one, two = (shown("train", small, seed=seed) for seed in (1, 2))
    assert one == shown("train", small, seed=1)
    assert one != two
    assert shown("train", small, seed=None) == shown("train", small)


def test_real_training_split():
    texts = shown("train", len(TRAIN), batchsize=16)
    assert sorted(texts) == sorted(TRAIN)


@pytest.mark.parametrize("datatype", ["train:ordered", "train:evalmode"])
def test_training_data_in_file_order(datatype):
    assert shown(datatype, 50) == TRAIN[:50]


@pytest.mark.parametrize("batchsize", [1, 4, 7])
def test_evaluation_goes_once_through_the_file(batchsize):
    opt = options("valid", batchsize)
    world = create_task(opt, WatchingAgent(opt))
    while not world.epoch_done():
        world.parley()
    assert world.get_model_agent().seen == VALID
    assert world.report()["exs"] == len(VALID)
    assert world.report()["accuracy"] == 1, "RepeatLabelAgent gives the labels back"


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_each_epoch(small, monkeypatch, workers):
    monkeypatch.setattr(base, "num_workers", lambda: workers)
    share = 2 * small // workers
    by_worker = []
    for rank in range(workers):
        monkeypatch.setattr(base, "get_rank", lambda rank=rank: rank)
        by_worker.append(shown("train", share, batchsize=4))
    together = [text for step in zip(*by_worker) for text in step]
    monkeypatch.undo()
    assert sorted(together[:small]) == sorted(VALID)


def test_background_workers_count_as_workers():
    opt = {"background_index": 2, "num_workers": 3}
    assert base._worker(opt) == (2, 3)
    assert base._worker({"background_index": None, "num_workers": 0}) == (0, 1)


def test_evaluation_is_split_among_workers(monkeypatch):
    monkeypatch.setattr(base, "is_distributed", lambda: True)
    monkeypatch.setattr(base, "num_workers", lambda: 2)
    by_worker = []
    for rank in range(2):
        monkeypatch.setattr(base, "get_rank", lambda rank=rank: rank)
        by_worker.append(shown("valid", len(VALID) // 2))
    assert by_worker == [VALID[0::2], VALID[1::2]]


def test_a_position_can_be_restored(small):
    whole = shown("train", 2 * small)
    opt = options("train")
    world = create_task(opt, WatchingAgent(opt))
    drawn = small + 10
    world.get_task_agent().index.value = drawn - 1
    for _ in range(20):
        world.parley()
    assert world.get_model_agent().seen == whole[drawn : drawn + 20]
