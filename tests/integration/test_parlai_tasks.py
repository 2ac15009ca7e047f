"""The agents on ParlAI's own persona tasks, from small files in each task's format on disk.

The files lie where ParlAI's teachers look for them, with the mark that ParlAI leaves when it has
built a task, so nothing is downloaded.
"""

from __future__ import annotations

import json

import pytest
import systems
import tiny
from parlai.core.build_data import mark_done
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.scripts.train_model import TrainModel
from parlai.tasks.blended_skill_talk.build import _get_line

from persona_agents.persona import persona_of

PERSONA, PARTNERS = ("i sew .", "i have a cat ."), ("i ski .", "i am a cook .")
CHINESE = ("我是老师。", "我有一只猫。")
TURNS = [("__SILENCE__", "hello !"), ("any pets ?", "yes , a cat ."), ("nice .", "do you ski ?")]
LANGUAGES = ("En", "Zh", "Fr", "Ko", "Id", "Jp", "It")


def dialogues(persona, partners=(), candidates="") -> str:
    """Two dialogues in the format of Persona-Chat and ConvAI2."""
    lines = [f"partner's persona: {line}" for line in partners]
    lines += [f"your persona: {line}" for line in persona]
    lines += [f"{query}\t{reply}{candidates}" for query, reply in TURNS]
    return "".join(f"{number} {line}\n" for number, line in enumerate(lines, 1)) * 2


def write(folder, names, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text, encoding="utf-8")


SPLITS = ("train", "valid", "test")


def personachat(root) -> None:
    for version in ("self_original", "self_revised", "both_original"):
        partners = PARTNERS if version == "both_original" else ()
        text = dialogues(PERSONA, partners, "\t\tno .|yes , a cat .|do you ski ?|hello !")
        for task, folder in (("Persona-Chat", "personachat"), ("ConvAI2", "")):
            write(root / task / folder, [f"{split}_{version}.txt" for split in SPLITS], text)
            write(root / task / folder, [f"{s}_{version}_no_cands.txt" for s in SPLITS], text)
    mark_done(str(root / "Persona-Chat"), "v1.0")
    mark_done(str(root / "ConvAI2"), "v5.0")


def xpersona(root) -> None:
    for language in LANGUAGES:
        # as ParlAI writes them: no space after the colon
        text = dialogues(CHINESE if language == "Zh" else PERSONA).replace("persona: ", "persona:")
        write(root / "XPersona", [f"{language}_{split}.txt" for split in SPLITS], text)
    mark_done(str(root / "XPersona"))


def blended_skill_talk(root) -> None:
    said = [text for turn in TURNS for text in turn]
    suggestion = {task: "ok" for task in ("convai2", "empathetic_dialogues", "wizard_of_wikipedia")}
    episode = {
        "personas": [list(PARTNERS), list(PERSONA)],
        "context_dataset": "convai2",
        "additional_context": "",
        "free_turker_utterance": "hi !",
        "guided_turker_utterance": "hello , you .",
        "dialog": [[number % 2, text] for number, text in enumerate(said)],
        "suggestions": [suggestion] * len(said),
        "chosen_suggestions": [""] * len(said),
        "label_candidates": [["yes , a cat .", "no ."]] * (len(said) // 2),
    }
    count = len(TURNS)
    lines = [_get_line(episode=episode, num_entries=count, entry_idx=i) for i in range(count)]
    text = "".join(f"{line} \n" for line in lines) * 2
    write(root / "blended_skill_talk", [f"{split}.txt" for split in SPLITS], text)
    mark_done(str(root / "blended_skill_talk"), "v1.5")


def msc(root) -> None:
    said = [{"id": f"bot_{i % 2}", "text": text} for i, text in enumerate(sum(TURNS[1:] * 2, ()))]
    before = {"dialog": said, "time_num": 2, "time_unit": "hours", "time_back": "2 hours ago"}
    raw = {
        "personas": [list(PARTNERS), list(PERSONA)],
        "init_personas": [list(PARTNERS), list(PERSONA)],
        "dialog": said,
        "previous_dialogs": [{**before, "personas": [list(PARTNERS), list(PERSONA)]}],
        "metadata": {"initial_data_id": "train:1", "session_id": 1},
    }
    for session in (2, 3, 4):
        folder = root / "msc" / "msc" / "msc_dialogue" / f"session_{session}"
        write(folder, [f"{split}.txt" for split in SPLITS], (json.dumps(raw) + "\n") * 2)
    mark_done(str(root / "msc"), "v0.1")


@pytest.fixture(scope="module")
def datapath(tmp_path_factory):
    """ParlAI's folder of data with all five tasks in it."""
    root = tmp_path_factory.mktemp("data")
    for make in (personachat, xpersona, blended_skill_talk, msc):
        make(root)
    return root


# task: the persona of the one who answers, in the order of the episodes
TASKS = {
    "convai2": PERSONA,
    "convai2:both": PERSONA,
    "personachat:self_original": PERSONA,
    "personachat:both_original": PERSONA,
    **{f"xpersona:{language}": CHINESE if language == "Zh" else PERSONA for language in LANGUAGES},
    "blended_skill_talk": PERSONA,
    "msc": None,
    "msc:SessionBaseMsc:session_id=3": None,
}


def train(datapath, tmp_path, task, name="hcm", **settings) -> tuple[dict, dict]:
    """Two training steps and an evaluation with replies, as `parlai train_model` does it."""
    options = systems.SYSTEMS[name].options(
        task=task,
        datapath=str(datapath),
        model_file=str(tmp_path / "model"),
        batchsize=2,
        max_train_steps=2,
        validation_max_exs=2,
        validation_generate=True,
        label_truncate=8,
        seed=1,
        **{**tiny.QUIET, **settings},
    )
    return TrainModel.main(**{name: value for name, value in options.items() if value is not None})


def agent_of(tmp_path):
    """The agent that `train` saved."""
    from parlai.core.agents import create_agent_from_model_file

    return create_agent_from_model_file(str(tmp_path / "model"), {"loglevel": "error"})


# All tasks with one agent, and with each other one a task that gives the persona as text and one
# that gives it as a field.
CASES = [("hcm", task) for task in TASKS]
CASES += [(name, task) for name in systems.BASELINES for task in ("convai2:both", "msc")]


@pytest.mark.parametrize("name, task", CASES)
def test_train_and_answer(datapath, tmp_path, name, task):
    valid, test = train(datapath, tmp_path, task, name)
    for report in (valid, test):
        assert 1 < report["ppl"].value() < 1e5
        assert report["exs"].value() > 0
    agent = agent_of(tmp_path)
    (teacher,) = create_task_agent_from_taskname(
        {**agent.opt, "task": task, "datatype": "valid", "datapath": str(datapath)}
    )
    seen, persona = set(), ()
    for _ in range(30):
        message = teacher.act()
        if message.is_padding():
            break
        given = persona_of(message)
        agent.observe(message)
        if given:
            persona = given
        assert agent.history.persona == persona, "it stays for the whole episode"
        assert agent.act()["text"] is not None
        seen.add(persona)
        if message["episode_done"]:
            assert persona, "each episode has one"
            agent.reset()
            persona = ()
    if TASKS[task] is not None:
        assert seen == {TASKS[task]}
    else:
        # msc asks both speakers in turn and writes sentences out ("I sew.")
        plain = {tuple(line.lower().replace(" ", "") for line in lines) for lines in seen}
        squeezed = [tuple(line.replace(" ", "") for line in lines) for lines in (PERSONA, PARTNERS)]
        assert plain == set(squeezed)
