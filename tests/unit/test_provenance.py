"""Where each word of a reply comes from: the parts add up, and point at the right words."""

from __future__ import annotations

import json
import math

import chatting
import pytest
import tiny
import torch
from parlai.core.agents import create_agent_from_model_file, create_agent_from_shared
from parlai.core.message import Message
from parlai.scripts.eval_model import EvalModel

from persona_agents.agents.provenance import Texts, place_tokens, positions, spans
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn

WORDS = [
    word for lists in (chatting.PLACES, chatting.PETS) for words in lists.values() for word in words
]
PARTS = ("generated", "query", "persona")


@pytest.fixture(scope="module")
def agent(copying_model):
    """The copying agent with ``--provenance true``."""
    options = {"provenance": True, "datatype": "valid", "beam_length_penalty": 0.0}
    return create_agent_from_model_file(copying_model, options)


def with_options(agent, **options):
    """A copy of the agent with other options of its search."""
    shared = agent.share()
    shared["opt"] = {**agent.opt, **options}
    return create_agent_from_shared(shared)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """Makes tiny agents with random weights, which mix all three parts: ``untrained(copy="flat")``."""
    samples = [s for language in ("zh", "en") for s in tiny.samples(language)[:40:4]]

    def make(copy):
        folder = tmp_path_factory.mktemp(copy)
        corpus = tiny.write_corpus(folder, samples)
        agent = tiny.new_agent(**corpus, model_file=str(folder / "model"), copy=copy, seed=1)
        with torch.no_grad():  # larger weights, so that attention and gates are far from even
            for parameter in agent.model.parameters():
                parameter.mul_(3.0)
        agent.opt["provenance"] = True
        return agent

    return make


def probabilities_of_search(agent, sample, ids) -> list[float]:
    """What the decoder gives each word of a reply, word by word with its cache."""
    _, (observation,) = tiny.observe(agent, [sample], labels=None)
    agent.model.eval()
    with torch.no_grad():
        encoded = agent.module.encoder(observation["text_vec"].unsqueeze(0))
        cache, found = None, []
        written = torch.tensor([[agent.START_IDX]])
        for word in ids:
            log_probs, cache = agent.module.decoder(written, encoded, cache)
            found.append(log_probs[0, -1, word].exp().item())
            written = torch.cat((written, torch.tensor([[word]])), dim=1)
    return found


def assert_adds_up(provenance) -> None:
    for token in provenance["tokens"]:
        assert sum(token[part] for part in PARTS) == pytest.approx(token["probability"], abs=1e-5)
        for part in ("query", "persona"):
            pieces = [s["probability"] for s in token["sources"] if s["from"] == part]
            assert sum(pieces) == pytest.approx(token[part], abs=1e-5)


class TestSums:
    @pytest.mark.parametrize("copy", ["hierarchical", "flat"])
    def test_parts_sum_to_what_the_search_used(self, untrained, copy):
        agent = untrained(copy)
        samples = [s for language in ("zh", "en") for s in tiny.samples(language, "test")[:6]]
        mixed = 0
        for sample, answer in zip(samples, tiny.act(agent, samples)):
            provenance = answer["provenance"]
            assert_adds_up(provenance)
            ids = [agent.dict[token["token"]] for token in provenance["tokens"]]
            expected = probabilities_of_search(agent, sample, ids)
            found = [token["probability"] for token in provenance["tokens"]]
            assert found == pytest.approx(expected, abs=1e-5)
            mixed += sum(
                t["generated"] > 1e-3 and t["persona"] > 1e-3 for t in provenance["tokens"]
            )
        assert copy != "flat" or mixed, "some words come from more than one place"

    @pytest.mark.parametrize(
        "search",
        [
            {"inference": "greedy"},
            {"inference": "beam", "beam_size": 3, "beam_min_length": 0},
            {"inference": "topk", "topk": 5},
        ],
        ids=lambda search: search["inference"],
    )
    def test_every_search(self, agent, search):
        """The score that ParlAI gives the reply is the sum of the logarithms."""
        for answer in tiny.act(with_options(agent, **search), chatting.corpus(4, seed=5)):
            assert_adds_up(answer["provenance"])
            tokens = answer["provenance"]["tokens"]
            assert "".join(t["text"] for t in tokens) == answer["text"].replace(" ", "")
            score = dict(answer["beam_texts"])[answer["text"]]
            total = sum(math.log(t["probability"]) for t in tokens)
            assert total == pytest.approx(score, abs=1e-4)

    def test_gates(self, agent):
        for answer in tiny.act(agent, chatting.corpus(2)):
            for token in answer["provenance"]["tokens"]:
                assert token["beta"] + token["gamma"] == pytest.approx(1, abs=1e-5)
                copied = token["query"] + token["persona"]
                assert copied <= 1 - token["p_gen"] + 1e-5
                assert token["generated"] <= token["p_gen"] + 1e-6

    def test_a_batch_is_as_good_as_single_inputs(self, agent):
        samples = [*chatting.corpus(3), tiny.Sample((), "where do you live?", "")]
        together = [answer["provenance"] for answer in tiny.act(agent, samples)]
        for sample, in_batch in zip(samples, together):
            (alone,) = tiny.act(agent, [sample])
            assert len(alone["provenance"]["tokens"]) == len(in_batch["tokens"])
            for one, other in zip(alone["provenance"]["tokens"], in_batch["tokens"]):
                assert one["token"] == other["token"]
                for part in ("probability", *PARTS):
                    assert one[part] == pytest.approx(other[part], abs=1e-5)

    @pytest.mark.parametrize(
        ("persona", "query", "closed"),
        [((), "你住哪里？", "persona"), (("i live in rome.",), "", "query"), ((), "", None)],
    )
    def test_inputs_that_lack_something(self, agent, persona, query, closed):
        text = format_turn(persona, query) or "your persona: "
        clone = create_agent_from_shared(agent.share())
        clone.observe(Message(text=text, episode_done=True))
        (answer,) = agent.batch_act([clone.observation])
        assert_adds_up(answer["provenance"])
        for token in answer["provenance"]["tokens"]:
            assert all(math.isfinite(token[part]) for part in ("p_gen", "beta", "gamma"))
            if closed is None:
                assert token["p_gen"] == 1 and not token["sources"]
            else:
                assert token[closed] == 0


class TestSources:
    def test_the_copied_word_is_traced_to_its_sentence(self, agent):
        """Every entity of a right reply, at the place where the persona says it."""
        samples = chatting.corpus(40, seed=3)
        for sample, answer in zip(samples, tiny.act(agent, samples)):
            assert answer["text"] == sample.response
            (word,) = [word for word in WORDS if word in answer["text"]]
            sentence = [word in s for s in sample.persona].index(True)
            begin = answer["text"].index(word)
            (span,) = [s for s in answer["provenance"]["spans"] if s["start"] <= begin < s["end"]]
            assert (span["from"], span["sentence"]) == ("persona", sentence)
            assert begin + len(word) <= span["end"] and span["share"] > 0.9
            tokens = [
                t
                for t in answer["provenance"]["tokens"]
                if begin <= t["start"] < begin + len(word) and t["text"]
            ]
            for token in tokens:
                source = max(token["sources"], key=lambda s: s["probability"])
                text = sample.persona[source["sentence"]]
                assert text[source["start"] : source["end"]] == source["text"] == token["text"]
                assert source["start"] == text.index(word) + token["start"] - begin

    def test_spans_cover_the_reply(self, agent):
        for answer in tiny.act(agent, chatting.corpus(6)):
            found = "".join(span["text"] for span in answer["provenance"]["spans"])
            assert found.replace(" ", "") == answer["text"].replace(" ", "")
            for span in answer["provenance"]["spans"]:
                assert answer["text"][span["start"] : span["end"]] == span["text"]

    def test_earlier_turns_are_sentences_of_the_query(self, agent):
        clone = with_options(agent, history_size=3)
        clone.observe(Message(text="your persona: i live in rome.\nhi", episode_done=False))
        clone.act()
        clone.observe(Message(text="where do you live?", episode_done=False))
        provenance = clone.act()["provenance"]
        assert provenance["persona"] == ["i live in rome."]
        assert provenance["query"][0] == "hi" and provenance["query"][2] == "where do you live?"

    @pytest.mark.parametrize("limit", [60, 40, 16, 12, 8])
    def test_positions_after_truncation(self, agent, limit):
        """Turns lose their beginning, personas their end; every position still knows its word."""
        clone = with_options(agent, history_size=3)
        clone.history = clone.build_history()
        texts = Texts(
            ("我住在 Oslo。", "i  HAVE a Cat!"), ("你好 there", "ok?", "where do you live?")
        )
        for turn in (format_turn(texts.persona, texts.query[0]), *texts.query[1:]):
            clone.history.update_history({"text": turn})
        ids, whole = clone.history.encode(limit)
        assert len(ids) <= limit and (whole > len(ids)) == (limit < 33)
        found = positions(ids + [clone.NULL_IDX] * 2, texts, clone.dict)
        assert len(found) == len(ids) + 2
        words = 0
        for word, position in zip(ids, found):
            if position is None:
                assert word in (clone.START_IDX, clone.END_IDX)
                continue
            words += 1
            said = position.describe(texts)["text"]
            assert clone.dict.txt2vec(said) == [word] or said.lower() in "".join(
                clone.dict.ind2tok[word]
            ).replace("##", "")
        special = sum(word in (clone.START_IDX, clone.END_IDX) for word in ids)
        assert words == len(ids) - special


def test_place_tokens():
    places = place_tokens(["t", "-", "shirt", "##s", ",", "我", "[UNK]", ""], "t-shirts, 我[UNK]")
    assert places == [(0, 1), (1, 2), (2, 7), (7, 8), (8, 9), (10, 11), (11, 16), (16, 16)]
    assert place_tokens(["##ing", "a", ""], "ing a") == [(0, 3), (4, 5), (5, 5)]


def test_spans_join_what_comes_from_one_sentence():
    def token(text, start, part, sentence=None):
        source = {"from": part, "sentence": sentence, "probability": 0.6}
        parts = {**dict.fromkeys(PARTS, 0.2), part: 0.6}
        sources = [source] if sentence is not None else []
        return {"start": start, "end": start + len(text), "sources": sources, **parts}

    tokens = [
        token("i", 0, "generated"),
        token("am", 2, "generated"),
        token("ann", 5, "persona", 1),
        token("lee", 9, "persona", 1),
        token("x", 12, "persona", 0),
        token("", 13, "generated"),
    ]
    found = [
        (s["text"], s["from"], s["sentence"], s["share"]) for s in spans(tokens, "i am ann leex")
    ]
    assert found == [
        ("i am", "generated", None, 0.6),
        ("ann lee", "persona", 1, 0.6),
        ("x", "persona", 0, 0.6),
    ]


class TestOnDemand:
    def test_off_costs_no_pass_of_the_model(self, copying_model, monkeypatch):
        agent = create_agent_from_model_file(copying_model, {"datatype": "valid"})
        calls = []
        encoder = agent.module.encoder
        monkeypatch.setattr(agent.module, "encoder", lambda ids: calls.append(1) or encoder(ids))
        monkeypatch.setattr(agent.module, "explain", None)
        (answer,) = tiny.act(agent, chatting.corpus(1))
        assert "provenance" not in answer and len(calls) == 1

    def test_asked_afterwards(self, copying_model):
        agent = create_agent_from_model_file(copying_model, {"datatype": "valid"})
        assert agent.explain_last() == []
        (answer,) = tiny.act(agent, chatting.corpus(1))
        (provenance,) = agent.explain_last()
        assert "".join(t["text"] for t in provenance["tokens"]) == answer["text"].replace(" ", "")

    def test_explaining_a_given_reply(self, agent):
        clone = create_agent_from_shared(agent.share())
        text = "your persona: 我住在北京。\n你住哪里？"
        observation = clone.observe(Message(text=text, episode_done=False))
        found = agent.explain_text(observation, "我的家在北京。")
        assert_adds_up(found)
        assert [w["text"] for w in found["words"]] == list("我住在北京。你住哪里？")
        for token in found["tokens"]:
            for part in ("persona", "query"):
                row = [a for a, w in zip(token["attention"], found["words"]) if w["from"] == part]
                assert sum(row) == pytest.approx(1, abs=1e-5)
        same = agent.explain_text(observation, "", tokens=[*"我的家在北京。"])
        assert same == found

    def test_without_copying_one_message(self, untrained):
        agent = untrained("none")
        assert "--copy none" in agent.why_not()
        with pytest.raises(PersonaAgentsError, match="--copy none"):
            tiny.act(agent, chatting.corpus(1))
        ys = torch.tensor([[agent.END_IDX]])
        with pytest.raises(ValueError, match="copy mechanism"):
            agent.module.explain(agent.module.encoder(torch.tensor([[2, 3, 2, 3]])), ys)
        with pytest.raises(PersonaAgentsError, match="--provenance true: .*--copy none"):
            agent.check_options({**agent.opt, "provenance": True})

    def test_world_logs(self, copying_model, tmp_path):
        log = tmp_path / "log.jsonl"
        corpus = tiny.write_corpus(tmp_path, chatting.corpus(4))
        EvalModel.main(
            model_file=copying_model,
            provenance=True,
            world_logs=str(log),
            datatype="test",
            batchsize=2,
            **{**tiny.QUIET, **corpus},
        )
        dialogues = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        replies = [turn[1] for dialogue in dialogues for turn in dialogue["dialog"]]
        assert len(replies) == 4
        for reply in replies:
            assert reply["provenance"]["spans"], "plain data, not the text of an object"
            assert_adds_up(reply["provenance"])
