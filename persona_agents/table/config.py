"""The table's YAML file: what it may hold, and reading it with one message for each mistake."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from persona_agents import AGENTS
from persona_agents.errors import PersonaAgentsError
from persona_agents.table.loading import join, load
from persona_agents.table.schema import SCHEMA

PAPER_TEST_SETS = {
    "cpc": {"filtered": ("cpc", {}), "whole": ("cpc:raw", {})},
    "personachat_single_turn": {
        "whole": ("personachat_single_turn", {"persona_filter": "0"}),
        "filtered": ("personachat_single_turn", {"persona_filter": "1"}),
    },
}
ANCHORS = ("gold", "shuffled gold", "echoed persona", "constant reply")
CONSTANT = {"zh": "我不知道。", "en": "i do not know ."}
IN_A_JOB = ("swapped", "done", "logs")  # folders of a job beside its test sets
BUDGETS = ("examples", "steps", "epochs")
MOST_SEED = 2**32 - 1  # numpy takes no other
MOST_BUDGET = 10**12
MOST_THREADS = 1024  # more than a machine has; OpenMP fails at some number
# options that would break what the table is about: seeds, budgets, what is trained and where it lies
SET_BY_THE_TABLE = {
    *("task", "t", "model", "m", "model_file", "mf", "init_opt", "o", "datatype", "dt", "seed"),
    *("num_epochs", "eps", "max_train_steps", "max_lr_steps", "tstep", "mutators", "mut"),
    *("world_logs", "report_filename", "rf", "log_keep_fields", "replies", "json_file"),
}
Options = dict  # option name with underscores -> text for the command line, or None


@dataclass(frozen=True)
class TestSet:
    """Something that replies are generated for."""

    name: str
    task: str
    options: Options


@dataclass(frozen=True)
class Task:
    """A task that systems are trained on."""

    name: str
    options: Options
    test_sets: tuple[TestSet, ...]  # the main one first


@dataclass(frozen=True)
class System:
    """A row of a table, before it is trained with each seed."""

    name: str
    label: str
    model: str | None
    preset: str | None
    options: Options
    seeds: tuple[int, ...]
    budget: dict
    train: bool = True
    kind: str = "system"  # or ablation, anchor


@dataclass(frozen=True)
class Config:
    """A table's YAML file, checked and with its defaults filled in."""

    path: str
    tasks: tuple[Task, ...]
    systems: tuple[System, ...]  # ablations among them, by kind
    proposed: str
    options: Options
    evaluation: Options
    scoring: Options
    anchors: bool
    constant_reply: str | None
    swapped_personas: bool
    samples: int | tuple[int, ...]
    threads: int
    keep_models: bool
    resolved: dict = field(repr=False)  # the file as read, variables replaced

    def system(self, name: str) -> System:
        """The system of this name."""
        return next(system for system in self.systems if system.name == name)


class Reader:
    """Takes values out of nested mappings; its errors name the file and the key."""

    def __init__(self, path: str):
        self.path = path

    def error(self, key: str, what: str) -> PersonaAgentsError:
        """What is wrong with a key, '' being the whole file."""
        return PersonaAgentsError(f"{self.path}: {key + ': ' if key else ''}{what}.")

    def mapping(self, value, key: str, allowed=None) -> dict:
        """A mapping with text keys; those that are not `allowed` are errors."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(key, f"a mapping is wanted here, not {_show(value)}")
        for name in value:
            if not isinstance(name, str):
                raise self.error(join(key, name), "a name is wanted here; put it in quotes")
            if allowed is not None and name not in allowed:
                raise self.error(
                    join(key, name), f"there is no such key. Known: {', '.join(allowed)}"
                )
        return value

    def named(self, value, key: str) -> dict:
        """A mapping {name: settings}, or a list of names."""
        if isinstance(value, list):
            for name in value:
                if not isinstance(name, str):
                    raise self.error(key, f"names are wanted in this list, not {_show(name)}")
                if value.count(name) > 1:
                    raise self.error(key, f"{name} stands here twice")
            value = dict.fromkeys(value)
        return self.mapping(value, key)

    def value(self, mapping: dict, key: str, name: str, kind, default):
        """mapping[name] if it is of a kind (bool, int, str), the default if it is not there."""
        value = mapping.get(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            wanted = {bool: "true or false", int: "a whole number", str: "a text"}[kind]
            raise self.error(join(key, name), f"{wanted} is wanted here, not {_show(value)}")
        return value

    def options(self, value, key: str) -> Options:
        """Options as texts for the command line; null stays None."""
        found = {}
        for name, given in self.mapping(value, key).items():
            place = join(key, name)
            if not re.fullmatch(r"[A-Za-z][\w-]*", name):
                raise self.error(place, "this is no option's name; write it without dashes before")
            if not isinstance(given, (str, int, float, type(None))):  # a list, a date, ...
                raise self.error(place, f"one value is wanted here, not {_show(given)}")
            if isinstance(given, bool):
                given = str(given).lower()
            if name.replace("-", "_") in SET_BY_THE_TABLE:
                raise self.error(place, "the table sets this option itself")
            found[name.replace("-", "_")] = None if given is None else str(given)
        return found

    def seeds(self, value, key: str) -> tuple[int, ...]:
        """Different whole numbers, at least one."""
        whole = isinstance(value, list) and all(type(seed) is int and seed >= 0 for seed in value)
        if not whole or not value or len(set(value)) < len(value):
            raise self.error(
                key, f"a list of different whole numbers is wanted, not {_show(value)}"
            )
        if max(value) > MOST_SEED:
            raise self.error(key, f"a seed is at most {MOST_SEED}, not {_show(max(value))}")
        return tuple(value)

    def budget(self, value, key: str) -> dict:
        """{'steps': n}, {'examples': n} or {'epochs': x}."""
        value = self.mapping(value, key, BUDGETS)
        if len(value) != 1:
            raise self.error(key, f"exactly one of {', '.join(BUDGETS)} is wanted")
        ((name, amount),) = value.items()
        kinds = (int, float) if name == "epochs" else (int,)
        if isinstance(amount, bool) or not isinstance(amount, kinds) or not amount > 0:
            wanted = "a number" if name == "epochs" else "a whole number"
            raise self.error(join(key, name), f"{wanted} above 0 is wanted, not {_show(amount)}")
        if amount > MOST_BUDGET:
            raise self.error(
                join(key, name), f"at most {MOST_BUDGET} is possible, not {_show(amount)}"
            )
        return dict(value)


def _show(value) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def read(path: str) -> Config:
    """Read a table's YAML file; raises PersonaAgentsError naming file and key."""
    reader, data = Reader(path), load(path)
    if not isinstance(data, dict):
        raise reader.error("", "a mapping with the keys tasks and systems is wanted")
    allowed = re.findall(r"^  (\w+):", SCHEMA, re.MULTILINE)
    top = reader.mapping(data, "", allowed)
    for name in ("tasks", "systems", "budget"):
        if not top.get(name):
            raise reader.error("", f"the key {name} is missing or empty")
    seeds = reader.seeds(top["seeds"], "seeds") if top.get("seeds") is not None else (1,)
    budget = reader.budget(top["budget"], "budget")
    systems = [
        _system(reader, name, value, key, kind, seeds, budget)
        for key, kind in (("systems", "system"), ("ablations", "ablation"))
        for name, value in reader.named(top.get(key), key).items()
    ]
    _reject_clashes(reader, "", [system.name for system in systems], ANCHORS)
    names = [system.name for system in systems if system.kind == "system"]
    proposed = reader.value(top, "", "proposed", str, names[0])
    if proposed not in names:
        raise reader.error("proposed", f"{proposed} is none of the systems: {', '.join(names)}")
    tasks = reader.named(top["tasks"], "tasks")
    _reject_clashes(reader, "tasks", tasks)
    return Config(
        path=path,
        tasks=tuple(_task(reader, name, value) for name, value in tasks.items()),
        systems=tuple(systems),
        proposed=proposed,
        options=reader.options(top.get("options"), "options"),
        evaluation={"batchsize": "32", **reader.options(top.get("evaluation"), "evaluation")},
        scoring=reader.options(top.get("scoring"), "scoring"),
        anchors=reader.value(top, "", "anchors", bool, True),
        constant_reply=reader.value(top, "", "constant_reply", str, None),
        swapped_personas=reader.value(top, "", "swapped_personas", bool, True),
        samples=_samples(reader, top.get("samples", 5)),
        threads=_threads(reader, top),
        keep_models=reader.value(top, "", "keep_models", bool, True),
        resolved=data,
    )


SYSTEM_KEYS = ("model", "preset", "options", "seeds", "budget", "train", "label")


def _system(reader: Reader, name: str, value, key: str, kind: str, seeds, budget) -> System:
    place = join(key, name)
    given = reader.mapping(value, place, SYSTEM_KEYS)
    model = reader.value(given, place, "model", str, None)
    preset = reader.value(given, place, "preset", str, None)
    if model and preset:
        raise reader.error(place, "either model or preset is wanted, not both")
    if not model and not preset:
        if name not in AGENTS:
            raise reader.error(
                place,
                "there is no such system. This package has "
                f"{', '.join(AGENTS)}; for others say model: or preset: here",
            )
        model = f"persona_agents:{name}"
    if given.get("seeds") is not None:
        seeds = reader.seeds(given["seeds"], f"{place}.seeds")
    if given.get("budget") is not None:
        budget = reader.budget(given["budget"], f"{place}.budget")
    train = reader.value(given, place, "train", bool, True)
    return System(
        name=name,
        label=reader.value(given, place, "label", str, name),
        model=model,
        preset=preset,
        options=reader.options(given.get("options"), f"{place}.options"),
        seeds=seeds if train else seeds[:1],  # without training nothing differs between seeds
        budget=budget,
        train=train,
        kind=kind,
    )


def slug(text: str) -> str:
    """A text as the name of a folder: what is no letter, digit, dot or dash becomes _."""
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "_"


def _reject_clashes(reader: Reader, key: str, names, taken=()) -> None:
    """Raise for names that would be the same folder, of each other or of what is taken."""
    places = {slug(name): name for name in taken}
    for name in names:
        if slug(name) in places:
            other = places[slug(name)]
            raise reader.error(join(key, name), f"too much like {other}; choose another name")
        places[slug(name)] = name


def _task(reader: Reader, name: str, value) -> Task:
    place = f"tasks.{name}"
    given = reader.mapping(value, place, ("options", "test_sets"))
    options = reader.options(given.get("options"), f"{place}.options")
    if "," in name:
        raise reader.error(place, "one task is wanted, not several with commas between")
    chosen = given.get("test_sets")
    if not chosen:
        sets = PAPER_TEST_SETS.get(name, {"test": (name, {})})
        test_sets = [TestSet(set_name, task, more) for set_name, (task, more) in sets.items()]
    else:
        test_sets = []
        for set_name, settings in reader.mapping(chosen, f"{place}.test_sets").items():
            key = f"{place}.test_sets.{set_name}"
            settings = reader.mapping(settings, key, ("task", "options"))
            task = reader.value(settings, key, "task", str, name)
            more = reader.options(settings.get("options"), f"{key}.options")
            test_sets.append(TestSet(set_name, task, more))
    _reject_clashes(reader, f"{place}.test_sets", [t.name for t in test_sets], IN_A_JOB)
    return Task(name, options, tuple(test_sets))


def _samples(reader: Reader, value):
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, list) and all(type(number) is int and number >= 0 for number in value):
        return tuple(value)
    raise reader.error("samples", f"a whole number or a list of them is wanted, not {_show(value)}")


def _threads(reader: Reader, top: dict) -> int:
    value = reader.value(top, "", "threads", int, 1)
    if not 1 <= value <= MOST_THREADS:
        raise reader.error(
            "threads", f"a number above 0 and up to {MOST_THREADS} is wanted, not {_show(value)}"
        )
    return value
