"""The metrics at the `parlai` command: eval_model, train_model, persona_score."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import tiny
from parlai.agents.repeat_query.repeat_query import RepeatQueryAgent
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainModel

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics.scorer import GROUPS, OUTPUTS
from persona_agents.metrics.tokens import characters
from persona_agents.scripts.persona_score import PersonaScore

MODELS = ("--bert-score-layer", "5", "--bert-score-rescale", "false")


@pytest.fixture
def models(minilm):
    return ("--bert-score-model", minilm, "--p-em-model", minilm, *MODELS)


def test_log_and_report_say_the_same(run_parlai_commands, tmp_path, models):
    """An evaluation's log, scored alone, gives the evaluation's numbers; gold is better than echo."""
    log, gold = tmp_path / "log.jsonl", tmp_path / "gold.jsonl"
    report, scores = tmp_path / "report.json", tmp_path / "scores.json"
    names = "persona,corpus_distinct,verbatim,length"
    common = ("-t", "cpc:mini", "-ne", "48", "--loglevel", "warn")
    done = run_parlai_commands(
        ("eval_model", "-m", "repeat_query", *common, "-bs", "8", "--metrics", f"default,{names}",
         "--world-logs", log, "-rf", report, *models),
        ("eval_model", "-m", "repeat_label", *common, "-bs", "4", "--world-logs", gold),
        ("persona_score", "--replies", log, "--compare", gold, "--metrics", names, "--resamples",
         "100", "--json-file", scores, *models),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    evaluated = json.loads(report.read_text(encoding="utf-8"))["report"]
    scored = json.loads(scores.read_text(encoding="utf-8"))
    first, second = (scored["scores"][system] for system in ("first", "second"))
    assert scored["language"] == "zh" and first["counts"]["replies"] == evaluated["exs"] == 48
    for name in (*GROUPS["persona"], "corpus_distinct", "verbatim", "length"):
        assert evaluated[f"{name}_signature"] == scored["signatures"][name]
        assert scored["signatures"][name] in done.stdout
        for output in OUTPUTS[name]:
            assert first["values"][output] == pytest.approx(evaluated[output], abs=1e-6)
            assert f"\n{output} " in done.stdout
    assert second["values"]["corpus_bleu_4"] == pytest.approx(100)
    for output in ("corpus_bleu_4", "char_f1", "bert_score_f"):
        difference = scored["comparison"][output]
        assert 0 < difference["low"] <= difference["difference"] <= difference["high"]
        assert difference["p_value"] < 0.05
    assert "paired bootstrap, 100 resamples, seed 0" in done.stdout
    assert "Scoring" in done.stderr, "progress"


def run(*arguments) -> dict:
    """`parlai persona_score` in this process."""
    parser = PersonaScore.setup_args()
    return PersonaScore(parser.parse_args([str(part) for part in arguments])).run()


def test_plain_text_needs_no_model(tmp_path, capsys):
    for name, text in {
        "replies.txt": "i ski .\n\ni have a cat\n",
        "gold.txt": "i ski a lot .\nyes\nno\n",
        "personas.txt": "i ski|i sew\n\ni have a cat .\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    run(
        *("--replies", tmp_path / "replies.txt", "--references", tmp_path / "gold.txt"),
        *("--personas", tmp_path / "personas.txt", "--metrics", "corpus_bleu,p_cover"),
    )
    printed = capsys.readouterr().out
    assert "3 replies, 1 empty replies, 1 without persona; en" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("p_cover")]
    assert line.split() == ["p_cover", "1.0000", "of", "2", "replies"]


@pytest.mark.parametrize(
    "arguments, match",
    [
        ((), "Name the file of replies"),
        (("--replies", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--replies", "a.txt", "--metrics", "blue"), "--metrics blue: there is no such metric"),
        (("--replies", "a.txt", "--metrics", "char_ppl"), "parlai eval_model"),
        (("--replies", "a.txt", "--metrics", ","), "names no metric"),
        (("--replies", "a.txt", "--metrics", "length", "--json-file", "no/x.json"), "no/x.json"),
        (
            ("--replies", "a.txt", "--json-file", "./a.txt"),
            "--json-file ./a.txt is the file of --rep",
        ),
    ],
)
def test_mistakes(tmp_path, monkeypatch, arguments, match):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("hi\n", encoding="utf-8")
    with pytest.raises(PersonaAgentsError, match=match):
        run(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_missing_model_stops_before_the_evaluation(tmp_path, minilm, monkeypatch):
    """At once, whatever the metric's place among the others."""
    monkeypatch.setattr(RepeatQueryAgent, "act", lambda self: pytest.fail("it has begun"))
    report = tmp_path / "report.json"
    with pytest.raises(PersonaAgentsError, match="no baseline.*--bert-score-baseline FILE"):
        EvalModel.main(
            task="persona_eval:cpc:mini",
            model="repeat_query",
            metrics="length,bert_score",
            bert_score_model=minilm,
            bert_score_layer=5,
            report_filename=str(report),
            loglevel="error",
        )
    assert not report.exists()


def test_a_missing_model_stops_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "models"
    folder.mkdir()
    corpus = tiny.write_corpus(tmp_path / "data", tiny.samples("en")[:4])
    with pytest.raises(PersonaAgentsError, match="--p-em-model"):
        TrainModel.main(
            model="persona_agents:hcm",
            model_file=str(folder / "model"),
            metrics="p_em",
            **{**corpus, **tiny.SIZES, **tiny.QUIET},
        )
    assert not list(folder.iterdir())


class TestTraining:
    """`--validation-metric` with metrics of replies and of losses."""

    @pytest.fixture
    def train(self, tmp_path):
        corpus = tiny.write_corpus(tmp_path / "data", tiny.samples("zh")[:12])

        def run(**settings):
            return TrainModel.main(
                model="persona_agents:hcm",
                model_file=str(tmp_path / "model"),
                batchsize=6,
                num_epochs=2,
                seed=1,
                **{**corpus, **tiny.SIZES, **tiny.QUIET, **settings},
            )

        run.folder = tmp_path
        run.corpus = corpus
        return run

    def stats(self, train) -> dict:
        return json.loads((train.folder / "model.trainstats").read_text(encoding="utf-8"))

    def test_metric_of_replies(self, train):
        train(validation_metric="char_f1", validation_generate=True)
        stats = self.stats(train)
        seen = [report["char_f1"] for report in stats["valid_reports"]]
        assert stats["best_valid"] == max(seen) and len(seen) == 2
        assert "char_f1_signature" in stats["valid_reports"][0]

    def test_metric_of_losses_needs_no_replies(self, train):
        """Perplexity per character, minimised, with no reply generated while validating."""
        train(validation_metric="char_ppl", metrics="default,length")
        stats = self.stats(train)
        seen = [report["char_ppl"] for report in stats["valid_reports"]]
        assert stats["best_valid"] == min(seen) > 1
        assert "length" not in stats["valid_reports"][0]
        report = EvalModel.main(
            model_file=str(train.folder / "model"),
            metrics="char_ppl,length",
            datatype="valid",
            batchsize=5,
            loglevel="error",
            **train.corpus,
        )
        loss = report["loss"].value() * report["loss"]._denom
        gold = sum(len(characters(sample.response)) for sample in tiny.samples("zh")[:12])
        assert report["char_ppl"].value() == pytest.approx(math.exp(loss / gold), rel=1e-5)
        assert report["char_ppl"].value() == pytest.approx(stats["best_valid"], rel=1e-4)
        assert report["length"].value() > 0
