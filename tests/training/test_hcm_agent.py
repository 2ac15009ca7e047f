"""The HCM agent as ParlAI uses it: trained, saved, loaded, decoding, ranking, reporting."""

from __future__ import annotations

import functools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import torch
from conftest import ROOT, subprocess_environment
from parlai.core.agents import create_agent, create_agent_from_model_file
from parlai.core.message import Message
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainModel

from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn

sys.path.append(str(ROOT / "tests" / "unit"))
import naive_hcm as naive

# Four Chinese and four English samples: their replies differ in length.
EIGHT = [s for language in ("zh", "en") for s in tiny.samples(language)[:40:10]]
UNSEEN = [s for language in ("zh", "en") for s in tiny.samples(language, "test")[:30:10]]
SPECIAL = ("##", "[CLS]", "[SEP]", "[PAD]")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Options of a task that trains and validates on EIGHT and tests on UNSEEN."""
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), EIGHT, EIGHT, UNSEEN)


def train(corpus, model_file, **settings):
    """`parlai train_model`; returns its reports on valid and test."""
    given = {**tiny.QUIET, **tiny.SIZES, "batchsize": 8, "learningrate": 1e-2, "seed": 1}
    given = {**given, "dropout": 0.0, **corpus, **settings}
    given = {name: value for name, value in given.items() if value is not None}
    return TrainModel.main(model="persona_agents:hcm", model_file=str(model_file), **given)


@pytest.fixture(scope="module")
def overfitted(corpus, tmp_path_factory):
    """(model file, report on valid) of a training that learned EIGHT by heart."""
    model_file = str(tmp_path_factory.mktemp("overfitted") / "model")
    valid, _ = train(
        corpus, model_file, max_train_steps=120, num_epochs=-1, validation_every_n_epochs=50
    )
    return model_file, valid


@pytest.fixture(scope="module")
def load(overfitted):
    """Loads the overfitted agent with other options, once for each set of them."""

    @functools.cache
    def load_once(options):
        return create_agent_from_model_file(overfitted[0], dict(options))

    return lambda **options: load_once(tuple({"datatype": "valid", **options}.items()))


def written(agent, text):
    """A text as the agent would write it."""
    return agent.dict.vec2txt(agent.dict.txt2vec(text))


class TestOverfitting:
    def test_every_token_is_right(self, overfitted):
        _, valid = overfitted
        assert valid["token_acc"].value() == 1.0 and valid["token_em"].value() == 1.0
        assert valid["ppl"].value() < 1.2

    def test_replies_are_the_gold_ones(self, load):
        agent = load()
        assert tiny.replies(agent, EIGHT) == [written(agent, s.response) for s in EIGHT]

    def test_replies_depend_on_persona_and_query(self, load):
        agent = load()
        # the same query with another persona, the same persona with another query
        mixed = [(EIGHT[0].persona, EIGHT[1].query), (EIGHT[1].persona, EIGHT[0].query)]
        before = set(tiny.replies(agent, EIGHT[:2]))
        assert len(before) == 2
        assert len(before | set(tiny.replies(agent, mixed))) > 2


class TestDecoding:
    INPUTS = (*EIGHT, *UNSEEN)

    def test_greedy_is_beam_search_with_one_beam(self, load):
        beam = load(inference="beam", beam_size=1, beam_min_length=0)
        assert tiny.replies(beam, self.INPUTS) == tiny.replies(load(), self.INPUTS)

    @pytest.mark.parametrize("n", [1, 2])
    def test_replies_end_when_words_of_the_input_are_blocked(self, load, n):
        agent = load(inference="beam", beam_size=2, beam_context_block_ngram=n)
        for reply, sample in zip(tiny.replies(agent, EIGHT), EIGHT):
            words, said = agent.dict.txt2vec(reply), agent.dict.txt2vec(sample.query)
            grams = {tuple(said[i : i + n]) for i in range(len(said) - n + 1)}
            assert not grams & {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}
            assert len(words) < 60, "[SEP], which closes persona and query, is not blocked"

    @pytest.mark.parametrize("options", [{}, {"inference": "beam", "beam_size": 3}])
    def test_a_batch_is_as_good_as_single_inputs(self, load, options):
        agent = load(**options)
        together = tiny.replies(agent, self.INPUTS)
        assert together == [tiny.replies(agent, [one])[0] for one in self.INPUTS]
        assert len(set(map(len, together))) > 3, "replies of many lengths"
        assert tiny.replies(agent, self.INPUTS[::-1]) == together[::-1]

    @pytest.mark.parametrize(
        "options",
        [
            {"inference": "topk", "topk": 5},
            {"inference": "nucleus", "topp": 0.9},
            {"inference": "beam", "beam_size": 5},
            {"inference": "beam", "beam_size": 5, "beam_block_ngram": 2, "beam_min_length": 3},
            {"inference": "beam", "beam_size": 2, "beam_context_block_ngram": 3},
            {"inference": "topk", "topk": 3, "beam_size": 3, "temperature": 1.5},
        ],
        ids=lambda options: " ".join(str(value) for value in options.values()),
    )
    def test_other_searches_give_clean_text(self, load, options):
        torch.manual_seed(0)
        agent = load(**options)
        texts = tiny.replies(agent, self.INPUTS)
        assert len(texts) == len(self.INPUTS)
        for text in texts:
            assert text and text == text.strip() and not any(token in text for token in SPECIAL)
        if options.get("beam_block_ngram"):
            for text in texts:
                ids = agent.dict.txt2vec(text)
                assert len(set(zip(ids, ids[1:]))) == len(ids) - 1, "no pair of words twice"
                assert len(ids) >= 2

    @pytest.mark.parametrize(
        "options", [{"inference": "topk", "topk": 1}, {"inference": "nucleus", "topp": 1e-6}]
    )
    def test_sampling_without_choice_is_greedy(self, load, options):
        assert tiny.replies(load(**options), self.INPUTS) == tiny.replies(load(), self.INPUTS)

    def test_sampling_follows_the_mixture(self, load):
        """Frequencies of the first word over 600 draws against the model's own probabilities."""
        agent = load(inference="nucleus", topp=0.9999, temperature=3.0)
        (persona, query, _) = UNSEEN[0]
        _, (observation,) = tiny.observe(agent, [(persona, query)])
        with torch.no_grad():
            encoded = agent.model.encoder(agent.batchify([observation]).text_vec)
            start = torch.tensor([[agent.START_IDX]])
            log_probs = agent.model.decoder(start, encoded)[0][0, 0]
            expected = (log_probs / 3.0).softmax(-1)
        torch.manual_seed(1)
        batch = agent.batchify([observation] * 600)
        firsts = torch.tensor([int(p[0][1]) for p in agent._generate(batch, 1, 2)[0]])
        for word in expected.topk(3).indices:
            share = firsts.eq(word).float().mean().item()
            assert share == pytest.approx(expected[word].item(), abs=0.06)

    def test_longest_reply(self, load):
        agent = load(label_truncate=4)
        texts = tiny.replies(agent, EIGHT)
        assert all(len(agent.dict.txt2vec(text)) <= 4 for text in texts)

    @pytest.mark.parametrize(
        "text", ["", "your persona: i sew.", "hello", "your persona: 我爱猫\n你好", "\n\n"]
    )
    def test_inputs_that_lack_something(self, load, text):
        agent = load()
        agent.reset()
        agent.observe(Message(text=text, episode_done=True))
        answer = agent.act()
        assert isinstance(answer["text"], str)

    def test_a_chat_of_several_turns(self, load):
        agent = load(history_size=3)
        agent.reset()
        for turn in range(4):
            text = format_turn(EIGHT[0].persona if turn == 0 else (), EIGHT[turn].query)
            observation = agent.observe(Message(text=text, episode_done=False))
            assert agent.act()["text"]
        ids = observation["text_vec"].tolist()
        assert ids.count(agent.END_IDX) == 1 + 3, "persona and three turns"


@pytest.fixture(scope="module")
def evaluated(corpus, overfitted):
    """`parlai eval_model` on unseen samples."""
    return EvalModel.main(
        model_file=overfitted[0], **corpus, **tiny.QUIET, datatype="test", batchsize=4
    )


class TestReports:
    def test_perplexity_is_the_references(self, load, evaluated):
        agent = load()
        config = naive.Config(
            vocab=len(agent.dict), hidden=32, heads=2, ffn=64, encoder_layers=1, decoder_layers=1,
            positions=512, eps=1e-12, pad=agent.NULL_IDX, unk=1, cls=agent.START_IDX,
            sep=agent.END_IDX,
        )  # fmt: skip
        weights = {k: v.double().numpy() for k, v in agent.model.state_dict().items()}
        loss, tokens = 0.0, 0
        for persona, query, response in UNSEEN:
            parts = [agent.dict.txt2vec(text) for text in (" ".join(persona), query)]
            reply = [agent.START_IDX, *agent.dict.txt2vec(response)]
            sample = naive.Sample(tuple(parts[0]), tuple(parts[1]), tuple(reply))
            loss += naive.cross_entropy(weights, config, sample).sum()
            tokens += len(reply)  # with the end token
        assert evaluated["loss"].value() == pytest.approx(loss / tokens, rel=1e-5)
        assert evaluated["ppl"].value() == pytest.approx(math.exp(loss / tokens), rel=1e-5)

    def test_token_accuracy_is_the_mixtures(self, load, evaluated):
        agent = load()
        _, observations = tiny.observe(agent, UNSEEN, "eval_labels")
        batch = agent.batchify(observations)
        with torch.no_grad():
            _, best = agent.model.decode_forced(
                agent.model.encoder(batch.text_vec), batch.label_vec
            )
        real = batch.label_vec.ne(agent.NULL_IDX)
        right = best.eq(batch.label_vec)[real].float().mean().item()
        assert 0 < right < 1
        assert evaluated["token_acc"].value() == pytest.approx(right)

    def test_eval_model_generates(self, evaluated):
        assert "f1" in evaluated and evaluated["gen_n_toks"].value() > 1

    def test_skip_generation(self, load, evaluated):
        answers = tiny.act(load(skip_generation=True), UNSEEN, "eval_labels")
        assert all("text" not in answer for answer in answers)
        losses = [answer["metrics"]["loss"] for answer in answers]
        assert sum(losses[1:], losses[0]).value() == pytest.approx(evaluated["loss"].value())

    def test_token_details(self, load):
        details = tiny.act(load(verbose=True), EIGHT[:3], "eval_labels")
        plain = tiny.act(load(), EIGHT[:3], "eval_labels")
        for detail, answer, sample in zip(details, plain, EIGHT):
            tokens = [token for token, _ in detail["token_losses"] if token != "[PAD]"]
            assert tokens == [*load().dict.tokenize(sample.response), "[SEP]"]
            total = sum(loss for _, loss in detail["token_losses"])
            assert total == pytest.approx(answer["metrics"]["loss"]._numer, rel=1e-3)
            assert detail["text"] == answer["text"]


class TestRanking:
    def rank(self, agent, samples, candidates):
        observations = []
        for (persona, query, response), offered in zip(samples, candidates):
            agent.reset()
            message = {"text": format_turn(persona, query), "eval_labels": [response]}
            message.update(label_candidates=offered, episode_done=True)
            observations.append(agent.observe(Message(message)))
        return agent.batch_act(observations)

    def test_gold_reply_first(self, load):
        golds = [sample.response for sample in EIGHT]
        candidates = [golds[i:] + golds[:i] for i in range(1, 9)]  # the gold one is last
        candidates[0] = candidates[0][-3:]  # not all samples have as many
        answers = self.rank(load(rank_candidates=True), EIGHT, candidates)
        for answer, gold, offered in zip(answers, golds, candidates):
            assert answer["text_candidates"][0] == gold
            assert sorted(answer["text_candidates"]) == sorted(offered)

    def test_scores_are_mean_losses(self, load):
        golds = [sample.response for sample in UNSEEN]
        agent = load(rank_candidates=True)
        (answer,) = self.rank(agent, UNSEEN[:1], [golds])
        assert answer["cand_scores"] == sorted(answer["cand_scores"])
        plain = load(skip_generation=True)
        for text, score in zip(answer["text_candidates"], answer["cand_scores"]):
            sample = UNSEEN[0]._replace(response=text)
            (single,) = tiny.act(plain, [sample], "eval_labels")
            assert score == pytest.approx(single["metrics"]["loss"].value(), rel=1e-4)

    def test_a_task_without_candidates_ranks_nothing(self, load):
        (answer,) = tiny.act(load(rank_candidates=True), EIGHT[:1], "eval_labels")
        assert answer["text"] and "text_candidates" not in answer

    def test_hits_are_reported(self, load):
        answers = self.rank(load(rank_candidates=True), EIGHT[:2], [[EIGHT[1].response]] * 2)
        assert answers[1]["text_candidates"] == [EIGHT[1].response]


class TestTraining:
    @pytest.fixture
    def agent(self, corpus, tmp_path):
        def make(**settings):
            given = {"learningrate": 1e-2, "seed": 1, "max_train_steps": 20, **settings}
            return tiny.new_agent(**corpus, **given, model_file=str(tmp_path / "model"))

        return make

    @pytest.mark.parametrize("copy", ["hierarchical", "flat", "none"])
    def test_each_copy_mode_learns(self, agent, copy):
        made = agent(copy=copy, dropout=0.0)
        losses = tiny.train_steps(made, [EIGHT] * 12)
        assert losses[-1] < losses[0] - 1 and all(map(math.isfinite, losses))
        names = {name.split(".")[1] for name, _ in made.model.named_parameters() if "copy." in name}
        assert names == {"hierarchical": {"gate", "source"}, "flat": {"gate"}, "none": set()}[copy]
        assert all(tiny.replies(made, UNSEEN))

    @pytest.mark.parametrize("copy", ["hierarchical", "flat", "none"])
    def test_every_parameter_gets_a_gradient(self, agent, copy):
        made = agent(copy=copy, dropout=0.0)
        tiny.train_steps(made, [EIGHT])
        for name, parameter in made.model.named_parameters():
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
            # a key's bias adds the same to all scores: softmax takes it away
            assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name

    def test_seed_decides_the_weights(self, agent):
        def weights(seed):
            made = agent(seed=seed, dropout=0.1)
            first = {k: v.clone() for k, v in made.model.state_dict().items()}
            tiny.train_steps(made, [EIGHT] * 2)
            return first, made.model.state_dict()

        one, same, other = weights(1), weights(1), weights(2)
        for stage in (0, 1):
            assert all(torch.equal(one[stage][k], v) for k, v in same[stage].items())
            assert not torch.equal(one[stage]["generator.weight"], other[stage]["generator.weight"])

    def test_dropout_acts_in_training_alone(self, agent):
        made = agent(dropout=0.5)
        config = made.model.bert.config
        assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.5
        losses = {tiny.train_steps(agent(dropout=p), [EIGHT])[0] for p in (0.5, 0.0)}
        assert len(losses) == 2
        first, second = (tiny.act(made, EIGHT, "eval_labels") for _ in range(2))
        assert [a["metrics"]["loss"] for a in first] == [a["metrics"]["loss"] for a in second]

    @pytest.mark.parametrize("generate", [False, True])
    def test_validation_generates_on_demand(self, agent, generate):
        made = agent(validation_generate=generate)
        assert all(tiny.replies(made, EIGHT[:2])), "only to be evaluated, it replies"
        before = tiny.act(made, EIGHT[:2], "eval_labels")
        assert all("text" in answer for answer in before), "nor does it skip before training"
        tiny.train_steps(made, [EIGHT])
        answers = tiny.act(made, EIGHT, "eval_labels")
        assert all(("text" in answer) is generate for answer in answers)
        assert all("ppl" in answer["metrics"] for answer in answers)
        assert made.skip_generation is False
        assert all(tiny.replies(made, EIGHT[:2])), "without labels nobody validates: it replies"

    def test_dynamic_batching(self, corpus, tmp_path):
        valid, _ = train(
            corpus, tmp_path / "model", num_epochs=5, validation_every_n_epochs=5,
            dynamic_batching="full", text_truncate=64, label_truncate=32, batchsize=2,
        )  # fmt: skip
        assert valid["ppl"].value() < 120 and valid["exs"].value() == 8


@pytest.fixture(scope="module")
def bert(tmp_path_factory, minilm):
    """The folder of a tiny BERT."""
    folder = str(tmp_path_factory.mktemp("bert") / "small")
    tiny.make_bert(folder, minilm)
    return folder


class TestResuming:
    """At the level of the agent, with the same batches: training goes on exactly as if unbroken."""

    BATCHES = tuple([EIGHT[i % 8], EIGHT[(i * 3 + 1) % 8]] for i in range(10))

    def make(self, corpus, bert, model_file, **settings):
        given = {**tiny.with_bert(bert), "max_train_steps": 10, "learningrate": 1e-2, "seed": 1}
        given = {**given, "pretrained_lr": 1e-3, **settings}
        return tiny.new_agent(**corpus, **given, model_file=str(model_file))

    @pytest.mark.parametrize("dropout", [0.0, 0.1])
    def test_equals_unbroken_training(self, corpus, bert, tmp_path, dropout):
        unbroken = self.make(corpus, bert, tmp_path / "unbroken", dropout=dropout)
        expected = tiny.train_steps(unbroken, self.BATCHES)

        first = self.make(corpus, bert, tmp_path / "first", dropout=dropout)
        losses = tiny.train_steps(first, self.BATCHES[:5])
        first.save(str(tmp_path / "first"))
        random_state = torch.get_rng_state()
        second = self.make(corpus, bert, tmp_path / "first", dropout=dropout)
        assert second._number_training_updates == 5
        second.scheduler.begin()
        rates = [group["lr"] for group in second.optimizer.param_groups]
        assert rates == [group["lr"] for group in first.optimizer.param_groups]
        assert rates == pytest.approx([1e-2 * 0.5 / 0.9, 1e-3 * 0.5 / 0.9])
        states = [agent.optimizer.state_dict()["state"] for agent in (first, second)]
        for index, state in states[0].items():
            assert state.keys() == states[1][index].keys()
            assert all(
                torch.equal(torch.as_tensor(v), states[1][index][k]) for k, v in state.items()
            )
        torch.set_rng_state(random_state)
        losses += tiny.train_steps(second, self.BATCHES[5:])
        assert losses == expected
        for name, value in unbroken.model.state_dict().items():
            assert torch.equal(value, second.model.state_dict()[name]), name

    def test_new_process_needs_no_bert(self, corpus, bert, tmp_path):
        """By `-mf` alone, elsewhere, with BERT's folder and the first model folder gone."""
        copied = shutil.copytree(bert, tmp_path / "copied bert")
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        train(
            corpus, old / "model", **tiny.with_bert(str(copied)), max_train_steps=2,
            validation_every_n_epochs=2,
        )  # fmt: skip
        agent = create_agent_from_model_file(str(old / "model"))
        replies = tiny.replies(agent, UNSEEN[:2])
        report = EvalModel.main(
            model_file=str(old / "model"), **corpus, **tiny.QUIET, datatype="test"
        )
        del agent
        shutil.rmtree(copied)
        old.rename(new)
        code = """
import json, sys, persona_agents
from parlai.core.agents import create_agent_from_model_file
from parlai.scripts.eval_model import EvalModel
model_file, texts, task = json.loads(sys.argv[1])
agent = create_agent_from_model_file(model_file)
replies = [agent.respond(text) for text in texts]
report = EvalModel.main(model_file=model_file, datatype="test", loglevel="error", **task)
print(json.dumps([replies, report["ppl"].value(), agent.opt["bert_model"]]))
"""
        texts = [format_turn(persona, query) for persona, query, _ in UNSEEN[:2]]
        (tmp_path / "elsewhere").mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps([str(new / "model"), texts, corpus])],
            cwd=tmp_path / "elsewhere",
            env={**subprocess_environment(), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            check=True,
            encoding="utf-8",
        )
        last = json.loads(done.stdout.splitlines()[-1])
        assert last[:2] == [replies, pytest.approx(report["ppl"].value(), rel=1e-6)]
        assert last[2] == str(copied), "which is gone"

    def test_trains_on_without_bert(self, corpus, bert, tmp_path):
        copied = shutil.copytree(bert, tmp_path / "copied")
        agent = self.make(corpus, copied, tmp_path / "model", dropout=0.0)
        tiny.train_steps(agent, self.BATCHES[:2])
        agent.save(str(tmp_path / "model"))
        shutil.rmtree(copied)
        again = self.make(corpus, copied, tmp_path / "model", dropout=0.0)
        assert [len(g["params"]) for g in again.optimizer.param_groups] == [
            len(g["params"]) for g in agent.optimizer.param_groups
        ]
        batches = self.BATCHES[2:4]
        assert tiny.train_steps(again, batches) == tiny.train_steps(agent, batches)


class TestInitModel:
    def test_starts_from_another_checkpoint_afresh(self, overfitted, tmp_path, load):
        model_file, _ = overfitted
        # another corpus, whose own vocabulary would be another one
        corpus = tiny.write_corpus(tmp_path / "corpus", tiny.samples("en")[100:104])
        settings = {"init_model": model_file, "max_train_steps": 10, "learningrate": 1e-3}
        agent = tiny.new_agent(**corpus, **settings, model_file=str(tmp_path / "model"))
        assert agent.dict.tok2ind == load().dict.tok2ind
        for name, value in load().model.state_dict().items():
            assert torch.equal(value, agent.model.state_dict()[name]), name
        assert agent._number_training_updates == 0 and not agent.optimizer.state
        assert agent.scheduler.examples == 0 and agent.scheduler.peaks == [1e-3]
        tiny.train_steps(agent, [EIGHT])
        agent.save(str(tmp_path / "model"))
        saved = create_agent_from_model_file(str(tmp_path / "model"))
        assert saved.dict.tok2ind == load().dict.tok2ind
        assert all(tiny.replies(saved, EIGHT[:2]))

    def test_of_a_finished_command(self, overfitted, corpus, tmp_path):
        valid, _ = train(
            corpus, tmp_path / "model", init_model=overfitted[0], max_train_steps=1,
            learningrate=1e-6, validation_every_n_epochs=1,
        )  # fmt: skip
        assert valid["ppl"].value() == pytest.approx(overfitted[1]["ppl"].value(), rel=1e-2)

    def test_takes_sizes_and_berts_parts_from_it(self, overfitted, corpus, tmp_path):
        # no size and no --bert-model given: all of it is the saved model's affair
        settings = {**dict.fromkeys(tiny.SIZES), "bert_model": "auto"}
        agent = tiny.new_agent(
            **corpus, **settings, init_model=overfitted[0], model_file=str(tmp_path / "model")
        )
        assert len(agent.model.layers) == 1
        assert len(agent.optimizer.param_groups) == 1, "it has no weights of BERT"

    def test_that_is_not_there(self, corpus, tmp_path):
        with pytest.raises(
            PersonaAgentsError, match="--init-model .*nowhere: there is no such file"
        ):
            tiny.new_agent(
                **corpus, init_model=str(tmp_path / "nowhere"), model_file=str(tmp_path / "model")
            )


class TestCheckpoints:
    def test_without_its_dictionary(self, overfitted, corpus, tmp_path):
        for suffix in ("", ".opt"):
            shutil.copy(overfitted[0] + suffix, str(tmp_path / "model") + suffix)
        with pytest.raises(PersonaAgentsError, match="model.dict, the dictionary of this model"):
            tiny.new_agent(**corpus, model_file=str(tmp_path / "model"))

    def test_holds_no_code_and_loads_safely(self, overfitted):
        states = torch.load(overfitted[0], weights_only=True)
        assert "model" in states
        saved = json.loads(Path(overfitted[0] + ".opt").read_text(encoding="utf-8"))
        assert saved["bert_config"]["hidden_size"] == 32

    @pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
    def test_damaged(self, overfitted, corpus, tmp_path, damage):
        for suffix in ("", ".opt", ".dict"):
            shutil.copy(overfitted[0] + suffix, str(tmp_path / "model") + suffix)
        path = tmp_path / "model"
        path.write_bytes(path.read_bytes()[:3000] if damage is None else damage)
        with pytest.raises(PersonaAgentsError, match=str(path)):
            create_agent_from_model_file(str(path))

    @pytest.mark.parametrize(
        "settings",
        [{"copy": "flat"}, {"copy": "none"}, {"n_decoder_layers": 2}],
        ids=lambda settings: "".join(settings),
    )
    def test_with_other_options(self, overfitted, corpus, settings):
        opt = tiny.options(**corpus, model_file=overfitted[0], **settings)
        before = {p: p.stat().st_mtime_ns for p in Path(overfitted[0]).parent.iterdir()}
        with pytest.raises(PersonaAgentsError, match="does not fit") as error:
            create_agent(opt)
        assert overfitted[0] in str(error.value)
        assert {p: p.stat().st_mtime_ns for p in Path(overfitted[0]).parent.iterdir()} == before
