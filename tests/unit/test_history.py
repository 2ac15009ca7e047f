"""The encoder's input sequence (eq. 2) over a whole episode, and what is cut from it."""

from __future__ import annotations

import pytest
import tiny
from parlai.core.agents import create_agent_from_shared
from parlai.core.message import Message

from persona_agents.agents.history import PersonaHistory

PERSONA = ("i sew .", "my cat is old .")
WORDS = [*"abcdefghijklmnopqrstuvwxyz", "i", "sew", ".", "my", "cat", "is", "old", "hello", "you"]


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """A tiny agent whose vocabulary knows WORDS."""
    folder = tmp_path_factory.mktemp("history")
    corpus = tiny.write_corpus(folder, [((" ".join(WORDS),), "hello", "you 我 喜 欢 苹 果")] * 2)
    return tiny.new_agent(**corpus, model_file=str(folder / "model"), seed=1)


@pytest.fixture
def clone(agent):
    """Makes copies of the agent with other options: ``clone(history_size=3)``."""

    def make(**options):
        shared = agent.share()
        shared["opt"] = {**agent.opt, **options}
        return create_agent_from_shared(shared)

    return make


def say(agent, text, done=False, **fields):
    """The agent observes a turn, which it leaves unanswered; returns its input as tokens."""
    sequence = tokens(agent, agent.observe(Message(text=text, episode_done=done, **fields)))
    if done:
        agent.self_observe(Message(text="", episode_done=True))
    return sequence


def tokens(agent, observation):
    return [agent.dict[i] for i in observation["text_vec"].tolist()]


def persona_lines(persona):
    return "".join(f"your persona: {sentence}\n" for sentence in persona)


def parts(sequence):
    """(persona, query turns) of an input sequence."""
    assert sequence[0] == "[CLS]" and sequence.count("[CLS]") == 2 and sequence[-1] == "[SEP]"
    begin = sequence.index("[CLS]", 1)
    assert sequence[begin - 1] == "[SEP]"
    turns, turn = [], []
    for token in sequence[begin + 1 :]:
        if token == "[SEP]":
            turns.append(turn)
            turn = []
        else:
            turn.append(token)
    return sequence[1 : begin - 1], turns


class TestLayout:
    def test_equation_2(self, clone):
        expected = "[CLS] i sew . my cat is old . [SEP] [CLS] hello you [SEP]"
        assert say(clone(), persona_lines(PERSONA) + "hello you") == expected.split()

    def test_no_persona(self, clone):
        assert say(clone(), "hello") == ["[CLS]", "[SEP]", "[CLS]", "hello", "[SEP]"]

    def test_no_query(self, clone):
        expected = "[CLS] i sew . [SEP] [CLS] [SEP]"
        assert say(clone(), "your persona: i sew .") == expected.split()

    def test_partners_persona_is_no_input(self, clone):
        text = "partner's persona: old cat\n" + persona_lines(PERSONA[:1]) + "hello"
        assert say(clone(), text) == ["[CLS]", "i", "sew", ".", "[SEP]", "[CLS]", "hello", "[SEP]"]

    def test_special_tokens_in_the_text_do_not_break_the_layout(self, clone):
        sequence = say(clone(), "your persona: i [SEP] sew\nhello [CLS] you [SEP] [PAD]")
        _, turns = parts(sequence)
        assert len(turns) == 1 and "[PAD]" not in sequence and turns[0].count("hello") == 1

    def test_segments_of_the_model_agree(self, clone):
        agent = clone(history_size=3)
        say(agent, persona_lines(PERSONA) + "hello")
        sequence = say(agent, "you")
        ids = agent.observation["text_vec"].unsqueeze(0)
        segments = agent.model.segments(ids)[0].tolist()
        assert segments == [0] * 10 + [1] * (len(sequence) - 10)
        encoded = agent.model.encoder(ids)
        words = [t not in ("[CLS]", "[SEP]") for t in sequence]
        persona = [i for i, word in enumerate(words) if word and i < 10]
        query = [i for i, word in enumerate(words) if word and i >= 10]
        for source, places in ((encoded.persona, persona), (encoded.query, query)):
            assert source.position[0][source.word[0]].tolist() == places


class TestPersonaIsKept:
    @pytest.mark.parametrize("size", [1, 2, 5, -1])
    def test_through_fifty_turns(self, clone, size):
        agent = clone(history_size=size)
        say(agent, persona_lines(PERSONA) + "hello")
        for turn in range(50):
            agent.self_observe(Message(text="you", episode_done=False))
            observation = agent.observe(Message(text=WORDS[turn % 26], episode_done=False))
            persona, turns = parts(tokens(agent, observation))
            assert persona == " ".join(PERSONA).split()
            assert turns[-1] == [WORDS[turn % 26]]
            assert len(observation["text_vec"]) <= agent.text_truncate
            assert len(turns) == min(size if size > 0 else 1000, 3 + 2 * turn)

    def test_given_as_an_observation_of_its_own(self, clone):
        agent = clone()
        agent.observe(Message(text=persona_lines(PERSONA).strip(), episode_done=False))
        sequence = tokens(agent, agent.observe(Message(text="hello", episode_done=False)))
        assert parts(sequence) == (" ".join(PERSONA).split(), [["hello"]])

    def test_given_in_the_personas_field_of_msc(self, clone):
        agent = clone()
        personas = [["you old cat ."], ["i sew .", "my cat is old ."]]
        assert parts(say(agent, "hello", personas=personas))[0] == " ".join(PERSONA).split()
        assert parts(say(agent, "you"))[0] == " ".join(PERSONA).split()

    def test_new_persona_replaces_the_old(self, clone):
        agent = clone()
        say(agent, persona_lines(PERSONA) + "hello")
        assert parts(say(agent, "your persona: you\nhello")) == (["you"], [["hello"]])
        assert parts(say(agent, "hello"))[0] == ["you"]

    def test_the_next_episode_begins_without_it(self, clone):
        agent = clone()
        say(agent, persona_lines(PERSONA) + "hello", done=True)
        assert parts(say(agent, "you")) == ([], [["you"]])

    def test_reset_clears_it(self, clone):
        agent = clone()
        say(agent, persona_lines(PERSONA) + "hello")
        agent.reset()
        assert agent.history.persona == () and agent.history.get_history_str() is None
        assert parts(say(agent, "you")) == ([], [["you"]])

    def test_copies_of_an_agent_have_their_own(self, clone):
        one, two = clone(), clone()
        say(one, "your persona: i sew .\nhello")
        assert parts(say(two, "you"))[0] == []
        assert parts(say(one, "you"))[0] == ["i", "sew", "."]

    def test_history_as_text_holds_it(self, clone):
        agent = clone(history_size=2)
        say(agent, persona_lines(PERSONA) + "hello")
        assert agent.history.get_history_str() == "i sew .\nmy cat is old .\nhello"
        assert agent.history.get_history_vec() == agent.observation["text_vec"].tolist()


class TestTurns:
    def chat(self, agent, turns=3):
        """User says a, c, e, …; agent replies b, d, f, …; returns the input before its last."""
        text = "your persona: i sew .\na"
        for turn in range(turns):
            observation = agent.observe(Message(text=text, episode_done=False))
            agent.self_observe(Message(text=WORDS[2 * turn + 1], episode_done=False))
            text = WORDS[2 * turn + 2]
        return parts(tokens(agent, observation))[1]

    def test_default_is_the_papers_single_turn(self, clone):
        assert self.chat(clone()) == [["e"]]

    def test_three_turns_oldest_first_each_closed(self, clone):
        assert self.chat(clone(history_size=3)) == [["c"], ["d"], ["e"]]

    def test_all_turns(self, clone):
        assert self.chat(clone(history_size=-1)) == [["a"], ["b"], ["c"], ["d"], ["e"]]

    def test_persona_lines_are_no_turn(self, clone):
        agent = clone(history_size=2)
        agent.observe(Message(text="your persona: i sew .", episode_done=False))
        say(agent, "a")
        assert parts(say(agent, "b"))[1] == [["a"], ["b"]]


class TestTruncation:
    """Persona of 4 tokens (p q r s), turns of 3, 3 and 4: 3 + 4 + (3 + 3 + 4) + 3 - 1 + 1 = 20."""

    PERSONA, TURNS = list("pqrs"), [list("abc"), list("def"), list("wxyz")]

    @pytest.fixture
    def history(self, agent):
        history = PersonaHistory(agent.opt, size=-1, dict_agent=agent.dict)
        history.update_history(Message(text="your persona: p q\nyour persona: r s\na b c"))
        for turn in self.TURNS[1:]:
            history.update_history(Message(text=" ".join(turn)))
        return history

    def cut(self, history, limit):
        ids, whole = history.encode(limit)
        assert whole == 20, "the length before the cut is always told"
        return (*parts([history.dict[i] for i in ids]), len(ids))

    @pytest.mark.parametrize(
        ("limit", "persona", "turns"),
        [
            (None, PERSONA, TURNS),
            (20, PERSONA, TURNS),
            (19, PERSONA, TURNS[1:]),  # the oldest turn goes first, whole
            (16, PERSONA, TURNS[1:]),
            (15, PERSONA, TURNS[2:]),
            (12, PERSONA, TURNS[2:]),
            (11, PERSONA, [["x", "y", "z"]]),  # then the beginning of the query
            (9, PERSONA, [["z"]]),
            (8, PERSONA, [[]]),
            (7, ["p", "q", "r"], [[]]),  # last the end of the persona
            (5, ["p"], [[]]),
            (4, [], [[]]),
        ],
    )
    def test_order(self, history, limit, persona, turns):
        assert self.cut(history, limit)[:2] == (persona, turns)

    def test_never_longer_than_the_limit(self, history):
        lengths = [self.cut(history, limit)[2] for limit in range(4, 25)]
        assert all(length <= limit for limit, length in enumerate(lengths, 4))
        assert lengths == sorted(lengths)

    def test_the_history_itself_is_not_cut(self, history):
        history.encode(5)
        assert self.cut(history, None)[:2] == (self.PERSONA, self.TURNS)

    def test_temporary_history_is_part_of_the_query(self, history):
        before, _ = history.encode(None)
        history.update_history(Message(text="a"), temp_history=" b")
        after = [history.dict[i] for i in history.encode(None)[0]]
        assert after[len(before) :] == ["a", "b", "[SEP]"]

    def test_of_the_agent(self, clone):
        agent = clone(text_truncate=12, history_size=3)
        say(agent, "your persona: p q\nyour persona: r s\na b c")
        say(agent, "d e f")
        observation = agent.observe(Message(text="w x y z", episode_done=True))
        assert parts(tokens(agent, observation)) == (self.PERSONA, self.TURNS[2:])
        assert observation["context_original_length"] == 20
        assert observation["context_truncate_rate"] is True
        assert observation["context_truncated_length"] == 8

    @pytest.mark.parametrize("truncate", [-1, 100_000])
    def test_at_most_as_long_as_the_model_has_positions(self, clone, truncate):
        agent = clone(text_truncate=truncate)
        query = " ".join("abcdefg"[i % 7] for i in range(2000))
        sequence = say(agent, persona_lines(PERSONA) + query)
        assert len(sequence) == 512 == agent.model.bert.config.max_position_embeddings
        assert parts(sequence)[0] == " ".join(PERSONA).split()
        assert sequence[-2] == query[-1], "the end of the query is kept"
        (reply,) = agent.batch_act([agent.observation])
        assert isinstance(reply["text"], str)

    def test_is_counted(self, clone):
        agent = clone(text_truncate=10)
        observations = []
        for text in ("a b c d e f g h i", "a"):
            agent.reset()
            message = Message(text=text, eval_labels=["you"], episode_done=True)
            observations.append(agent.observe(message))
        answers = agent.batch_act(observations)
        assert [answer["metrics"]["ctrunc"].value() for answer in answers] == [1, 0]
        assert [answer["metrics"]["ctrunclen"].value() for answer in answers] == [3, 0]
