"""Which wrong replies TransferTransfo learns to tell from the right one, and what it learns."""

from __future__ import annotations

import gpt_models
import pytest
import tiny
import torch
from torch.nn import functional as F

from persona_agents.agents.distractors import Distractors, replies_of
from persona_agents.errors import PersonaAgentsError

EIGHT = tiny.samples("en")[:80:10]
OTHERS = tiny.samples("en", "valid")[:40:10]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Options of a task that trains on EIGHT and validates on OTHERS."""
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), EIGHT, OTHERS)


@pytest.fixture
def make(corpus, tmp_path):
    def build(model_file="model", **settings):
        given = {**gpt_models.settings(), "model": "persona_agents:transfertransfo", "seed": 1}
        given = {**given, "dropout": 0.0, "max_train_steps": 100, "num_epochs": -1, **settings}
        return tiny.new_agent(**corpus, **given, model_file=str(tmp_path / model_file))

    return build


class TestPool:
    def options(self, corpus, **settings):
        given = {"model": "persona_agents:transfertransfo", **gpt_models.settings()}
        return tiny.options(**corpus, **given, model_file="unused", **settings)

    @pytest.mark.parametrize("datatype", ["train", "train:ordered", "train:stream", "valid"])
    def test_is_the_splits_own(self, corpus, datatype):
        chosen = OTHERS if datatype == "valid" else EIGHT
        replies = replies_of(self.options(corpus, datatype=datatype))
        assert replies == [sample.response for sample in chosen]

    @pytest.mark.parametrize(
        ("task", "language"), [("cpc:mini", "zh"), ("personachat_single_turn:mini", "en")]
    )
    def test_holds_each_reply_once(self, task, language):
        replies = replies_of(self.options({"task": task}))
        assert len(replies) == len(set(replies))
        assert set(replies) == {sample.response for sample in tiny.samples(language)}

    def test_of_several_turns_and_tasks(self, corpus, tmp_path):
        path = tmp_path / "data.txt"
        turns = "1 your persona: i sew.\n2 hi\tone\n3 yes\ttwo\n1 your persona: i ski.\n2 hi\tone\n"
        path.write_text(turns, encoding="utf-8")
        task = {"task": "fromfile:fbformat", "fromfile_datapath": str(path)}
        assert replies_of(self.options(task)) == ["one", "two"]
        task = {**corpus, **task, "task": f"fromfile:fbformat,{corpus['task']}"}
        assert replies_of(self.options(task)) == ["one", "two", *(s.response for s in EIGHT)]


def draws(pool, **settings):
    made = Distractors({"task": "a task"}, lambda text: [*text.lower()[:3], "."])
    made.pool = pool
    return made


class TestDraw:
    POOL = tuple(f"{letter}b{digit}" for letter in "abcdefgh" for digit in range(10))

    def test_never_the_gold_one_and_never_twice(self):
        for number in range(200):
            gold = [*self.POOL[number % len(self.POOL)], "."]
            drawn = draws(self.POOL).draw(gold, 3, str(number))
            assert gold not in drawn and len({tuple(reply) for reply in drawn}) == 3

    def test_compared_as_the_model_reads_them(self):
        """Equal up to case, or equal where a reply is cut, is equal."""
        pool = ["abc", "ABC", "abcd", "ABCDE", "xyz"]
        for number in range(50):
            assert draws(pool).draw([*"abc."], 1, str(number)) == [[*"xyz."]]

    def test_by_the_key_alone(self):
        made = draws(self.POOL)
        first = [made.draw([*"ab1."], 2, f"key {number}") for number in range(20)]
        again = [draws(self.POOL).draw([*"ab1."], 2, f"key {n}") for n in reversed(range(20))]
        assert first == again[::-1]
        assert len({str(drawn) for drawn in first}) > 15

    @pytest.mark.parametrize("pool", [[], ["abc"], ["abc", "xyz"]])
    def test_too_few_replies(self, pool):
        with pytest.raises(PersonaAgentsError, match="--n-candidates 3: .* too few different"):
            draws(pool).draw([*"abc."], 2, "key")

    @pytest.mark.parametrize("count", [80, 2_000_000])
    def test_too_few_replies_are_seen_before_drawing(self, count):
        """With one draw after another the greater number would take minutes."""
        made, encoded = draws(self.POOL), []
        encode = made.encode
        made.encode = lambda text: encoded.append(text) or encode(text)
        for number in range(3):
            with pytest.raises(PersonaAgentsError, match="too few different"):
                made.draw([*"ab1."], count, str(number))
        assert len(encoded) <= len(self.POOL)
        assert len(made.draw([*"ab1."], 79, "key")) == 79


def texts(agent, batch):
    """Texts of the distractors (B, N - 1) that a batch is trained with."""
    agent.model.train()
    _, distractors = agent._model_input(batch)
    return [[agent.dict.vec2txt(ids) for ids in row.tolist()] for row in distractors]


def batch_of(agent, chosen):
    return agent.batchify(tiny.observe(agent, chosen)[1])


class TestAgent:
    def test_distractors_are_other_replies_of_the_split(self, make):
        agent = make(n_candidates=4)
        as_read = {s.response: agent.dict.vec2txt(agent.dict.txt2vec(s.response)) for s in EIGHT}
        for chosen in (EIGHT, EIGHT[:3], EIGHT[:1]):
            for sample, drawn in zip(chosen, texts(agent, batch_of(agent, chosen))):
                assert len(drawn) == 3 == len(set(drawn))
                assert set(drawn) <= set(as_read.values()) - {as_read[sample.response]}

    def test_they_end_and_are_cut_like_labels(self, make):
        agent = make(label_truncate=4)
        batch = batch_of(agent, EIGHT)
        agent.model.train()
        _, distractors = agent._model_input(batch)
        assert distractors.size(2) <= 4 and batch.label_vec.size(1) <= 4

    def test_change_from_update_to_update_and_return_on_resuming(self, make):
        def run(agent, steps):
            batch, seen = batch_of(agent, EIGHT), []
            for _ in range(steps):
                seen.append(texts(agent, batch))
                tiny.train_steps(agent, [EIGHT])
            return seen

        expected = run(make("unbroken"), 6)
        assert len({str(drawn) for drawn in expected}) > 3
        first = make()
        seen = run(first, 3)
        first.save()
        assert seen + run(make(), 3) == expected

    def test_do_not_depend_on_the_rest_of_the_batch(self, make):
        agent = make()
        together = texts(agent, batch_of(agent, EIGHT))
        alone = [texts(agent, batch_of(agent, [sample]))[0] for sample in EIGHT]
        assert together == alone

    def test_the_seed_decides(self, make):
        one, same, other = (
            texts(agent, batch_of(agent, EIGHT))
            for agent in (make("1"), make("2"), make("3", seed=2))
        )
        assert one == same != other

    @pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 0.5), (0.0, 1.0), (1.0, 0.0)])
    def test_the_loss_is_the_weighted_sum(self, make, weights):
        agent = make(lm_weight=weights[0], choice_weight=weights[1], n_candidates=3)
        batch = batch_of(agent, EIGHT)
        agent.model.train()
        loss = agent.compute_loss(batch)
        ids, distractors = agent._model_input(batch)
        log_p, _, _, choice = agent.model(ids, distractors, ys=batch.label_vec)
        language = -log_p.squeeze(2)[batch.label_vec.ne(agent.NULL_IDX)].mean()
        right = F.cross_entropy(choice, torch.zeros(len(EIGHT), dtype=torch.long))
        assert choice.shape == (8, 3)
        assert loss.item() == pytest.approx((weights[0] * language + weights[1] * right).item())

    def test_learns_to_choose(self, make):
        agent = make(n_candidates=4, learningrate=1e-2)
        tiny.train_steps(agent, [EIGHT] * 40)
        agent.reset_metrics()
        metrics = [answer["metrics"] for answer in tiny.act(agent, EIGHT, "labels")]
        assert sum(m["choice_acc"].value() for m in metrics) >= 7
        assert sum(m["choice_loss"].value() for m in metrics) / 8 < 0.7

    def test_evaluation_draws_nothing(self, make):
        agent = make()
        answers = tiny.act(agent, EIGHT, "eval_labels")
        assert agent.distractors.pool is None
        assert all("ppl" in a["metrics"] and "choice_loss" not in a["metrics"] for a in answers)

    def test_one_candidate_is_the_language_model_alone(self, make):
        agent = make(n_candidates=1)
        (answer,) = tiny.act(agent, EIGHT[:1], "labels")
        assert "choice_loss" not in answer["metrics"] and agent.distractors.pool is None
        names = {name for name, parameter in agent.model.named_parameters()}
        assert not any(name.startswith("choice_head") for name in names)
        assert all(parameter.grad is not None for parameter in agent.model.parameters())

    def test_input_and_reply_share_the_positions(self, make, tmp_path):
        gpt_models.make_gpt(tmp_path / "gpt", "bpe", n_positions=32)
        agent = make(**gpt_models.settings(tmp_path / "gpt"))
        assert agent.text_truncate + 1 + agent.label_truncate <= 32
        long = tiny.Sample(("i have a cat .",) * 20, "do you ? " * 20, "yes , i do . " * 20)
        answers = tiny.act(agent, [EIGHT[0], long], "labels")
        assert [a["metrics"]["ctrunc"].value() for a in answers][1] == 1.0
        assert [a["metrics"]["ltrunc"].value() for a in answers][1] == 1.0
        assert all(tiny.replies(agent, [EIGHT[0], long]))

    @pytest.mark.parametrize(
        ("settings", "option"),
        [
            ({"n_candidates": 0}, "--n-candidates 0"),
            ({"lm_weight": -1.0}, "--lm-weight"),
            ({"choice_weight": -1.0}, "--choice-weight"),
        ],
    )
    def test_what_cannot_be_is_refused(self, make, settings, option):
        with pytest.raises(PersonaAgentsError, match=option):
            make(**settings)

    def test_more_candidates_than_replies(self, make):
        agent = make(n_candidates=20)
        with pytest.raises(PersonaAgentsError, match="--n-candidates 20: .*too few"):
            tiny.train_steps(agent, [EIGHT])
