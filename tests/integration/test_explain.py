"""`parlai persona_explain`: pictures and page of samples, of one question and of a logged chat."""

from __future__ import annotations

import json
import re
import shutil

import chatting
import pytest
import tiny
from parlai.scripts.eval_model import EvalModel

from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts import persona_explain_picture, picture
from persona_agents.scripts.persona_explain import PersonaExplain


@pytest.fixture
def explain(copying_model, tmp_path):
    """Runs the command and returns the replies, the page's text and the names of the pictures."""

    def run(**options):
        folder = tmp_path / "explained"
        given = {"model_file": copying_model, "explain_folder": str(folder), "loglevel": "error"}
        given = {name: value for name, value in {**given, **options}.items() if value is not None}
        replies = PersonaExplain.main(**given)
        page = (folder / "index.html").read_text(encoding="utf-8")
        return replies, page, sorted(path.name for path in folder.glob("*.png"))

    return run


def cells(page: str, label: str) -> list[float]:
    """The numbers of a row of the page's first table that has it."""
    row = re.search(rf'<th scope="row">{label}</th>(.*)</tr>', page)[1]
    return [float(value) for value in re.findall(r">([\d.]+)</td>", row)]


def needs_font():
    pytest.importorskip("matplotlib")
    if picture.cjk_font() is None:
        pytest.skip("no font with Chinese characters: apt install fonts-noto-cjk")


class TestWhatIsExplained:
    @pytest.mark.parametrize(
        ("persona", "query", "word"),
        [
            ("i live in rome.|i have a cat.", "where do you live?", "rome"),
            ("我养了小猫。|我住在海南。", "你住哪里？", "海"),
        ],
    )
    def test_a_question(self, explain, persona, query, word):
        ((reply,), page, pictures) = explain(persona=persona, query=query)
        assert word in reply["reply"]
        steps = [token["text"] for token in reply["provenance"]["tokens"]]
        row = cells(page, word)
        assert len(row) == len(steps) and row[steps.index(word)] > 0.9
        assert cells(page, "γ")[steps.index(word)] > 0.9
        assert cells(page, "p_gen")[steps.index(word)] < 0.1
        if word == "rome":
            assert pictures == ["001.png"]

    def test_samples_of_a_task(self, explain, tmp_path):
        corpus = tiny.write_corpus(tmp_path / "corpus", chatting.corpus(6, seed=9))
        replies, page, _ = explain(num_examples=3, **corpus)
        expected = chatting.corpus(3, seed=9)
        assert [reply["query"] for reply in replies] == [sample.query for sample in expected]
        assert [reply["reply"] for reply in replies] == [sample.response for sample in expected]
        assert page.count("<section>") == 3
        assert len(explain(num_examples=99, **corpus)[0]) == 6, "no more than there are"

    @pytest.mark.parametrize("provenance", [True, False])
    def test_a_logged_chat(self, explain, copying_model, tmp_path, provenance):
        samples = chatting.corpus(4, seed=9)
        corpus = tiny.write_corpus(tmp_path / "corpus", samples)
        log = str(tmp_path / "log.jsonl")
        options = {**tiny.QUIET, **corpus, "world_logs": log, "provenance": provenance}
        EvalModel.main(model_file=copying_model, datatype="valid", **options)
        replies, _, _ = explain(log_file=log)
        assert [reply["reply"] for reply in replies] == [sample.response for sample in samples]
        for reply, sample in zip(replies, samples):
            assert reply["provenance"]["persona"] == list(sample.persona)
            copied = [s for s in reply["provenance"]["spans"] if s["from"] == "persona"]
            assert max(span["share"] for span in copied) > 0.9

    def test_a_log_with_line_separators_in_a_text(self, explain, tmp_path):
        """JSON may hold U+2028 as it stands; only a line feed ends a line of the log."""
        text = "where\u2028do you\x85live?"
        turns = [
            [{"text": f"your persona: i live in rome.\n{text}"}, {"text": "my home is in rome."}]
        ]
        line = json.dumps({"dialog": turns}, ensure_ascii=False)
        (tmp_path / "log").write_text(f"{line}\n{line}\n", encoding="utf-8")
        replies, page, _ = explain(log_file=str(tmp_path / "log"))
        assert len(replies) == 2 and page.count("<section>") == 2

    def test_the_page_needs_nothing_else(self, explain):
        hostile = 'i live in <script>alert("x")</script>.'
        _, page, _ = explain(persona=hostile, query="<img src=x onerror=alert(1)>")
        assert "<script" not in page and "<img" not in page
        assert not re.search(r"<[^>]*(src|href)=|url\(|@import|https?:", page)


class TestPictures:
    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_are_drawn_and_readable(self, explain, language, recwarn):
        if language == "zh":
            needs_font()
        (sample,) = chatting.corpus(2, seed=3)[int(language == "zh") :][:1]
        _, _, pictures = explain(persona="|".join(sample.persona), query=sample.query)
        assert pictures == ["001.png"]
        missing = [str(w.message) for w in recwarn if "missing from" in str(w.message)]
        assert not missing, "matplotlib found every character in the font"

    def test_without_a_font_one_message(self, explain, monkeypatch, capsys):
        monkeypatch.setattr(persona_explain_picture, "cjk_font", lambda: None)
        _, page, pictures = explain(persona="我住在海南。", query="你住哪里？")
        assert not pictures and "海" in page
        assert "fonts-noto-cjk" in capsys.readouterr().out
        assert explain(persona="i live in rome.", query="where do you live?")[2], "needs none"


class TestErrors:
    def test_nothing_to_explain(self, explain):
        with pytest.raises(PersonaAgentsError, match="-t TASK, --query TEXT or --log-file FILE"):
            explain()

    def test_other_agents(self, explain, tmp_path):
        with pytest.raises(PersonaAgentsError, match="repeat_label cannot say"):
            explain(model="repeat_label", model_file=None, query="hi")

    def test_copy_none(self, explain, tmp_path):
        corpus = tiny.write_corpus(tmp_path / "corpus", chatting.corpus(4))
        agent = tiny.new_agent(**corpus, model_file=str(tmp_path / "model"), copy="none")
        agent.save()
        with pytest.raises(PersonaAgentsError, match="--copy none"):
            explain(model_file=str(tmp_path / "model"), query="hi")

    @pytest.mark.parametrize(
        "line",
        [
            '{"dialog": [[{"text": "hi"}]]}',
            "[1]",
            "{",
            '{"dialog": [["a", "b"]]}',
            '{"dialog": [[{"text": 1}, {"text": "hello"}]]}',
            '{"dialog": [[{"text": "hi"}, {"text": 1}]]}',
            '{"dialog": [[{"text": "hi"}, {"text": "\\ud800"}]]}',
            '{"dialog": [[{"text": "hi"}, {"text": "hello", "provenance": 1}]]}',
            '{"dialog": [[{"text": "hi"}, {"text": "hello", "provenance": {"tokens": [1]}}]]}',
            '{"dialog": ' + "[" * 100_000,
            "",
        ],
    )
    def test_logs(self, explain, tmp_path, line):
        good = json.dumps({"dialog": [[{"text": "hi"}, {"text": "hello"}]]})
        (tmp_path / "log").write_text(f"{good if line else ''}\n{line}\n", encoding="utf-8")
        message = "line 2" if line else "holds no dialogue"
        with pytest.raises(PersonaAgentsError, match=f"--log-file .*{message}"):
            explain(log_file=str(tmp_path / "log"))
        assert not (tmp_path / "explained").exists(), "nothing half-written"

    def test_files(self, explain, tmp_path):
        with pytest.raises(PersonaAgentsError, match="cannot be read"):
            explain(log_file=str(tmp_path / "no"))
        (tmp_path / "file").write_text("", encoding="utf-8")
        with pytest.raises(PersonaAgentsError, match="--explain-folder"):
            explain(query="hi", explain_folder=str(tmp_path / "file"))


def test_the_command(run_parlai, copying_model, tmp_path):
    for ending in ("", ".opt", ".dict"):
        shutil.copy(copying_model + ending, tmp_path / f"model{ending}")
    done = run_parlai(
        *("persona_explain", "-mf", tmp_path / "model", "--query", "where do you live?"),
        *("--persona", "i live in rome.|i have a cat."),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.explain" / "index.html").exists()
    assert "model.explain/index.html" in done.stdout
