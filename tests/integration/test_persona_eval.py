"""`-t persona_eval:TASK`: this package's metrics on ParlAI's own persona tasks."""

from __future__ import annotations

import json

import pytest
from parlai.core.metrics import dict_report
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.core.worlds import create_task
from parlai.scripts.eval_model import EvalModel, eval_model

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, Settings, score
from persona_agents.metrics.scorer import OUTPUTS
from persona_agents.persona import parse_turn, persona_of
from persona_agents.scripts.persona_score_files import read_replies
from persona_agents.text import task_language
from tests.integration.test_parlai_tasks import datapath  # noqa: F401 (a fixture)

NAMES = "corpus_bleu,char_f1,p_cover,verbatim,length"
TASKS = [
    "convai2",
    "convai2:both",
    "personachat:self_original",
    "xpersona:Zh",
    "blended_skill_talk",
    "msc",
    "msc:SessionBaseMsc:session_id=3",
]


def options(task, folder, names=f"default,{NAMES}", **settings):
    return EvalModel.setup_args().parse_kwargs(
        task=task,
        model="repeat_query",
        datapath=str(folder),
        metrics=names,
        loglevel="error",
        **settings,
    )


@pytest.mark.parametrize("task", TASKS)
def test_reports(datapath, tmp_path, task):  # noqa: F811
    log = tmp_path / "log.jsonl"
    opt = options(f"persona_eval:{task}", datapath, world_logs=str(log), batchsize=2)
    found = dict_report(eval_model(opt))
    plain = dict_report(eval_model(options(task, datapath, "default")))
    for name in ("exs", "accuracy", "f1", "bleu-4"):
        assert found[name] == pytest.approx(plain[name]), "what the task itself reports"
    replies = read_replies(str(log))
    assert len(replies) == found["exs"]
    language = "zh" if task == "xpersona:Zh" else "en"
    wanted = score(replies, NAMES, Settings(language))
    for name in NAMES.split(","):
        assert found[f"{name}_signature"] == wanted.signatures[name]
        for output in OUTPUTS[name]:
            assert found[output] == pytest.approx(wanted.values[output], abs=1e-9), output
    assert found["without_persona"] == 0, "the persona of a dialogue's first message holds on"
    with log.open(encoding="utf-8") as file:
        assert "p_cover" in json.loads(file.readline())["dialog"][0][1]["metrics"]


def test_persona_is_that_of_the_dialogue(datapath):  # noqa: F811
    """Counted by hand, over a task whose later messages have no persona."""
    (teacher,) = create_task_agent_from_taskname(options("convai2:both", datapath))
    replies, persona = [], ()
    for _ in range(teacher.num_examples()):
        message = teacher.act()
        persona = persona_of(message) or persona
        text = message["text"].split("\n")[-1]
        query = parse_turn(message["text"]).query
        replies.append(Reply(text, message["eval_labels"], persona, query))
    assert len({reply.persona for reply in replies}) == 1
    found = options("persona_eval:convai2:both", datapath, NAMES)
    report = dict_report(eval_model(found))
    wanted = score(replies, NAMES).values
    for output in ("p_cover", "verbatim_persona", "corpus_bleu_1"):
        assert report[output] == pytest.approx(wanted[output], abs=1e-9)


def test_several_at_once(datapath):  # noqa: F811
    """ParlAI's wrapper option allows one task; here each names its own."""
    tasks = ["persona_eval:convai2", "persona_eval:xpersona:Zh", "personachat_single_turn:mini"]
    found = dict_report(eval_model(options(",".join(tasks), datapath, batchsize=4)))
    for task in tasks:
        alone = dict_report(eval_model(options(task, datapath)))
        for name in ("exs", "p_cover", "char_f1", "corpus_bleu_2"):
            assert found[f"{task}/{name}"] == pytest.approx(alone[name], abs=1e-9)


def test_around_a_task_of_ours(datapath):  # noqa: F811
    """It reports the metrics itself: nothing is counted twice."""
    task = "personachat_single_turn:mini"
    one, other = (
        dict_report(eval_model(options(name, datapath, num_examples=20)))
        for name in (task, f"persona_eval:{task}")
    )
    assert one == other and one["exs"] == 20


def test_options_of_both_are_known(datapath):  # noqa: F811
    parser = ParlaiParser()
    task = "persona_eval:personachat_single_turn"
    opt = parser.parse_args(
        ["-t", task, "--personachat-path", "x", "--bert-score-layer", "3", "--p-em-model", "y"]
    )
    assert (opt["personachat_path"], opt["bert_score_layer"]) == ("x", 3)


def test_position_is_that_of_the_task_within(datapath):  # noqa: F811
    (teacher,) = create_task_agent_from_taskname(options("persona_eval:cpc:mini", datapath))
    teacher.act()
    assert teacher.index is teacher.inner.index and teacher.index.value == 0
    (teacher,) = create_task_agent_from_taskname(options("persona_eval:msc", datapath))
    assert not hasattr(teacher, "index"), "several tasks have several"


def test_language():
    assert task_language("persona_eval:cpc:mini") == "zh"
    assert task_language("persona_eval:xpersona:Zh") == "zh"
    assert task_language("persona_eval:convai2") == "en"


def test_hidden_and_missing_labels(datapath):  # noqa: F811
    opt = options("persona_eval:convai2", datapath, hide_labels=True)
    found = dict_report(eval_model(opt))
    assert found["without_reference"] == 0 and found["char_f1"] > 0
    opt = options("persona_eval:convai2", datapath)
    world = create_task(opt, _agent(opt))
    inner = world.get_task_agent().inner
    get = inner.get_orig_action

    def without_label():
        action = get()
        labels = action.pop("labels", None)
        if labels and inner.index.value % 2:
            action["labels"] = []
        return action

    inner.get_orig_action = without_label
    while not world.epoch_done():
        world.parley()
    found = dict_report(world.report())
    assert found["exs"] == found["without_reference"] == world.num_examples()
    assert found["length"] > 0 and "corpus_bleu_1" not in found


def _agent(opt):
    from parlai.core.agents import create_agent

    return create_agent(opt)


def test_no_task_is_named():
    with pytest.raises(PersonaAgentsError, match="persona_eval:convai2"):
        create_task_agent_from_taskname({"task": "persona_eval", "datatype": "valid"})


@pytest.mark.parametrize(
    "task", ["persona_eval:persona_eval:cpc:mini", "persona_eval:persona_eval"]
)
def test_stands_there_twice(task):
    with pytest.raises(PersonaAgentsError, match=f"-t {task}: persona_eval stands there twice"):
        ParlaiParser().parse_args(["-t", task])


def test_wrong_metric(datapath):  # noqa: F811
    with pytest.raises(PersonaAgentsError, match="p_covr.*p_cover"):
        create_task_agent_from_taskname(options("persona_eval:convai2", datapath, "p_covr"))
