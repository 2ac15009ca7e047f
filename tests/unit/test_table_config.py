"""The table's YAML file: every mistake is one message that names file and key."""

from __future__ import annotations

import re

import pytest

from persona_agents import AGENTS
from persona_agents.errors import PersonaAgentsError
from persona_agents.table import config

GOOD = """
tasks: [cpc]
systems: [hcm]
budget: {steps: 10}
"""


@pytest.fixture
def read(tmp_path):
    """Reads a YAML file with this text."""

    def write_and_read(text):
        path = tmp_path / "table.yml"
        path.write_text(text, encoding="utf-8")
        return config.read(str(path))

    write_and_read.path = str(tmp_path / "table.yml")
    return write_and_read


class TestGood:
    def test_defaults(self, read):
        found = read(GOOD)
        (system,) = found.systems
        assert system.model == "persona_agents:hcm" and system.label == "hcm" and system.train
        assert system.seeds == (1,) and system.budget == {"steps": 10}
        assert found.proposed == "hcm" and found.anchors and found.swapped_personas
        (task,) = found.tasks
        assert [(t.name, t.task) for t in task.test_sets] == [
            ("filtered", "cpc"),
            ("whole", "cpc:raw"),
        ]

    def test_whole_and_filtered_test_set_of_personachat(self, read):
        (task,) = read(GOOD.replace("cpc", "personachat_single_turn")).tasks
        filters = {t.name: t.options["persona_filter"] for t in task.test_sets}
        assert filters == {"whole": "0", "filtered": "1"}

    def test_everything(self, read, monkeypatch):
        monkeypatch.setenv("SOMEWHERE", "/data/人设")
        found = read("""
tasks:
  convai2: {options: {a-b: 1}, test_sets: {one: {}, two: {task: msc, options: {c: d}}}}
systems:
  系统:
    model: seq2seq
    label: "S2S"
    options: {copy: none, bert_model: null, flag: yes, lr: 1e-3, path: "${SOMEWHERE}/x"}
    seeds: [3]
    budget: {epochs: 0.5}
  echo: {model: repeat_query, train: false}
ablations: {"w/o HCM": {preset: persona_agents/x}}
proposed: echo
seeds: [1, 2]
budget: {examples: 100}
samples: [0, 4]
scoring: {metrics: p_cover}
keep_models: false
threads: 2
""")
        one, two, three = found.systems
        assert one.model == "seq2seq" and one.label == "S2S"
        assert one.options == {
            "copy": "none",
            "bert_model": None,
            "flag": "true",
            "lr": "1e-3",
            "path": "/data/人设/x",
        }
        assert one.seeds == (3,) and one.budget == {"epochs": 0.5}
        assert two.seeds == (1,), "an agent that is not trained has no seeds"
        assert three.kind == "ablation" and three.preset == "persona_agents/x"
        assert three.seeds == (1, 2) and three.budget == {"examples": 100}
        (task,) = found.tasks
        assert task.options == {"a_b": "1"}
        assert [(t.name, t.task, t.options) for t in task.test_sets] == [
            ("one", "convai2", {}),
            ("two", "msc", {"c": "d"}),
        ]
        assert found.samples == (0, 4) and found.threads == 2 and not found.keep_models
        assert found.resolved["systems"]["系统"]["options"]["path"] == "/data/人设/x"

    def test_help_tells_every_key(self):
        keys = re.findall(r"^  (\w+):", config.SCHEMA, re.MULTILINE)
        assert {"tasks", "systems", "ablations", "budget", "seeds", "scoring"} <= set(keys)
        for key in (*config.SYSTEM_KEYS, *config.BUDGETS, "test_sets"):
            assert key in config.SCHEMA


# what is wrong, and what the message must say beside the file's name
BAD = {
    "not YAML": ("tasks: [cpc", "line 1"),
    "a list": ("- tasks", "tasks and systems"),
    "empty": ("", "tasks and systems"),
    "unknown key": (GOOD + "budgets: 3\n", "budgets: there is no such key"),
    "key twice": (GOOD + "tasks: [msc]\n", "'tasks' stands twice"),
    "no task": ("systems: [hcm]\nbudget: {steps: 1}\n", "tasks is missing"),
    "no budget": ("systems: [hcm]\ntasks: [cpc]\n", "budget is missing"),
    "unknown system": (GOOD.replace("[hcm]", "[hcn]"), "systems.hcn: there is no such system"),
    "unknown key of a system": (
        GOOD.replace("[hcm]", "{hcm: {sede: [1]}}"),
        "systems.hcm.sede: there is no such key",
    ),
    "system that is a text": (GOOD.replace("[hcm]", "{hcm: hello}"), "systems.hcm: a mapping"),
    "systems are a number": (GOOD.replace("[hcm]", "3"), "systems: a mapping"),
    "system twice": (GOOD.replace("[hcm]", "[hcm, hcm]"), "systems: hcm stands here twice"),
    "names alike": (
        GOOD.replace("[hcm]", "{a/b: {model: x}, a b: {model: x}}"),
        "a b: too much like a/b",
    ),
    "name of an anchor": (GOOD.replace("[hcm]", "{gold: {model: x}}"), "too much like gold"),
    "model and preset": (
        GOOD.replace("[hcm]", "{x: {model: a, preset: b}}"),
        "systems.x: either model or preset",
    ),
    "seeds": (GOOD + "seeds: 3\n", "seeds: a list of different whole numbers"),
    "seed twice": (GOOD + "seeds: [1, 1]\n", "seeds: a list of different whole numbers"),
    "no seed": (GOOD + "seeds: []\n", "seeds: a list of different whole numbers"),
    "budget of two kinds": (
        GOOD.replace("{steps: 10}", "{steps: 10, epochs: 2}"),
        "budget: exactly one of examples, steps, epochs",
    ),
    "half a step": (GOOD.replace("10", "1.5"), "budget.steps: a whole number above 0"),
    "no step": (GOOD.replace("10", "0"), "budget.steps: a whole number above 0"),
    "a true budget": (GOOD.replace("10", "true"), "budget.steps: a whole number above 0"),
    "text for a switch": (GOOD + "anchors: perhaps\n", "anchors: true or false"),
    "threads": (GOOD + "threads: 0\n", "threads: a number above 0"),
    "option with a list": (GOOD + "options: {a: [1, 2]}\n", "options.a: one value"),
    "option with dashes": (GOOD + "options: {--a: 1}\n", "options.--a: this is no option's name"),
    "options are a text": (GOOD + "options: abc\n", "options: a mapping"),
    "variable": (GOOD + "options: {a: '${NOT_SET_AT_ALL}'}\n", "options.a: the environment variable"),
    "proposed": (GOOD + "proposed: pgn\n", "proposed: pgn is none of the systems"),
    "samples": (GOOD + "samples: all\n", "samples: a whole number or a list"),
    "option that is the table's": (GOOD + "options: {seed: 3}\n", "options.seed: the table sets"),
    "test set that is called swapped": (
        GOOD.replace("[cpc]", "{cpc: {test_sets: {swapped: }}}"),
        "tasks.cpc.test_sets.swapped: too much like swapped",
    ),
    "tasks alike": (GOOD.replace("[cpc]", "['cpc:mini', cpc_mini]"), "tasks.cpc_mini: too much like"),
    "two tasks": (GOOD.replace("[cpc]", "['cpc,msc']"), "tasks.cpc,msc: one task"),
    "no such date": (
        GOOD + "constant_reply: 2024-02-30\n",
        "day is out of range for month; a text stands in quotes",
    ),
    "an alias within itself": (GOOD.replace("[hcm]", "&s {hcm: *s}"), "an alias (*) stands within"),
    "nested deeply": (GOOD + "options: " + "[" * 5000 + "\n", "nested too deeply"),
    "option that is a date": (GOOD + "options: {a: 2024-02-20}\n", "options.a: one value"),
    "large seed": (GOOD + "seeds: [1, 4294967296]\n", "seeds: a seed is at most 4294967295"),
    "large seed of a system": (
        GOOD.replace("[hcm]", "{hcm: {seeds: [4294967296]}}"),
        "systems.hcm.seeds: a seed is at most",
    ),
    "endless epochs": (GOOD.replace("steps: 10", "epochs: .inf"), "budget.epochs: at most"),
    "epochs that are none": (
        GOOD.replace("steps: 10", "epochs: .nan"),
        "budget.epochs: a number above 0",
    ),
    "many steps": (GOOD.replace("10", "1" + "0" * 400), "budget.steps: at most"),
    "many threads": (GOOD + "threads: 1000000\n", "threads: a number above 0 and up to 1024"),
    "key that is a number": (GOOD + "1: 2\n", "1: a name is wanted"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad(read, name):
    text, reason = BAD[name]
    with pytest.raises(PersonaAgentsError) as error:
        read(text)
    message = str(error.value)
    assert message.startswith(read.path) and reason in message and "\n" not in message


def test_unknown_system_names_those_there_are(read):
    with pytest.raises(PersonaAgentsError) as error:
        read(BAD["unknown system"][0])
    assert all(name in str(error.value) for name in AGENTS)


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(PersonaAgentsError, match="nothing.yml: No such file"):
        config.read(str(tmp_path / "nothing.yml"))


def test_not_utf_8(tmp_path):
    path = tmp_path / "table.yml"
    path.write_bytes("tasks: [人]".encode("gbk"))
    with pytest.raises(PersonaAgentsError, match="no UTF-8"):
        config.read(str(path))
