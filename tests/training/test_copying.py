"""A short training on the English mini corpus: right answers come from copying, not from memory."""

import pytest
from parlai.core.agents import create_agent_from_model_file

from benchmarks.copy import TASKS, share_right, train


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("copying") / "model")
    train(TASKS["en"], path, num_epochs=1, seed=1)
    return path


def test_right_answers_are_copied(model_file):
    agent = create_agent_from_model_file(model_file)
    # No word that is asked for occurs in training: without copying nothing can be right, but for
    # chance hits of a frequent first or last name.
    copying = share_right(agent, TASKS["en"])
    agent.model.copy = None  # p_gen = 1
    generating = share_right(agent, TASKS["en"])
    assert copying >= 0.3
    assert generating <= 0.1
