"""From replies and reports to tables: means, deviations, significance, swapped personas, samples."""

from __future__ import annotations

import csv
import io
import json
import statistics

import numpy as np
import pytest

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply
from persona_agents.metrics.persona import p_cover
from persona_agents.persona import format_turn
from persona_agents.scripts.persona_score import PersonaScore
from persona_agents.table import config, pages, plan, samples
from persona_agents.table.results import Results, SetResult, differences
from persona_agents.table.scoring import Scoring
from persona_agents.table.tables import Tables

YAML = """
tasks: [personachat_single_turn:mini]
systems:
  good: {model: g, seeds: [1, 2], label: "好 & good"}
  bad: {model: b}
  worse: {model: w}
ablations: {half: {model: h}}
budget: {steps: 1}
scoring: {metrics: "corpus_bleu,char_f1,p_cover,corpus_distinct,length"}
samples: [3, 0]
"""
COUNT = 40
PERSONAS = [(f"my dog is named rex{i} .", f"i live in town{i} .") for i in range(COUNT)]
QUERIES = [f"where do you live , friend {i} ?" for i in range(COUNT)]
GOLD = [f"i live in town{i} and love it ." for i in range(COUNT)]
SAYS = {
    "gold": GOLD,
    "shuffled_gold": GOLD[20:] + GOLD[:20],
    "echoed_persona": [persona[0] for persona in PERSONAS],
    "constant_reply": ["i do not know ."] * COUNT,
    "good/seed1": [f"i live in town{i} ." for i in range(COUNT)],
    "good/seed2": [f"i live in town{i if i % 4 else 0} and you ?" for i in range(COUNT)],
    "bad/seed1": ["i am at home ."] * COUNT,
    "worse/seed1": ["no"] * COUNT,
    "half/seed1": [f"i live in town{i if i % 2 else 0} ." for i in range(COUNT)],
}
PPL = {"good/seed1": (10.0, 20.0), "good/seed2": (14.0, 21.0), "bad/seed1": (8.0, 8.0)}


def write(folder, texts, ppl, personas=PERSONAS, order=range(COUNT)):
    """What `eval_model` leaves: a log of replies, and a report."""
    folder.mkdir(parents=True)
    with open(folder / "replies.jsonl", "w", encoding="utf-8") as file:
        for i in order:
            asked = {"text": format_turn(personas[i], QUERIES[i]), "eval_labels": [GOLD[i]]}
            file.write(json.dumps({"dialog": [[asked, {"text": texts[i]}]]}) + "\n")
    report = {"exs": COUNT, **({} if ppl is None else {"ppl": ppl})}
    (folder / "report.json").write_text(json.dumps({"report": report}), encoding="utf-8")


@pytest.fixture
def table(tmp_path):
    """The results of a table whose jobs are written by hand."""
    path = tmp_path / "table.yml"
    path.write_text(YAML, encoding="utf-8")
    found = config.read(str(path))
    jobs = plan.jobs_of(found)
    other = PERSONAS[20:] + PERSONAS[:20]
    for number, job in enumerate(jobs):
        name = job.folder.split("/", 1)[1]
        own, swapped = PPL.get(name, (9.0, 9.5)) if job.target else (None, None)
        # logs of other batch sizes have other orders
        order = (
            list(np.random.default_rng(number).permutation(COUNT)) if job.target else range(COUNT)
        )
        write(tmp_path / job.folder / "test", SAYS[name], own, order=order)
        if job.target:
            texts = [f"i live in town{(i + 20) % COUNT} ." for i in range(COUNT)]
            texts = texts if "good" in name else SAYS[name]
            write(tmp_path / job.folder / "swapped", texts, swapped, other, order)
    results = Results(found, tmp_path, jobs, set(), Scoring(found))
    results.task = found.tasks[0]
    return results


def tables(results) -> dict:
    found = Tables(results, results.task).all()
    prefix = "personachat_single_turn_mini-"
    return {table.name.replace(prefix, "").replace("test-", ""): table for table in found}


def row(table, label):
    return next(row for row in table.rows if row.label == label)


class TestTables:
    def test_rows_and_columns(self, table):
        found = tables(table)
        assert list(found) == ["systems", "significance", "ablations", "beside", "swapped"]
        assert [r.label for r in found["systems"].rows] == [
            *config.ANCHORS,
            "好 & good",
            "bad",
            "worse",
        ]
        assert [r.label for r in found["ablations"].rows] == ["好 & good", "half"]
        titles = [c.title for c in found["systems"].columns_with_values()]
        assert titles == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "F1", "P-Cover"]
        assert "40 samples" in found["systems"].caption

    def test_mean_and_deviation_over_seeds(self, table):
        cell = row(tables(table)["systems"], "好 & good").cells["p_cover"]
        values = [
            statistics.fmean(p_cover(text, persona) for text, persona in zip(SAYS[name], PERSONAS))
            for name in ("good/seed1", "good/seed2")
        ]
        assert values[0] != values[1]
        assert cell.mean == pytest.approx(statistics.fmean(values))
        assert cell.deviation == pytest.approx(statistics.stdev(values))
        assert row(tables(table)["systems"], "bad").cells["p_cover"].deviation is None

    def test_anchors(self, table):
        found = tables(table)["systems"]
        assert row(found, "gold").cells["corpus_bleu_4"].mean == pytest.approx(100)
        assert row(found, "echoed persona").cells["p_cover"].mean == pytest.approx(1)
        assert not any(r.ranked for r in found.rows[:4]) and all(r.ranked for r in found.rows[4:])

    def test_perplexity_is_the_report_s(self, table):
        cell = row(tables(table)["beside"], "好 & good").cells["ppl"]
        assert cell.mean == 12 and cell.deviation == pytest.approx(statistics.stdev([10, 14]))

    def test_swapped(self, table):
        cells = row(tables(table)["swapped"], "好 & good").cells
        assert cells["ppl_ratio"].mean == pytest.approx((20 / 10 + 21 / 14) / 2)
        assert cells["changed"].mean == 1
        assert cells["swapped_p_cover"].mean == pytest.approx(1), (
            "it follows the persona it is given"
        )
        assert cells["own_p_cover"].mean == pytest.approx(3 / 4), "i, live, in of four words"
        assert row(tables(table)["swapped"], "bad").cells["changed"].mean == 0


class TestSignificance:
    def test_against_the_best_of_the_others_in_each_metric(self, table):
        found = tables(table)
        lines = {r.label.split(",")[0]: r for r in found["significance"].rows}
        assert all("against bad" in r.label for r in found["significance"].rows)
        cells = lines["P-Cover"].cells
        assert cells["difference"].mean == pytest.approx(
            cells["proposed"].mean - cells["best"].mean
        )
        assert cells["low"].mean <= cells["difference"].mean <= cells["high"].mean
        assert cells["p"].mean < 0.05
        assert row(found["systems"], "好 & good").cells["p_cover"].marks == "†"
        assert row(found["systems"], "bad").cells["p_cover"].marks == ""

    def test_ablation_is_compared_with_the_whole(self, table):
        marks = {key: c.marks for key, c in row(tables(table)["ablations"], "half").cells.items()}
        assert marks["p_cover"] == "‡", "half of its replies name another town"

    def test_seeds_that_differ_widen_the_interval(self, table):
        rows = table.of(table.task, "test")
        good, bad = rows["good"], rows["bad"]
        apart = differences(bad, good, ["p_cover"])["p_cover"]
        one = SetResult(good.system, [1, 1], good.values[:1] * 2, good.scores[:1] * 2)
        alike = differences(bad, one, ["p_cover"])["p_cover"]
        assert apart.high - apart.low > 2 * (alike.high - alike.low)

    def test_without_seeds_it_is_the_plain_paired_bootstrap(self, table):
        from persona_agents.metrics import compare

        rows = table.of(table.task, "test")
        ours, theirs = rows["half"], rows["bad"]
        mine = differences(theirs, ours, ["p_cover", "corpus_bleu_2"])
        plain = compare(theirs.scores[0], ours.scores[0])
        assert mine["p_cover"] == plain["p_cover"]
        assert mine["corpus_bleu_2"] == plain["corpus_bleu_2"]


class TestScoring:
    def test_equals_the_command(self, table, tmp_path):
        job = next(job for job in table.jobs if job.folder.endswith("good/seed2"))
        step = plan.score_step(job, "test")
        arguments = step.command(tmp_path / job.folder)[1:]
        by_hand = PersonaScore.main(*arguments)["scores"]["first"]["values"]
        values = dict(table.of(table.task, "test")["good"].values[1])
        assert values.pop("ppl") == 14
        assert values == by_hand

    def test_is_kept_and_done_again_for_other_replies(self, table, tmp_path, monkeypatch):
        first = tables(table)

        def refuse(*_):
            raise AssertionError("scored again")

        monkeypatch.setattr("persona_agents.table.scoring.score", refuse)
        assert tables(_fresh(table, tmp_path)) == first
        replies = next(tmp_path.glob("*/bad/seed1/test/replies.jsonl"))
        replies.write_text(
            replies.read_text(encoding="utf-8").replace("home", "work"), encoding="utf-8"
        )
        with pytest.raises(AssertionError, match="scored again"):
            tables(_fresh(table, tmp_path))

    def test_swapped_replies_of_another_order_are_refused(self, table, tmp_path):
        folder = next(tmp_path.glob("*/bad/seed1"))
        personas = [Reply("x", [GOLD[i]], PERSONAS[i], QUERIES[i]) for i in range(COUNT)]
        with pytest.raises(PersonaAgentsError, match="another order"):
            table.scoring.against(table.task.name, folder / "swapped", personas)

    @pytest.mark.parametrize(
        "scoring, reason",
        [("{metrics: blue}", "blue"), ("{metrics: char_ppl}", "char_ppl"), ("{metrix: p_cover}", "metrix"),
         ("{metrics: p_em, p_em_model: /no/where}", "/no/where")],
    )  # fmt: skip
    def test_options_that_cannot_be(self, tmp_path, scoring, reason):
        path = tmp_path / "table.yml"
        text = YAML.split("scoring:")[0] + f"scoring: {scoring}\n"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(PersonaAgentsError, match=reason):
            Scoring(config.read(str(path)))


def _fresh(table, folder):
    results = Results(table.config, folder, table.jobs, set(), Scoring(table.config))
    results.task = table.task
    return results


class TestSamples:
    def test_chosen_ones_side_by_side(self, table):
        first, second = samples.collect(table, table.task)
        assert (first.number, second.number) == (3, 0)
        assert first.persona == PERSONAS[3] and first.query == QUERIES[3] and first.gold == GOLD[3]
        assert first.replies == {
            "好 & good": "i live in town3 .",
            "bad": "i am at home .",
            "worse": "no",
            "half": "i live in town3 .",
        }
        text = samples.markdown([first])
        assert "| **好 & good** | i live in town3 . |" in text
        assert r"\textbf{好 \& good} & i live in town3 . \\" in samples.latex([first], "x")
        (line,) = csv.DictReader(io.StringIO(samples.csv_text([first])))
        assert line["persona"] == " | ".join(PERSONAS[3]) and line["worse"] == "no"

    def test_number_that_is_not_there(self, table, tmp_path):
        path = tmp_path / "table.yml"
        path.write_text(YAML.replace("[3, 0]", "[40]"), encoding="utf-8")
        table.config = config.read(str(path))
        with pytest.raises(PersonaAgentsError, match="no sample 40.*0 to 39"):
            samples.collect(table, table.task)


class TestPages:
    class Nothing:
        failures = ()

    def test_files(self, table, tmp_path):
        job = next(tmp_path.glob("*/good/seed1"))
        reports = [{"ppl": 9.5, "total_epochs": 1.0, "train_steps": 7, "exs": 3}]
        stats = {"train_time": 3.5, "total_exs": 112, "valid_reports": reports}
        (job / "model.trainstats").write_text(json.dumps(stats), encoding="utf-8")
        found = pages.write(table, table.jobs, self.Nothing())
        names = {path.name for path in (tmp_path / "tables").iterdir()}
        prefix = "personachat_single_turn_mini-"
        for name in (
            "test-systems",
            "test-significance",
            "test-ablations",
            "test-beside",
            "swapped",
            "samples",
        ):
            assert {f"{prefix}{name}.{ending}" for ending in ("md", "tex", "csv")} <= names
        assert {f"{prefix}test-systems.png", f"{prefix}curves.png"} <= names
        page = (tmp_path / "tables.md").read_text(encoding="utf-8")
        assert "tok:basic" in page and "好 & good" in page and "sample 3" in page
        assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == json.loads(
            json.dumps(found)
        )
        (entry,) = [entry for entry in found["jobs"] if entry["folder"].endswith("good/seed1")]
        assert entry["curve"] == [{"epochs": 1.0, "steps": 7, "ppl": 9.5}]
        assert entry["training_seconds"] == 3.5
        pages.write(_fresh(table, tmp_path), table.jobs, self.Nothing())
        assert (tmp_path / "tables.md").read_text(encoding="utf-8") == page

    def test_rows_of_different_versions_are_told(self, table, tmp_path):
        def page():
            pages.write(_fresh(table, tmp_path), table.jobs, self.Nothing())
            return (tmp_path / "tables.md").read_text(encoding="utf-8")

        for name in ("good", "bad"):
            done = next(tmp_path.glob(f"*/{name}/seed1")) / "done"
            done.mkdir()
            marker = {"versions": {"torch": "1.0"}}
            (done / "train.json").write_text(json.dumps(marker), encoding="utf-8")
        assert "same versions" not in page()
        marker["versions"]["torch"] = "2.0"
        (done / "train.json").write_text(json.dumps(marker), encoding="utf-8")
        assert "same versions" in page()

    def test_seeds_that_failed_are_left_out_and_told(self, table, tmp_path):
        failed = next(job for job in table.jobs if job.folder.endswith("good/seed2"))
        results = Results(table.config, tmp_path, table.jobs, {failed.folder}, table.scoring)
        results.task = table.task
        cells = row(tables(results)["systems"], "好 & good")
        assert cells.seeds == 1 and cells.cells["p_cover"].deviation is None

    def test_a_system_without_any_finished_job(self, table, tmp_path):
        failed = {job.folder for job in table.jobs if job.system.name == "good"}
        results = Results(table.config, tmp_path, table.jobs, failed, table.scoring)
        results.task = table.task
        found = tables(results)
        assert list(found) == ["systems", "beside", "swapped"], "nothing to compare with"
