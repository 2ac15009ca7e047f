"""`parlai persona_data`: its counts against counts made by hand, its files, its messages."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest
from persona_agents.tasks.content_words import Rule

from persona_agents.errors import PersonaAgentsError
from persona_agents.scripts import picture, statistics
from persona_agents.scripts.persona_data import PersonaData
from tests.conftest import subprocess_environment
from tests.unit.corpora import numbered, variant, write

TURNS = [
    "p1 : 你好 呀",
    "p2 : 我 爱听 rap 音乐",
    "p1 : 真 的 吗 ？",
    "p2 : 你 钓鱼 吗",
    "p1 : 今天 去 打球",
]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, [variant(), variant(conversation=TURNS), *numbered(60)], "Persona_train.json")
    write(tmp_path, [variant(), variant(conversation=TURNS[:1]), "[]"], "Persona_dev.json")
    return tmp_path


def run(**options) -> dict:
    return PersonaData.main(**{"task": "cpc", "skip_bad_lines": True, **options})


def test_counts(folder, capsys):
    found = run(cpc_path=str(folder))
    train, valid, test = found["splits"].values()
    # One dialogue of dev and the train dialogue that repeats it; 61 others are train or test.
    assert valid["pairs"] == {"kept": 2}
    kept = train["pairs"]["kept"] + test["pairs"].get("kept", 0)
    assert kept == 60 + 1, "every numbered dialogue, and one pair of TURNS"
    dropped = {
        reason: train["pairs"].get(reason, 0) + test["pairs"].get(reason, 0)
        for reason in ("no word shared", "no content word")
    }
    assert dropped == {"no word shared": 2, "no content word": 1}
    assert valid["persona sentences per sample"] == {"mean": 2, "median": 2, "min": 2, "max": 2}
    assert valid["lengths"]["query"] == {"mean": 9, "median": 9, "min": 9, "max": 9}
    assert found["unit of length"] == "characters"
    report = found["files"][str(folder / "Persona_train.json")]
    assert report["dialogues"]["left out: also in the dev file"] == 1
    assert sum(report["dialogues"].values()) == report["read"] == 62
    report = found["files"][str(folder / "Persona_dev.json")]
    assert report["lines"] == 3 and report["skipped"] == {"not an object": 1}
    for split in found["splits"].values():
        assert split["samples"] == split["pairs"].get("kept", 0)
    printed = capsys.readouterr().out
    for text in ("left out, no content word", "真的吗？", "skipped, not an object", "kept"):
        assert text in printed


def test_the_filter_drops_nothing_of_raw(folder):
    for split in run(task="cpc:raw", cpc_path=str(folder))["splits"].values():
        assert set(split["pairs"]) <= {"kept"}


def test_shared_between_splits(folder):
    found = run(task="cpc:raw", cpc_path=str(folder), cpc_split="session")["shared"]
    assert found["train, valid"]["dialogues"] == 0
    assert found["train, valid"]["personas"] == 2, "all dialogues have the same two"
    assert found["train, valid"]["persona sentences"] == 4


def test_other_tasks(tmp_path):
    lines = "1 your persona: i sew.\n2 __SILENCE__\thi\n3 hello . any pets ?\ti sew .\n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}_self_original.txt").write_text(lines, encoding="utf-8")
    found = run(task="personachat_single_turn", personachat_path=str(tmp_path), persona_filter=1)
    assert found["splits"]["test"]["pairs"] == {"kept": 1}
    assert found["shared"]["train, test"] == {
        "dialogues": 1,
        "personas": 1,
        "persona sentences": 1,
        "samples": 1,
    }
    found = PersonaData.main(task="integration_tests:multiturn")  # of ParlAI, without personas
    assert found["splits"]["train"]["samples"] == 500 * 4
    assert found["splits"]["train"]["dialogues"] == 500


def test_examples_are_few_and_the_same_each_time(folder):
    write(folder, [variant(conversation=[f"p1 : {i}", f"p2 : 嗯 {i}"]) for i in range(99)])
    one, two = (
        run(cpc_path=str(folder), examples_per_reason=2)["splits"]["valid"]["dropped examples"]
        for _ in range(2)
    )
    assert one == two
    assert {reason: len(examples) for reason, examples in one.items()} == {"no content word": 2}


def test_json(folder, tmp_path):
    path = tmp_path / "out.json"
    found = run(cpc_path=str(folder), json_file=str(path))
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(found))
    with pytest.raises(PersonaAgentsError, match=r"--json-file .*no.*out.json: No such file"):
        run(cpc_path=str(folder), json_file=str(tmp_path / "no" / "out.json"))


def test_picture(folder, tmp_path):
    pytest.importorskip("matplotlib")
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        run(cpc_path=str(folder), picture_file=str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(PersonaAgentsError, match=r"--picture-file .*a.xyz"):
        run(cpc_path=str(folder), picture_file=str(tmp_path / "a.xyz"))


@pytest.mark.parametrize("font", [None, "DejaVu Sans"])
def test_labels_without_and_with_a_chinese_font(folder, tmp_path, monkeypatch, font):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(picture, "cjk_font", lambda: font)
    found = run(cpc_path=str(folder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture.draw(found, str(tmp_path / "a.png"))
    missing = [str(warning.message) for warning in caught if "Glyph" in str(warning.message)]
    # DejaVu has no Chinese characters, so warnings show that the labels were Chinese.
    assert bool(missing) == (font is not None)


def test_a_chinese_font_is_found_by_name(monkeypatch):
    pytest.importorskip("matplotlib")
    from types import SimpleNamespace

    from matplotlib import font_manager

    fonts = [SimpleNamespace(name=name, fname=name) for name in ("DejaVu Sans", "SimHei")]
    monkeypatch.setattr(font_manager, "fontManager", SimpleNamespace(ttflist=fonts))
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    assert picture.cjk_font() == "SimHei"
    fonts.pop()
    assert picture.cjk_font() is None


def test_without_matplotlib(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PersonaAgentsError, match="pip install matplotlib"):
        run(cpc_path=str(folder), picture_file="a.png")


def test_whole_dialogues(folder):
    found = run(task="cpc:multi_turn", cpc_path=str(folder))["splits"]["valid"]
    assert found["samples"] == 3 and found["dialogues"] == 2, "GOOD, told by either speaker"
    assert found["personas"] == 2


def test_the_parlai_command_pays_for_nothing_at_its_start():
    program = (
        "import sys, parlai_internal.scripts.persona_agents_hook\n"
        "from parlai.core.loader import SCRIPT_REGISTRY\n"
        "assert 'persona_data' in SCRIPT_REGISTRY\n"
        "heavy = ('persona_agents.scripts.statistics', 'persona_agents.tasks.base', 'jieba')\n"
        "assert not {*heavy, 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=subprocess_environment())


def test_one_task(folder):
    with pytest.raises(PersonaAgentsError, match="wants one task"):
        run(task="cpc,cpc:mini")


def test_the_command(run_parlai):
    done = run_parlai("persona_data", "-t", "cpc", "--cpc-path", "nowhere")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("-t cpc:mini needs no download.")
    assert "Traceback" not in done.stderr


RESPONSE, PERSONA = "我 每天 钓鱼", ("我 喜欢 钓鱼 ， 我 住 海边",)


@pytest.mark.parametrize(
    ("rule", "query", "response", "persona", "reason"),
    [
        (Rule("zh", 0), "", "", (), None),
        (Rule("zh", 1), "", RESPONSE, PERSONA, None),
        (Rule("zh", 1), "", RESPONSE, (), "no persona"),
        (Rule("zh", 1), "", "嗯 ， 好 的", PERSONA, "no content word"),
        (Rule("zh", 1), "", "我 养 猫", PERSONA, "no word shared"),
        (Rule("zh", 2), "", RESPONSE, PERSONA, "only 1 of 2 words shared"),
        (Rule("zh", 1), "你 喜欢 钓鱼 吗 ？", "嗯 ， 好 的", PERSONA, "no content word"),
        (Rule("zh", 1, query=True), "你 喜欢 钓鱼 吗 ？", "嗯 ， 好 的", PERSONA, None),
        (Rule("zh", 1), "", "我 住 北京", PERSONA, None),
        (Rule("zh", 1, words="noun"), "", "我 住 北京", PERSONA, "no word shared"),
        (Rule("zh", 1, words="noun"), "", "海边 很 美", PERSONA, None),
        (Rule("zh", 1, stop_words=frozenset({"钓鱼"})), "", RESPONSE, PERSONA, "no content word"),
        (Rule("en", 1), "", "i ski a lot", ("i ski.",), None),
        (Rule("en", 1), "do you ski ?", "yes", ("i ski.",), "no content word"),
        (Rule("en", 1, query=True), "do you ski ?", "yes", ("i ski.",), None),
        (Rule("en", 1, stop_words=frozenset({"ski"})), "", "i ski", ("i ski.",), "no content word"),
    ],
)
def test_the_rule(rule, query, response, persona, reason):
    assert rule.why_dropped(query, response, persona) == reason


def test_options_of_the_rule(folder, tmp_path):
    stop = tmp_path / "stop.txt"
    stop.write_text("RAP 音乐\n爱听\n", encoding="utf-8")

    def kept(**options):
        splits = run(cpc_path=str(folder), **options)["splits"]
        return splits["train"]["samples"] + splits["test"]["samples"]

    before = kept()
    assert kept(persona_filter_stop_words=str(stop)) == before - 1
    assert kept(persona_filter_query=True) > before
    assert kept(persona_filter_words="noun") <= before
    with pytest.raises(PersonaAgentsError, match=r"no.txt cannot be read: No such file"):
        kept(persona_filter_stop_words=str(tmp_path / "no.txt"))
    with pytest.raises(PersonaAgentsError, match="known for Chinese only"):
        run(task="personachat_single_turn", persona_filter_words="noun")


def test_summary():
    from collections import Counter

    assert statistics.summary(Counter({1: 1, 2: 1, 9: 1})) == {
        "mean": 4,
        "median": 2,
        "min": 1,
        "max": 9,
    }
    assert statistics.summary(Counter()) is None
