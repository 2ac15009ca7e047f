"""What is refused before a dictionary is built or anything is written."""

from __future__ import annotations

import pytest
import tiny

from persona_agents.agents import options
from persona_agents.errors import PersonaAgentsError


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"learningrate": -0.5}, "--learningrate -0.5: must be a number that is not negative"),
        ({"learningrate": float("nan")}, "--learningrate nan"),
        ({"pretrained_lr": float("inf")}, "--pretrained-lr inf"),
        (
            {"validation_metric": "corpus_bleu", "validation_generate": True},
            "--validation-metric corpus_bleu: name one of its values, corpus_bleu_1, .*corpus_bleu_4",
        ),
        ({"validation_metric": "corpus_bleu_4"}, "--validation-metric corpus_bleu_4 may need"),
        ({"fp16": True, "override": {"fp16": True}, "no_cuda": True}, "--fp16 works only on a GPU"),
        ({"fp16": True, "bf16": True}, "exclude each other"),
    ],
)
def test_refused(settings, message):
    opt = {**tiny.options(), **settings}
    with pytest.raises(PersonaAgentsError, match=message):
        options.check_for_agent(opt)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"validation_metric": "cpc/ppl"},
        {"validation_metric": "ppl_full"},
        {"validation_metric": "corpus_bleu_4", "validation_generate": True},
        {"validation_metric": "accuracy", "validation_generate": True},
        {"learningrate": 0.0},
    ],
)
def test_accepted(settings):
    options.check_for_agent({**tiny.options(), **settings})


def test_nothing_is_left_of_a_training_that_is_refused(tmp_path):
    with pytest.raises(PersonaAgentsError, match="--fp16"):
        tiny.new_agent(
            model_file=str(tmp_path / "model"),
            task="cpc:mini",
            fp16=True,
            no_cuda=True,
        )
    assert not list(tmp_path.iterdir())
