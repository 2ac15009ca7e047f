"""Each system learns 32 samples of each mini corpus by heart: no part of it stands in the way."""

from __future__ import annotations

import pytest
import systems
import tiny
import torch

CHECK_EVERY = 15  # steps


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Options of a task of 32 samples for each language, and the samples."""
    made = {}
    for language in ("zh", "en"):
        chosen = tiny.samples(language)[::20][:32]
        assert len(chosen) == 32
        folder = tmp_path_factory.mktemp("corpora") / language
        made[language] = tiny.write_corpus(folder, chosen), chosen
    return made


def token_accuracy(agent, batch) -> float:
    """Share of right words under teacher forcing, end tokens included."""
    agent.model.eval()
    with torch.no_grad():
        _, best, *_ = agent.model(batch.text_vec, ys=batch.label_vec)
    real = batch.label_vec.ne(agent.NULL_IDX)
    return (best.eq(batch.label_vec) & real).sum().item() / real.sum().item()


def learn_to_generate(agent, batch, steps: int) -> None:
    """
    Train without copying first.

    The mean of two copy distributions gives a word of one source no more than 0.5, as much as the
    other source's best word has. Left to itself, one gate soon copies such words and rests there,
    since it is then too late for the decoder's own distribution to learn them.
    """
    gate, agent.model.copy = agent.model.copy, None
    for _ in range(steps):
        agent.batch_act(batch)
    agent.model.copy = gate


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_learns_32_samples_by_heart(name, language, corpora, tmp_path):
    task, chosen = corpora[language]
    system = systems.SYSTEMS[name]
    settings = {"max_train_steps": system.steps, "num_epochs": -1, "dropout": 0.0, "seed": 1}
    options = system.options(**task, **settings, model_file=str(tmp_path / "model"))
    agent = tiny.new_agent(**options)
    batch = agent.batchify(tiny.observe(agent, chosen)[1])
    if name == "hcm --copy flat":
        learn_to_generate(agent, batch, system.steps // 4)
    accuracy = 0.0
    for step in range(1, system.steps + 1):
        agent.batch_act(batch)
        if step % CHECK_EVERY == 0:
            accuracy = token_accuracy(agent, batch)
            if accuracy >= 0.99:
                break
    assert accuracy >= 0.99
