"""The order of training samples: permutations, and batches of samples of the same length."""

from __future__ import annotations

import pytest
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.scripts.train_model import setup_args
from persona_agents.tasks import order
from persona_agents.tasks.base import Sample

from persona_agents.errors import PersonaAgentsError

KEYS = [i * 7 % 50 for i in range(103)]


@pytest.mark.parametrize(
    "text, expected",
    [("", 0), ("i have two dogs .", 5), ("我住在海南。", 6), ("我有iPhone 12", 4), ("don't", 3)],
)
def test_length(text, expected):
    assert order.length(text) == expected


def test_key_sorts_by_response_first():
    short = Sample(("a b c d",), "a b c", "yes")
    long = Sample((), "a", "no no no no no no")
    assert order.sort_key(short) < order.sort_key(long)
    assert order.sort_key(short) < order.sort_key(short._replace(query="a b c d"))


def test_permutation_by_seed_and_epoch():
    orders = {tuple(order.permutation(30, seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 4
    assert all(sorted(one) == list(range(30)) for one in orders)


@pytest.mark.parametrize("batch_size", [1, 8, 103, 200])
def test_bucketed_is_a_permutation(batch_size):
    for epoch in range(3):
        assert sorted(order.bucketed(KEYS, 1, epoch, batch_size)) == list(range(len(KEYS)))


def test_batches_agree_in_length_over_epochs_without_a_gap():
    """103 samples are no multiple of 8: the second epoch begins within a batch."""
    drawn = [KEYS[i] for epoch in range(3) for i in order.bucketed(KEYS, 1, epoch, 8)]
    batches = [drawn[i : i + 8] for i in range(0, len(drawn), 8)]
    wide = [batch for batch in batches if max(batch) - min(batch) > 8]
    assert len(wide) <= 3, "at most the batch where two epochs meet"
    assert [min(batch) for batch in batches] != sorted(min(batch) for batch in batches)


def test_epochs_differ():
    first, second = (order.bucketed(KEYS, 1, epoch, 8) for epoch in (0, 1))
    assert first != second
    assert {frozenset(first[i : i + 8]) for i in range(0, 96, 8)} != {
        frozenset(second[i : i + 8]) for i in range(1, 97, 8)
    }


def teacher(**settings):
    settings = {"task": "cpc:mini", "datatype": "train", "loglevel": "error", **settings}
    (found,) = create_task_agent_from_taskname(setup_args().parse_kwargs(**settings))
    return found


def padding(found, batch_size: int, batches: int) -> float:
    """Share of padding in the responses of the teacher's next batches, by characters."""
    padded = real = 0
    for _ in range(batches):
        lengths = [len(found.next_example()[0]["labels"][0]) for _ in range(batch_size)]
        padded, real = padded + max(lengths) * batch_size, real + sum(lengths)
    return 1 - real / padded


def test_the_teacher_buckets():
    plain = padding(teacher(batchsize=16, seed=1), 16, 60)
    assert padding(teacher(batchsize=16, seed=1, bucket_by_length=True), 16, 60) < 0.5 * plain


def test_every_sample_once_each_epoch():
    found = teacher(batchsize=16, seed=1, bucket_by_length=True)
    for _ in range(2):
        drawn = [found.next_episode_idx() for _ in range(found.num_episodes())]
        assert sorted(drawn) == list(range(found.num_episodes()))


def test_whole_dialogues_are_refused(tmp_path):
    with pytest.raises(PersonaAgentsError, match="--bucket-by-length.*cpc:multi_turn"):
        teacher(task="cpc:multi_turn", bucket_by_length=True, cpc_path=str(tmp_path))
