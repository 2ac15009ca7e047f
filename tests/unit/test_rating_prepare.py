"""Drawing a blind sample: the same for every system, and nothing in it that names one."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from persona_agents.crowdsourcing.prepare import prepare
from persona_agents.crowdsourcing.replies import RepliesError, find_systems
from persona_agents.crowdsourcing.study import (
    ASPECTS,
    LANGUAGES,
    TEXTS,
    StudyError,
    fault_of_submission,
    onboarding_examples,
    onboarding_is_right,
    read_study,
    texts,
)
from persona_agents.errors import PersonaAgentsError
from persona_agents.persona import format_turn

HOSTILE = [
    "<script>alert(1)</script><b>bold</b> &amp; \" ' `",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd",
    "null \x00 bell \x07 escape \x1b[31m line\u2028separator",
    "长" * 5000,
    "",
    "{fluency} %s ${x}",
]


def entry(number, system, query=None, **more):
    return {
        "persona": [f"i am number {number} .", "i like tea ."],
        "query": query or f"who are you , {number} ?",
        "reply": f"{system} answers {number}",
        "references": [f"gold {number}"],
        **more,
    }


@pytest.fixture
def write(tmp_path):
    def write(name, entries):
        path = tmp_path / name
        lines = [json.dumps(e, ensure_ascii=False) for e in entries]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def systems(write):
    return {
        name: write(f"{name}.jsonl", [entry(n, name) for n in order])
        for name, order in (("alpha", range(30)), ("beta", reversed(range(40))))
    }


def test_every_system_is_rated_on_the_same_samples(systems, tmp_path):
    result = prepare(systems, tmp_path / "study", samples=12, seed=3)
    study = read_study(tmp_path / "study")
    assert result["left out"] == {"alpha": 0, "beta": 10}
    assert len(study.items) == 24
    queries = {}
    for item in study.items:
        (system,) = study.key["items"][item["id"]]["systems"]
        queries.setdefault(system, []).append(item["query"])
        number = re.search(r"\d+", item["query"])[0]
        assert item["replies"] == [f"{system} answers {number}"]
        assert item["persona"][0] == f"i am number {number} ."
    assert sorted(queries["alpha"]) == sorted(queries["beta"])
    assert queries["alpha"] != queries["beta"], "the items are shuffled"


def test_what_the_browser_gets_names_no_system(systems, tmp_path):
    prepare(systems, tmp_path / "study", samples=12, checks=2, gold=True)
    study = read_study(tmp_path / "study")
    assert {tuple(sorted(item)) for item in study.items} == {("id", "persona", "query", "replies")}
    assert all(re.fullmatch("[0-9a-f]{12}", item["id"]) for item in study.items)
    content = json.loads((tmp_path / "study" / "items.json").read_text(encoding="utf-8"))
    assert set(content) == {"name", "form", "language", "reviewers", "items"}
    assert Counter(s for e in study.key["items"].values() for s in e.get("systems", ["check"])) == {
        "alpha": 12,
        "beta": 12,
        "gold": 12,
        "check": 2,
    }


def test_seed_fixes_the_sample_but_not_the_ids(systems, tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder, seed in zip(folders, (5, 5, 6)):
        prepare(systems, folder, samples=10, seed=seed)
    a, b, c = ([i["query"] for i in read_study(folder).items] for folder in folders)
    assert a == b != c
    assert not {i["id"] for i in read_study(folders[0]).items} & {
        i["id"] for i in read_study(folders[1]).items
    }


def test_world_logs_and_repeated_queries(write, tmp_path):
    def log(system):
        return [
            {
                "dialog": [
                    [
                        {"text": format_turn(["我养猫"], "你好"), "eval_labels": ["你好呀"]},
                        {"id": system, "text": f"{system}{n}"},
                    ]
                ]
            }
            for n in range(3)
        ]

    files = {name: write(f"{name}.jsonl", log(name)) for name in ("a", "b")}
    result = prepare(files, tmp_path / "study", samples=3, gold=True)
    study = read_study(tmp_path / "study")
    assert result["language"] == study.language == "zh"
    by_sample = {}
    for item in study.items:
        key = study.key["items"][item["id"]]
        by_sample.setdefault(key["sample"], {})[key["systems"][0]] = item["replies"][0]
        assert (item["persona"], item["query"]) == (["我养猫"], "你好")
    assert {tuple(sorted(replies.items())) for replies in by_sample.values()} == {
        (("a", f"a{n}"), ("b", f"b{n}"), ("gold", "你好呀")) for n in range(3)
    }


def test_pairs_stand_on_random_sides_and_the_key_knows(systems, tmp_path):
    prepare(systems, tmp_path / "study", samples=30, form="pairs")
    study = read_study(tmp_path / "study")
    assert len(study.items) == 30
    orders = Counter()
    for item in study.items:
        names = study.key["items"][item["id"]]["systems"]
        orders[tuple(names)] += 1
        assert [reply.split()[0] for reply in item["replies"]] == names
    assert min(orders["alpha", "beta"], orders["beta", "alpha"]) >= 5


def test_attention_checks_say_what_to_choose(systems, tmp_path):
    for form in ("scales", "pairs"):
        for language in LANGUAGES:
            folder = tmp_path / f"{form}-{language}"
            prepare(systems, folder, samples=5, checks=4, form=form, language=language)
            study = read_study(folder)
            words = texts(language)["check_items"][form]
            checks = {i: k["check"] for i, k in study.key["items"].items() if "check" in k}
            assert len(checks) == 4
            for item in study.items:
                if item["id"] in checks:
                    expected = checks[item["id"]]
                    names = {a: words["names"][str(v)] for a, v in expected.items()}
                    assert set(item["replies"]) == {words["text"].format(**names)}
                    submission = {"item": item["id"], "answers": expected}
                    assert fault_of_submission(submission, item, form) is None


def test_hostile_text_comes_through_unchanged(write, tmp_path):
    entries = [entry(n, "x", reply=text, query=text or "q") for n, text in enumerate(HOSTILE)]
    file = write("x.jsonl", entries)
    prepare({"x": file}, tmp_path / "study", samples=len(HOSTILE))
    items = read_study(tmp_path / "study").items
    assert {item["replies"][0] for item in items} == set(HOSTILE)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"samples": 31}, "only 30 samples"),
        ({"samples": 0}, "--samples"),
        ({"form": "pairs", "gold": True}, "exactly two systems, not 3"),
    ],
)
def test_refused_before_anything_is_written(systems, tmp_path, options, message):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(PersonaAgentsError, match=message):
        prepare(systems, tmp_path / "study", **{"samples": 5, **options})
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("study", ["file", "file/study", "file/deep/study"])
def test_folder_below_a_file(systems, tmp_path, study):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(StudyError, match="file.* (exists already|cannot be made)"):
        prepare(systems, tmp_path / study, samples=2)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("field", ["reply", "query"])
def test_lone_surrogates(tmp_path, field):
    file = tmp_path / "x.jsonl"
    lines = [json.dumps(entry(0, "x")), json.dumps({**entry(1, "x"), field: "a\ud800"})]
    file.write_text("\n".join(lines), encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(PersonaAgentsError, match=r"x\.jsonl, line 2: .*surrogate"):
        prepare({"x": file}, tmp_path / "study", samples=1)
    assert sorted(tmp_path.iterdir()) == before


def test_missing_gold_and_existing_folder(write, systems, tmp_path):
    file = write("x.jsonl", [entry(n, "x", references=[]) for n in range(3)])
    with pytest.raises(RepliesError, match="--gold: no file has a gold reply"):
        prepare({"x": file}, tmp_path / "study", samples=2, gold=True)
    prepare(systems, tmp_path / "study", samples=2)
    with pytest.raises(StudyError, match="exists already"):
        prepare(systems, tmp_path / "study", samples=2)


def test_broken_line_is_named(write, tmp_path):
    file = write("x.jsonl", [entry(0, "x"), {"persona": [], "query": "no reply"}])
    with pytest.raises(PersonaAgentsError, match=r"x\.jsonl.*2"):
        prepare({"x": file}, tmp_path / "study", samples=1)


def test_systems_of_a_table_folder(write, tmp_path):
    def place(*parts):
        path = tmp_path.joinpath("table", "cpc", *parts)
        path.mkdir(parents=True)
        (path / "replies.jsonl").write_text("{}", encoding="utf-8")
        return path / "replies.jsonl"

    hcm = place("hcm", "seed2", "test")
    place("hcm", "seed10", "test")
    place("hcm", "seed2", "swapped")
    pgn = place("pgn", "seed1", "test")
    place("gold", "test")
    folder = str(tmp_path / "table" / "cpc")
    assert find_systems([folder, "mine=x"]) == {"hcm": hcm, "pgn": pgn, "mine": find_path("x")}
    raw = place("hcm", "seed2", "raw")
    with pytest.raises(RepliesError, match="--test-set: raw, test"):
        find_systems([folder])
    assert find_systems([folder], "raw") == {"hcm": raw}
    with pytest.raises(RepliesError, match="neither NAME=FILE"):
        find_systems([str(tmp_path / "nowhere")])
    with pytest.raises(RepliesError, match="twice"):
        find_systems(["a=x", "a=y"])
    with pytest.raises(RepliesError, match="gold"):
        find_systems(["gold=x"])


def find_path(name):
    from pathlib import Path

    return Path(name)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "text",
        [],
        {},
        {"item": "i"},
        {"item": "other", "answers": {"fluency": 1, "relevance": 1, "consistency": 1}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": 3}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": True}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": "1"}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": [1]}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": 1.0}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": 1, "x": 1}},
        {"item": "i", "answers": {"fluency": 1, "relevance": 1, "consistency": 1}, "files": []},
    ],
)
def test_malformed_submissions_are_seen(data):
    assert fault_of_submission(data, {"id": "i"}, "scales")


def test_pages_texts_are_complete_in_both_languages():
    content = json.loads(TEXTS.read_text(encoding="utf-8"))

    def shape(value):
        if isinstance(value, dict):
            return {key: shape(v) for key, v in value.items() if key != "answers"}
        return [shape(v) for v in value] if isinstance(value, list) else type(value)

    def names(value):
        return sorted(re.findall(r"\{\w+\}", json.dumps(value)))

    english, chinese = content["en"], content["zh"]
    assert shape(english) == shape(chinese)
    for key in english:
        if key != "keys":
            assert names(english[key]) == names(chinese[key]), key


@pytest.mark.parametrize("form", ["scales", "pairs"])
def test_onboarding_has_the_same_answers_in_both_languages(form):
    english, chinese = (onboarding_examples(form, language) for language in LANGUAGES)
    right = [example["answers"] for example in english]
    assert right == [example["answers"] for example in chinese]
    assert onboarding_is_right({"answers": right}, form, "zh")
    wrong = [*right[:-1], {**right[-1], "fluency": right[0]["consistency"]}]
    assert wrong != right
    for answers in (wrong, right[:-1], None, "x"):
        assert not onboarding_is_right({"answers": answers}, form, "en")
    assert not onboarding_is_right(None, form, "en")


def test_page_loads_nothing_from_elsewhere_and_renders_no_markup():
    for path in TEXTS.parent.iterdir():
        content = path.read_text(encoding="utf-8")
        assert not re.search(
            r"https?://|//cdn|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", content
        ), path
    page = (TEXTS.parent / "index.html").read_text(encoding="utf-8")
    assert "default-src 'self'" in page
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == {
        "data:,",
        "rating.css",
        "wrap_crowd_source.js",
        "connection.js",
        "rating.js",
    }
    assert set(ASPECTS) == {"fluency", "relevance", "consistency"}


def test_costs():
    from persona_agents.crowdsourcing.persona_rating.costs import costs_of, mturk_costs

    # 100 samples of 5 systems by 3 reviewers at 8 cents: 120 dollars and 20 %
    assert mturk_costs(1500, 0.08) == {"rewards": 120.0, "fees": 24.0, "total": 144.0}
    assert mturk_costs(100, 0.01)["fees"] == 1.0, "the fee is at least one cent each"

    class Provider:
        _provider_type = "mturk"

    assert "$144.00" in costs_of(1500, 0.08, Provider)
