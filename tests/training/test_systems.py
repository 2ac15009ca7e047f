"""What holds for every system: decoding, ranking, reports, checkpoints, resuming, precision.

HCM's own tests go further; here stands what a baseline shares with it.
"""

from __future__ import annotations

import functools

import pytest
import systems
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file
from parlai.core.message import Message

from persona_agents.persona import format_turn

NAMES = systems.BASELINES
# Replies and inputs of different lengths, in no order of length.
EIGHT = [s for language in ("zh", "en") for s in tiny.samples(language)[:40:10]]
UNSEEN = [s for language in ("zh", "en") for s in tiny.samples(language, "test")[:20:10]]
INPUTS = (*EIGHT, *UNSEEN)
SPECIAL = ("##", "[CLS]", "[SEP]", "[PAD]", "<|endoftext|>")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Options of a task that trains and validates on EIGHT and tests on UNSEEN."""
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), EIGHT, EIGHT, UNSEEN)


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def make(name, corpus, tmp_path):
    """A new agent of the system."""

    def build(model_file="model", **settings):
        given = {"max_train_steps": 8, "num_epochs": -1, "dropout": 0.0, "seed": 1, **settings}
        path = str(tmp_path / model_file)
        return tiny.new_agent(**systems.SYSTEMS[name].options(**corpus, **given, model_file=path))

    return build


@pytest.fixture(scope="module")
def trained(name, corpus, tmp_path_factory):
    """The file of a model that learned EIGHT by heart."""
    model_file = str(tmp_path_factory.mktemp("trained") / "model")
    given = {"max_train_steps": 60, "num_epochs": -1, "dropout": 0.0, "seed": 1}
    options = systems.SYSTEMS[name].options(**corpus, **given, model_file=model_file)
    agent = tiny.new_agent(**options)
    batch = agent.batchify(tiny.observe(agent, EIGHT)[1])
    for _ in range(60):
        agent.batch_act(batch)
    agent.save(model_file)
    return model_file


@pytest.fixture(scope="module")
def load(trained):
    """Loads the trained model by its file alone, once for each set of other options."""

    @functools.cache
    def load_once(options):
        return create_agent_from_model_file(trained, dict(options))

    return lambda **options: load_once(tuple({"datatype": "valid", **options}.items()))


def losses(answers) -> list[float]:
    return [answer["metrics"]["loss"].value() for answer in answers]


# -------------------------------------------------------------------------------------- decoding


def test_replies_are_those_it_learned(load):
    agent = load()
    gold = [agent.dict.vec2txt(agent.dict.txt2vec(sample.response)) for sample in EIGHT]
    assert len(set(gold)) == 8
    assert sum(a == b for a, b in zip(tiny.replies(agent, EIGHT), gold)) >= 7


def test_greedy_is_beam_search_with_one_beam(load):
    beam = load(inference="beam", beam_size=1, beam_min_length=0)
    assert tiny.replies(beam, INPUTS) == tiny.replies(load(), INPUTS)


@pytest.mark.parametrize("options", [{}, {"inference": "beam", "beam_size": 3}])
def test_a_batch_is_as_good_as_single_inputs(load, options):
    agent = load(**options)
    together = tiny.replies(agent, INPUTS)
    assert together == [tiny.replies(agent, [one])[0] for one in INPUTS]
    assert tiny.replies(agent, INPUTS[::-1]) == together[::-1]
    assert len(set(together)) > 6


@pytest.mark.parametrize(
    "options",
    [
        {"inference": "topk", "topk": 5},
        {"inference": "nucleus", "topp": 0.9},
        {"inference": "beam", "beam_size": 5, "beam_block_ngram": 2, "beam_min_length": 3},
        {"inference": "beam", "beam_size": 2, "beam_context_block_ngram": 1},
    ],
    ids=lambda options: " ".join(str(value) for value in options.values()),
)
def test_other_searches_give_clean_text(load, options):
    torch.manual_seed(0)
    agent = load(**options)
    texts = tiny.replies(agent, INPUTS)
    for text, sample in zip(texts, INPUTS):
        assert text and text == text.strip() and not any(token in text for token in SPECIAL)
        words = agent.dict.txt2vec(text)
        if options.get("beam_block_ngram"):
            assert len(words) >= 2
        if options.get("beam_context_block_ngram"):
            assert not set(words) & set(agent.dict.txt2vec(sample.query))
            assert len(words) < 100, "the end is not blocked"


@pytest.mark.parametrize(
    "text", ["", "your persona: i sew.", "hello", "your persona: 我爱猫\n你好", "\n\n", "🦜"]
)
def test_inputs_that_lack_something(load, text):
    agent = load()
    agent.reset()
    agent.observe(Message(text=text, episode_done=True))
    assert isinstance(agent.act()["text"], str)


def test_a_chat_of_several_turns_keeps_the_persona(load):
    agent = load(history_size=2)
    agent.reset()
    for turn in range(4):
        text = format_turn(EIGHT[0].persona if turn == 0 else (), EIGHT[turn].query)
        agent.observe(Message(text=text, episode_done=False))
        assert agent.act()["text"]
    assert agent.history.persona == tuple(EIGHT[0].persona)


def test_parlai_interactive(trained, monkeypatch, capsys):
    from parlai.scripts.interactive import Interactive

    typed = iter(["do you have a cat?", "你住哪里？"])

    def type_in(prompt=""):
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", type_in)
    task = "personachat_single_turn:mini"
    Interactive.main(model_file=trained, task=task, persona="i have a cat.", loglevel="error")
    out = capsys.readouterr().out
    assert "i have a cat." in out and next(typed, None) is None, "both lines were read"


def test_too_long_inputs_are_cut_and_counted(load):
    agent = load()
    long = tiny.Sample(("i have a cat .",) * 300, "do you have a cat ? " * 300, "yes .")
    short = EIGHT[0]
    answers = tiny.act(agent, [short, long], "eval_labels")
    assert [answer["metrics"]["ctrunc"].value() for answer in answers] == [0.0, 1.0]
    assert answers[1]["metrics"]["ctrunclen"].value() > 1000
    assert all(answer["text"] for answer in answers)
    alone = losses(tiny.act(agent, [short], "eval_labels"))[0]
    assert losses(answers)[0] == pytest.approx(alone, rel=1e-4)


# --------------------------------------------------------------------------------------- reports


def test_each_sample_gets_its_own_loss(load):
    """In a batch, in one of another order, in an odd last batch and alone."""
    agent = load(skip_generation=True)
    alone = [losses(tiny.act(agent, [sample], "eval_labels"))[0] for sample in INPUTS]
    assert len({round(loss, 6) for loss in alone}) == len(INPUTS)
    for chosen in (slice(None), slice(None, None, -1), slice(0, 3)):
        found = losses(tiny.act(agent, INPUTS[chosen], "eval_labels"))
        assert found == pytest.approx(alone[chosen], rel=1e-4, abs=1e-5)


def test_token_details(load):
    details = tiny.act(load(verbose=True), EIGHT[:3], "eval_labels")
    plain = tiny.act(load(), EIGHT[:3], "eval_labels")
    for detail, answer, sample in zip(details, plain, EIGHT):
        rows = [(token, loss) for token, loss in detail["token_losses"] if token != "[PAD]"]
        assert [token for token, _ in rows][:-1] == load().dict.tokenize(sample.response)
        total = sum(loss for _, loss in rows)
        assert total == pytest.approx(answer["metrics"]["loss"]._numer, rel=1e-3, abs=1e-4)
        assert detail["text"] == answer["text"]


def test_the_gold_candidate_ranks_first(load):
    agent, observations = load(rank_candidates=True), []
    golds = [sample.response for sample in EIGHT]
    for number, (persona, query, response) in enumerate(EIGHT):
        agent.reset()
        message = {"text": format_turn(persona, query), "eval_labels": [response]}
        offered = golds[number + 1 :] + golds[: number + 1]
        message.update(label_candidates=offered[-(number + 1) :], episode_done=True)
        observations.append(agent.observe(Message(message)))
    answers = agent.batch_act(observations)
    assert sum(a["text_candidates"][0] == gold for a, gold in zip(answers, golds)) >= 7


def test_a_task_without_candidates_ranks_nothing(load):
    (answer,) = tiny.act(load(rank_candidates=True), EIGHT[:1], "eval_labels")
    assert answer["text"] and "text_candidates" not in answer


# -------------------------------------------------------------------------------------- training


def test_every_parameter_gets_a_gradient(make):
    """Distributed training needs one of each, in every batch."""
    agent = make()
    tiny.train_steps(agent, [EIGHT])
    for name, parameter in agent.model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_seed_decides_the_weights(make):
    def weights(seed):
        agent = make(f"model{seed}", seed=seed, dropout=0.1)
        tiny.train_steps(agent, [EIGHT])
        return agent.model.state_dict()

    one, same, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(value, same[key]) for key, value in one.items())
    assert not all(torch.equal(value, other[key]) for key, value in one.items())


def test_a_resumed_training_goes_on_as_if_unbroken(make):
    batches = [[EIGHT[i % 8], EIGHT[(i * 3 + 1) % 8], EIGHT[-i % 8]] for i in range(8)]
    settings = {"dropout": 0.1, "lr_scheduler": "linear", "max_train_steps": 8}
    unbroken = make("unbroken", **settings)
    expected = tiny.train_steps(unbroken, batches)
    first = make(**settings)
    found = tiny.train_steps(first, batches[:4])
    first.save()
    random_state = torch.get_rng_state()
    second = make(**settings)
    torch.set_rng_state(random_state)
    found += tiny.train_steps(second, batches[4:])
    assert found == expected
    for key, value in unbroken.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key]), key


def test_bf16_computes_nearly_the_same(make):
    full, half = (
        tiny.train_steps(make(kind, bf16=kind == "half"), [EIGHT])[0] for kind in ("full", "half")
    )
    assert full == pytest.approx(half, rel=2e-2) and full != half


def test_validation_generates_on_demand(make):
    agent = make()
    assert all("text" in answer for answer in tiny.act(agent, EIGHT[:2], "eval_labels"))
    tiny.train_steps(agent, [EIGHT])
    answers = tiny.act(agent, EIGHT[:2], "eval_labels")
    assert all("text" not in answer and "ppl" in answer["metrics"] for answer in answers)
    assert all(tiny.replies(agent, EIGHT[:2]))
