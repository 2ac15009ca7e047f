"""Reading files of replies: what is right, and what is wrong with file and line."""

from __future__ import annotations

import json

import pytest

from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts.persona_score_files import align, read_replies


@pytest.fixture
def write(tmp_path):
    def make(name: str, *lines, end: str = "\n") -> str:
        path = tmp_path / name
        texts = [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in lines]
        path.write_bytes((end.join(texts) + end).encode())
        return str(path)

    return make


def plain(replies) -> list[tuple]:
    return [(r.text, r.references, r.persona, r.query) for r in replies]


def turn(**asked) -> dict:
    """A log's line with one message of the task."""
    return {"dialog": [[asked, {"text": "fine"}]]}


LOG = [
    [
        {"text": "your persona: i ski\nyour persona: i sew\nhi", "eval_labels": ["hello", "hey"]},
        {"text": "hello", "id": "m"},
    ],
    [{"text": "what ?", "labels": ["this"]}, {"text": ""}],
]


class TestForms:
    def test_world_log(self, write):
        """In whole dialogues only the first message has the persona."""
        other = [[{"text": "你好"}, {"text": "你好！"}]]
        path = write("log.jsonl", {"dialog": LOG, "context": []}, {"dialog": other})
        assert plain(read_replies(path)) == [
            ("hello", ("hello", "hey"), ("i ski", "i sew"), "hi"),
            ("", ("this",), ("i ski", "i sew"), "what ?"),
            ("你好！", (), (), "你好"),
        ]

    def test_label_that_is_a_text(self, write):
        """It is one reference, not one for each of its characters."""
        path = write("log.jsonl", turn(text="hi", labels="hey"), turn(text="hi", eval_labels="ho"))
        assert [reply.references for reply in read_replies(path)] == [("hey",), ("ho",)]

    def test_personas_beside_the_text(self, write):
        own, other = [["a"], ["i ski", "i sew"]], "your persona: i row"
        path = write("log.jsonl", turn(text="hi", personas=own), turn(text="hi", personas=other))
        assert [r.persona for r in read_replies(path)] == [("i ski", "i sew"), ("i row",)]

    def test_json_lines(self, write):
        path = write(
            "a.jsonl",
            {"reply": "yes", "references": "no", "persona": "i ski|i sew", "query": "q", "x": 1},
            "",
            {"reply": "", "references": ["a", "b"], "persona": ["your persona: i ski", "i sew"]},
            {"reply": "only"},
        )
        assert plain(read_replies(path)) == [
            ("yes", ("no",), ("i ski", "i sew"), "q"),
            ("", ("a", "b"), ("i ski", "i sew"), ""),
            ("only", (), (), ""),
        ]

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_plain_text(self, write, end):
        replies = write("r.txt", "\ufeff你好", "", "再见", end=end)
        gold = write("g.txt", "您好", "是", "", end=end)
        personas = write("p.txt", "我是老师｜我有猫", "", "我爱茶", end=end)
        queries = write("q.txt", "1", "2", "3", end=end)
        assert plain(read_replies(replies, gold, personas, queries)) == [
            ("你好", ("您好",), ("我是老师", "我有猫"), "1"),
            ("", ("是",), (), "2"),
            ("再见", ("",), ("我爱茶",), "3"),
        ]
        assert plain(read_replies(replies))[1] == ("", (), (), "")


@pytest.mark.parametrize(
    "line, match",
    [
        ("{broken", "line 2: no JSON"),
        ("[1]", "line 2: no JSON object"),
        ({"text": "x"}, "line 2: the key 'reply'.*there are: text"),
        ({"reply": 3}, "line 2: the key 'reply'"),
        ({"reply": "a", "references": 3}, "line 2: 'references' is neither"),
        ({"reply": "a", "persona": [1]}, "line 2: 'persona' is neither"),
        ({"reply": "a", "query": []}, "line 2: 'query' is no text"),
        ({"dialog": [[{"text": "a"}]]}, "line 2: 'dialog' is no list of pairs"),
        ({"dialog": "x"}, "line 2: 'dialog' is no list of pairs"),
        ({"dialog": [[{"text": "a"}, {"id": "m"}]]}, "line 2: .*no text.*skip-generation"),
        (r'{"reply": "hi \ud83d"}', r"line 2: 'hi \\ud83d' holds half of a surrogate pair"),
        (r'{"reply": "hi", "persona": ["\udc00"]}', "line 2: .*surrogate pair"),
        ('{"reply": ' + "[" * 100_000, "line 2: JSON that is nested too deeply"),
        (turn(text=5), "line 2: 'text' of the task's message is no text"),
        (turn(text="a", personas=5), "line 2: 'personas' is neither"),
        (turn(text="a", personas=["i ski", "i sew"]), "line 2: 'personas' is neither"),
        (turn(text="a", personas=[[1], [2]]), "line 2: 'personas' is neither"),
        (turn(text="a", labels=5), "line 2: 'labels' is neither"),
        (turn(text="a", eval_labels=[5]), "line 2: 'eval_labels' is neither"),
    ],
)
def test_bad_lines(write, line, match):
    path = write("bad.jsonl", {"reply": "good"}, line)
    with pytest.raises(PersonaAgentsError, match=f"bad.jsonl, {match}"):
        read_replies(path)


class TestBadFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(PersonaAgentsError, match="none.txt cannot be read: No such file"):
            read_replies(str(tmp_path / "none.txt"))

    def test_nothing_in_it(self, write):
        with pytest.raises(
            PersonaAgentsError, match="empty.txt: the file holds nothing.*world-logs"
        ):
            read_replies(write("empty.txt", ""))
        with pytest.raises(PersonaAgentsError, match="log.jsonl holds no reply"):
            read_replies(write("log.jsonl", {"dialog": []}))

    def test_encoding(self, write, tmp_path):
        path = tmp_path / "gb.txt"
        path.write_bytes("hi\n你好\n".encode("gb18030"))
        with pytest.raises(PersonaAgentsError, match="gb.txt, line 2: not UTF-8"):
            read_replies(str(path))

    def test_lengths(self, write):
        replies, gold = write("r.txt", "a", "b"), write("g.txt", "a")
        with pytest.raises(PersonaAgentsError, match="r.txt has 2 lines and .*g.txt has 1"):
            read_replies(replies, gold)

    def test_files_beside_json(self, write):
        path, gold = write("a.jsonl", {"reply": "x"}), write("g.txt", "a")
        with pytest.raises(PersonaAgentsError, match="--references belongs to plain text"):
            read_replies(path, gold)


class TestAlign:
    def replies(self, write, name, *pairs):
        lines = [{"reply": reply, "references": gold, "query": "q"} for reply, gold in pairs]
        return read_replies(write(name, *lines))

    def test_order(self, write):
        first = self.replies(write, "a.jsonl", ("1", "x"), ("2", "y"), ("3", "x"))
        second = self.replies(write, "b.jsonl", ("c", "x"), ("a", "x"), ("b", "y"))
        assert [reply.text for reply in align(first, second, "b")] == ["c", "b", "a"]
        assert align(first, first, "a") == list(first), "already in order: nothing moves"

    def test_other_samples(self, write):
        first = self.replies(write, "a.jsonl", ("1", "x"), ("2", "y"))
        second = self.replies(write, "b.jsonl", ("1", "x"), ("2", "z"))
        with pytest.raises(PersonaAgentsError, match="b has no reply to a sample.*references..'y'"):
            align(first, second, "b")
        with pytest.raises(PersonaAgentsError, match="b has 1 replies, the other file 2"):
            align(first, second[:1], "b")
