"""From answers to tables, without Mephisto: complete and partial data, both forms."""

from __future__ import annotations

import csv
import json
import random
from collections import namedtuple

import pytest
from reviewers import make_study

pytest.importorskip("krippendorff", reason="needs persona_agents[crowdsourcing]")
pytest.importorskip("statsmodels", reason="needs persona_agents[crowdsourcing]")

from persona_agents.crowdsourcing.persona_rating.analysis import render
from persona_agents.crowdsourcing.persona_rating.analysis.compile import evaluate
from persona_agents.crowdsourcing.study import ASPECTS, StudyError

Answer = namedtuple("Answer", "item reviewer answers seconds")
WORD = {"alpha": 0, "beta": 2, "gamma": 1}


def answer_all(study, judge, reviewers=("ann_sandbox", "ben_sandbox", "cy_sandbox")):
    """Every reviewer answers everything; checks rightly."""
    answers = []
    for item in study.items:
        entry = study.key["items"][item["id"]]
        for reviewer in reviewers:
            given = entry.get("check") or {a: judge(entry, a, reviewer) for a in ASPECTS}
            answers.append(Answer(item["id"], reviewer, given, 10.0))
    return answers


def test_means_and_differences_of_known_ratings(tmp_path):
    study = make_study(tmp_path, samples=8, systems=WORD, checks=2)
    answers = answer_all(study, lambda entry, aspect, reviewer: WORD[entry["systems"][0]])
    results = evaluate(study, answers)
    assert results["state"] == {"wanted": 78, "there": 78, "items": 26, "short": {}}
    for system, value in WORD.items():
        for aspect in ASPECTS:
            mean = results["means"][system][aspect]
            assert (mean["mean"], mean["items"], mean["ratings"]) == (value, 8, 24)
    assert all(a["alpha"] == a["kappa"] == a["same"] == 1 for a in results["agreement"].values())
    differences = {(c["first"], c["second"]): c["difference"] for c in results["comparisons"]}
    assert differences == {("alpha", "beta"): -2, ("alpha", "gamma"): -1, ("beta", "gamma"): 1}
    # eight equal differences: the smallest two-sided p of the exact test, 2 / 2^8
    assert results["comparisons"][0]["p"] == pytest.approx(2 / 2**8)
    assert results["comparisons"][0]["p holm"] == pytest.approx(6 / 2**8)
    assert results["disagreements"] == []


def test_random_ratings_show_no_agreement(tmp_path):
    generator = random.Random(1)
    study = make_study(tmp_path, samples=300)
    answers = answer_all(study, lambda *_: generator.randrange(3))
    results = evaluate(study, answers)
    for values in results["agreement"].values():
        assert abs(values["alpha"]) < 0.1
        assert abs(values["kappa"]) < 0.1
    spreads = [
        max(d["ratings"].values()) - min(d["ratings"].values()) for d in results["disagreements"]
    ]
    assert spreads
    assert set(spreads) == {2}


def test_partial_data_says_what_is_missing(tmp_path):
    study = make_study(tmp_path, samples=5)
    answers = answer_all(study, lambda entry, *_: WORD[entry["systems"][0]])
    first, second = study.items[0]["id"], study.items[1]["id"]
    partial = [
        a
        for a in answers
        if a.item != first and not (a.item == second and a.reviewer == "ann_sandbox")
    ]
    results = evaluate(study, partial)
    assert results["state"]["short"] == {1: 1, 3: 1}
    for text in (render.markdown(results), render.latex(results)):
        assert "INCOMPLETE: 26 of 30 ratings" in text
        assert "1 items lack 1; 1 items lack 3" in text
    assert min(c["samples"] for c in results["comparisons"]) == 4
    with pytest.raises(StudyError, match="no answers"):
        evaluate(study, [])


def test_reviewers_who_fail_checks_are_named_and_can_be_left_out(tmp_path):
    study = make_study(tmp_path, samples=4, checks=3)
    answers = answer_all(study, lambda entry, *_: WORD[entry["systems"][0]])
    careless = []
    for answer in answers:
        if answer.reviewer == "ben_sandbox":
            answer = answer._replace(answers={a: (v + 1) % 3 for a, v in answer.answers.items()})
        careless.append(answer)
    results = evaluate(study, careless)
    failing = [name for name, values in results["reviewers"].items() if values["fails"]]
    assert [results["reviewers"][name]["name"] for name in failing] == ["ben"]
    assert results["reviewers"][failing[0]]["checks failed"] == 3
    assert results["means"]["alpha"]["fluency"]["mean"] == pytest.approx(1 / 3)
    without = evaluate(study, careless, without_failing=True)
    assert without["left out"] == failing
    assert without["means"]["alpha"]["fluency"]["mean"] == 0
    assert "INCOMPLETE" in render.markdown(without), "what was left out is missing"


def test_side_by_side_counts_for_the_system_on_whichever_side(tmp_path):
    study = make_study(tmp_path, samples=20, form="pairs")

    def prefer_beta(entry, aspect, reviewer):
        if aspect == "fluency":
            return "equal"
        if aspect == "relevance" and reviewer == "cy_sandbox":
            return "a" if entry["systems"][0] == "alpha" else "b"
        return "a" if entry["systems"][0] == "beta" else "b"

    results = evaluate(study, answer_all(study, prefer_beta))
    fluency, relevance, consistency = results["comparisons"]
    counts = ("first preferred", "equal", "second preferred")
    assert [fluency[c] for c in counts] == [0, 60, 0]
    assert [relevance[c] for c in counts] == [20, 0, 40]
    assert [consistency[c] for c in counts] == [0, 0, 60]
    assert (fluency["difference"], fluency["p"]) == (0, 1.0)
    assert relevance["difference"] == pytest.approx(-1 / 3)
    assert consistency["p"] < 1e-4
    assert results["agreement"]["relevance"]["same"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("form", ["scales", "pairs"])
def test_every_file_is_written(tmp_path, form):
    generator = random.Random(2)
    values = {"scales": [0, 1, 2], "pairs": ["a", "equal", "b"]}[form]
    nasty = ["<b>|pipe|</b> `x` \\ 100% $a_b$", "第二条\n换行"]
    study = make_study(
        tmp_path, samples=6, systems=["a_1", "b&2"], replies=nasty, form=form, checks=1
    )
    results = evaluate(study, answer_all(study, lambda *_: generator.choice(values)))
    written = render.write(results, study.folder / "results")
    names = {path.name for path in written}
    assert names >= {
        *("results.md", "results.tex", "results.json"),
        *("results.csv", "ratings.csv", "reviewers.csv"),
    }
    assert all(path.stat().st_size for path in written)

    markdown = (study.folder / "results" / "results.md").read_text(encoding="utf-8")
    assert "<b>" not in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables), "a reply broke out of its cell"
    latex = (study.folder / "results" / "results.tex").read_text(encoding="utf-8")
    assert r"a\_1" in latex
    assert r"b\&2" in latex
    stored = json.loads((study.folder / "results" / "results.json").read_text(encoding="utf-8"))
    assert all("name" not in values for values in stored["reviewers"].values())
    with open(study.folder / "results" / "ratings.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(study.items) * 3
    assert {row["reviewer"] for row in rows} == {"R1", "R2", "R3"}


def test_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    study = make_study(tmp_path, samples=3)
    results = evaluate(study, answer_all(study, lambda *_: 1)[:-2])
    assert render.draw(results, tmp_path / "results.png")
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
