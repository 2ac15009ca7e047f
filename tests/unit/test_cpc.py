"""The reader of CPC's raw files, its splits, its filter and its messages about bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task
from persona_agents.tasks.base import Sample
from persona_agents.tasks.content_words import content_words, is_relevant
from persona_agents.tasks.cpc import build

from persona_agents.errors import PersonaAgentsError

ROOT = Path(__file__).resolve().parents[2]
GOOD = {
    "p1_persona": ["我 喜欢 钓鱼", "我 在 海滩 做 救生员"],
    "p2_persona": ["我 养 了 一只 猫", "我 爱听 rap"],
    "conversation": [
        "p1 : 你好 ， 你 喜欢 什么 ？",
        "p2 : p1 : 我 爱听 rap 音乐 。",
        "p1 : 我 每天 钓鱼 。",
        "p2 : 真 的 吗 ？",
    ],
}


def variant(**changes) -> str:
    return json.dumps({**GOOD, **changes}, ensure_ascii=False)


def write(folder, text, name="Persona_dev.json", encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return str(folder)


def load(folder, split="valid", minimum=0):
    return build.load(str(folder), split, minimum)


def test_pairs(tmp_path):
    write(tmp_path, variant() + "\n")
    one, two = ("我喜欢钓鱼", "我在海滩做救生员"), ("我养了一只猫", "我爱听 rap")
    assert load(tmp_path) == [
        # exactly one "p2 : " is the prefix, the rest is what was said
        Sample(two, "你好，你喜欢什么？", "p1 : 我爱听 rap 音乐。"),
        Sample(one, "p1 : 我爱听 rap 音乐。", "我每天钓鱼。"),
        Sample(two, "我每天钓鱼。", "真的吗？"),
    ]


def test_the_other_speaker_may_begin(tmp_path):
    write(tmp_path, variant(conversation=["p2 : 你好", "p1 : 好"]))
    assert load(tmp_path)[0].persona == ("我喜欢钓鱼", "我在海滩做救生员")


@pytest.mark.parametrize(
    "turn", ["p2:真 的 吗 ？", "p2：真 的 吗 ？", " p2 ： 真 的 吗 ？ ", "p2  :真 的 吗 ？"]
)
def test_prefix_is_tolerant(tmp_path, turn):
    write(tmp_path, variant(conversation=["p1 : 好", turn]))
    assert load(tmp_path)[0].response == "真的吗？"


def test_byte_order_mark_line_ends_and_blank_lines(tmp_path):
    plain, odd = tmp_path / "plain", tmp_path / "odd"
    plain.mkdir()
    odd.mkdir()
    write(plain, f"{variant()}\n{variant()}\n")
    write(odd, f"\ufeff{variant()}\r\n\r\n{variant()}")
    assert load(plain) == load(odd)
    assert len(load(odd)) == 6


def test_missing_persona_sentences_are_allowed(tmp_path):
    write(tmp_path, variant(p2_persona=[]))
    assert load(tmp_path)[0].persona == ()


BAD = {
    "truncated": (variant()[:-20], "not a complete JSON object"),
    "no object": ("[1, 2]", "a JSON object is expected, not a list"),
    "missing key": ('{"p1_persona": [], "p2_persona": []}', "the key 'conversation' is missing"),
    "wrong type": (variant(p1_persona="我"), "'p1_persona' is not a list of strings"),
    "wrong item": (variant(conversation=["p1 : 好", 3]), "'conversation' is not a list of strings"),
    "same speaker": (variant(conversation=["p1 : 好", "p1 : 好"]), "turns 1 and 2 are both by p1"),
    "empty turn": (variant(conversation=["p1 : 好", "p2 : "]), "turn 2 is empty"),
    "no speaker": (variant(conversation=["p1 : 好", "好"]), "turn 2 does not begin with 'p1 :'"),
    "third speaker": (variant(conversation=["p3 : 好"]), "turn 1 does not begin with 'p1 :'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_line(tmp_path, case):
    line, reason = BAD[case]
    folder = write(tmp_path, f"{variant()}\n{line}\n")
    with pytest.raises(PersonaAgentsError) as caught:
        load(folder)
    message = str(caught.value)
    assert f"{os.path.join(folder, 'Persona_dev.json')}, line 2: {reason}" in message
    assert "Mend or delete the line" in message


def test_wrong_encoding(tmp_path):
    write(tmp_path, variant(), encoding="gb18030")
    with pytest.raises(PersonaAgentsError, match=r"Persona_dev.json, line 1: not UTF-8"):
        load(tmp_path)


def test_empty_file(tmp_path):
    write(tmp_path, "")
    with pytest.raises(PersonaAgentsError, match="gives no sample for the split 'valid'"):
        load(tmp_path)


def many(count):
    return [
        {**GOOD, "conversation": [f"p1 : 第 {number} 个", "p2 : 好 的"]} for number in range(count)
    ]


def test_splits_never_share_a_dialogue(tmp_path):
    lines = [json.dumps(dialogue, ensure_ascii=False) for dialogue in many(2000)]
    write(tmp_path, "\n".join(lines), "Persona_train.json")
    train, test = ({sample.query for sample in load(tmp_path, key)} for key in ("train", "test"))
    assert len(train) + len(test) == 2000
    assert not train & test
    assert 70 < len(test) < 130, "about 5 %"
    # Neither the order of the lines nor the segmentation decides.
    lines = [line.replace("好 的", "好的") for line in reversed(lines)]
    write(tmp_path, "\n".join(lines) + "\n", "Persona_train.json")
    assert {sample.query for sample in load(tmp_path, "test")} == test


def test_a_changed_file_is_read_again(tmp_path):
    write(tmp_path, variant())
    assert len(load(tmp_path)) == 3
    write(tmp_path, f"{variant()}\n{variant()}")
    os.utime(tmp_path / "Persona_dev.json", ns=(1, 1))
    assert len(load(tmp_path)) == 6


@pytest.mark.parametrize(
    ("response", "persona", "shared"),
    [
        ("我 每天 钓鱼 。", "我 喜欢 钓鱼", {"钓鱼"}),
        ("我喜欢 吃 苹果", "我喜欢 猫", set()),  # too general
        ("你好 ， 很高兴 认识 你", "你好 ， 我 是 老师", set()),  # greetings
        ("我 和 你 一样", "你 和 我", set()),  # pronouns
        ("我 很 好", "我 很 懒", set()),  # adverbs
        ("我爱听 RAP 音乐", "我 听 rap", {"rap"}),  # Latin words in any case
        ("我 是 小学 老师", "我 是 老师 ， 在 小学 工作", {"老师", "小学"}),
        ("", "我 是 老师", set()),
    ],
)
def test_content_words(response, persona, shared):
    assert content_words(response, "zh") & content_words(persona, "zh") == shared


def test_english_content_words():
    assert content_words("I don't like my dogs, hello!", "en") == {"dogs"}


def test_threshold_counts_within_one_sentence():
    response, persona = "我 是 小学 老师", ("我 是 老师", "我 上 小学")
    assert is_relevant(response, persona, 1, "zh")
    assert not is_relevant(response, persona, 2, "zh")
    assert is_relevant(response, ("我 是 老师 ， 在 小学",), 2, "zh")
    assert is_relevant("嗯", (), 0, "zh")
    assert not is_relevant("嗯", (), 1, "zh")


# Through ParlAI


def teacher(task="cpc", datatype="valid", **settings):
    parser = ParlaiParser(True, False)
    opt = parser.parse_kwargs(task=task, datatype=datatype, **settings)
    return create_task(opt, []).get_agents()[0]


def test_the_default_task_filters_and_raw_does_not(tmp_path):
    folder = write(tmp_path, variant())
    assert teacher("cpc", cpc_path=folder).num_examples() == 2
    assert teacher("cpc", cpc_path=folder, persona_filter=0).num_examples() == 3
    assert teacher("cpc:raw", cpc_path=folder).num_examples() == 3
    assert teacher("cpc:raw", cpc_path=folder, persona_filter=1).num_episodes() == 3
    with pytest.raises(PersonaAgentsError, match="--persona-filter must be 0 or more"):
        teacher("cpc", cpc_path=folder, persona_filter=-1)
    with pytest.raises(PersonaAgentsError, match="--persona-filter is too strict"):
        teacher("cpc", cpc_path=folder, persona_filter=9)


def test_message(tmp_path):
    message = teacher("cpc:raw", cpc_path=write(tmp_path, variant())).act()
    assert (
        message["text"]
        == "your persona: 我养了一只猫\nyour persona: 我爱听 rap\n你好，你喜欢什么？"
    )
    assert message["eval_labels"] == ["p1 : 我爱听 rap 音乐。"]
    assert message["episode_done"] is True


def test_datapath_is_the_default(tmp_path):
    (tmp_path / "CPC").mkdir()
    write(tmp_path / "CPC", variant())
    assert teacher("cpc:raw", datapath=str(tmp_path)).num_examples() == 3


@pytest.mark.parametrize("task", ["cpc", "cpc:raw"])
@pytest.mark.parametrize("datatype", ["train", "valid", "test", "train:evalmode"])
def test_missing_data(tmp_path, task, datatype):
    for folder, begin in (
        (tmp_path, f"{tmp_path} holds no Persona_"),
        (tmp_path / "no", "There is"),
    ):
        with pytest.raises(PersonaAgentsError) as caught:
            teacher(task, datatype, cpc_path=str(folder))
        message = str(caught.value)
        assert message.startswith(begin)
        for part in ("Baidu", "luge.ai", "DATAPATH/CPC", "--cpc-path", "-t cpc:mini"):
            assert part in message


def test_real_data(real_data):
    folder = str(real_data / "cpc")
    sizes = {
        task: {
            split: teacher(task, split, cpc_path=folder).num_examples()
            for split in ("train:ordered", "valid", "test")
        }
        for task in ("cpc", "cpc:raw")
    }
    with open(real_data / "cpc" / "Persona_train.json", encoding="utf-8") as file:
        pairs = sum(len(json.loads(line)["conversation"]) - 1 for line in file)
    raw, filtered = sizes["cpc:raw"], sizes["cpc"]
    assert raw["train:ordered"] + raw["test"] == pairs
    assert all(0 < filtered[split] < raw[split] for split in raw)
    for sample in build.load(folder, "train", 0):
        assert sample.persona and sample.query and sample.response
        assert not sample.response.startswith(("p1 :", "p2 :"))
        assert "， " not in sample.response


def test_the_filter_without_jieba(monkeypatch):
    from persona_agents.tasks import content_words as module

    module._tagger.cache_clear()
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(PersonaAgentsError, match="pip install jieba"):
        content_words("某个新词", "zh")


def test_jieba_is_quiet_and_loaded_only_when_needed(run_parlai, tmp_path):
    folder = write(tmp_path, variant())
    done = run_parlai("display_data", "-t", "cpc", "--cpc-path", folder, "-dt", "valid")
    assert done.returncode == 0, done.stderr
    assert "我每天钓鱼。" in done.stdout
    assert "jieba" not in done.stderr and "prefix dict" not in done.stderr
    program = (
        "import sys; from persona_agents.tasks.cpc import build; "
        f"assert len(build.load({folder!r}, 'valid', 0)) == 3; assert 'jieba' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_bad_file_ends_the_command_with_its_message_alone(run_parlai, tmp_path):
    folder = write(tmp_path, variant()[:-5])
    done = run_parlai("display_data", "-t", "cpc", "--cpc-path", folder, "-dt", "valid")
    assert done.returncode != 0
    assert "Persona_dev.json, line 1: not a complete JSON object" in done.stderr
    assert "Traceback" not in done.stderr
