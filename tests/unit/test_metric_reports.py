"""The metrics in ParlAI: the same numbers however the samples are batched, split and reported."""

from __future__ import annotations

import copy
import json
import pickle
import zlib

import pytest
from parlai.core.agents import Agent
from parlai.core.message import Message
from parlai.core.metrics import aggregate_named_reports, dict_report
from parlai.core.worlds import create_task
from parlai.scripts import eval_model
from persona_agents.tasks.base import Sample, SingleTurnTeacher
from persona_agents.tasks.cpc import build as cpc
from persona_agents.tasks.personachat_single_turn import build as personachat

from persona_agents.errors import PersonaAgentsError
from persona_agents.metrics import Reply, Settings, encoder, reports, score
from persona_agents.metrics.bleu import CorpusBleu
from persona_agents.metrics.scorer import OUTPUTS, Scorer, choose
from persona_agents.persona import parse_turn
from tests.gloo import run_workers

MINI = ("cpc:mini", "personachat_single_turn:mini")
NAMES = "persona,corpus_distinct,verbatim,length"
VALUES = [output for name in choose(NAMES) for output in OUTPUTS[name]]
COUNT = 70  # samples of each task


@pytest.fixture(scope="module", autouse=True)
def fewer_samples():
    """The bundled corpora, cut."""
    with pytest.MonkeyPatch.context() as patch:
        for build in (cpc, personachat):
            load = build.load_mini
            patch.setattr(build, "load_mini", lambda fold, load=load: load(fold)[:COUNT])
        yield


class Parrot(Agent):
    """Says nothing, a persona sentence, the query, or the query's beginning, by chance."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "Parrot"

    def act(self):
        turn = parse_turn(self.observation.get("text") or "")
        said = ("", turn.persona[:1], turn.query, turn.query[:7])
        text = said[zlib.crc32(turn.query.encode()) % 4]
        return Message(text="".join(text), id=self.id, episode_done=False)


@pytest.fixture(scope="module")
def options(minilm):
    def make(task: str, names: str = NAMES, **settings):
        return eval_model.EvalModel.setup_args().parse_kwargs(
            task=task,
            model="repeat_query",
            metrics=names,
            bert_score_model=minilm,
            bert_score_layer=5,
            bert_score_rescale=False,
            p_em_model=minilm,
            datatype="valid",
            loglevel="error",
            **settings,
        )

    return make


def parley(world, count: int | None = None) -> None:
    while not world.epoch_done() and count != 0:
        world.parley()
        count = count and count - 1


def report_of(opt, agent=None) -> dict:
    world = create_task(opt, agent or Parrot(opt))
    parley(world)
    return dict_report(world.report())


@pytest.fixture(scope="module")
def alone(options):
    """Each task's report at batch size 1."""
    return {task: report_of(options(task, batchsize=1)) for task in MINI}


def same(found: dict, wanted: dict, prefix: str = "") -> None:
    for name in VALUES:
        assert found[prefix + name] == pytest.approx(wanted[name], abs=1e-6), name
    for name in choose(NAMES):
        key = f"{name}_signature"
        assert found[prefix + key] == wanted[key]
    for name in ("exs", "empty_replies", "without_persona", "without_reference"):
        assert found[prefix + name] == wanted[name]


class TestSameNumbers:
    def test_without_parlai(self, alone, options, minilm):
        """What persona_agents.metrics.score says of the same replies."""
        for task, language in zip(MINI, ("zh", "en")):
            world = create_task(options(task), Parrot({}))
            teacher = world.get_task_agent()
            replies = []
            for sample in teacher.samples:
                agent = Parrot({})
                agent.observe({"text": teacher.get(len(replies))["text"]})
                text = agent.act()["text"]
                replies.append(Reply(text, [sample.response], sample.persona, sample.query))
            settings = Settings(
                language,
                bert_score_model=minilm,
                bert_score_layer=5,
                bert_score_rescale=False,
                p_em_model=minilm,
            )
            found = score(replies, NAMES, settings)
            for name in VALUES:
                assert found.values[name] == pytest.approx(alone[task][name], abs=1e-6)
            assert found.counts["empty_replies"] == alone[task]["empty_replies"] > 5
            assert found.counts["replies"] == alone[task]["exs"] > 60

    @pytest.mark.parametrize("task", MINI)
    def test_batches(self, alone, options, task):
        same(report_of(options(task, batchsize=32)), alone[task])

    def test_dynamic_batches(self, options, alone):
        opt = options(MINI[1], batchsize=8)
        opt.update(dynamic_batching="batchsort", truncate=64)

        class Batched(Parrot):
            def batch_act(self, observations):
                answers = []
                for observation in observations:
                    self.observation = observation
                    answers.append(self.act())
                return answers

            def share(self):
                return {"class": type(self), "opt": self.opt}

            def self_observe(self, observation):
                pass

            def observe(self, observation):
                observation = Message(observation)
                if not observation.is_padding():
                    observation["text_vec"] = list(observation["text"])
                self.observation = observation
                return observation

        same(report_of(opt, Batched(opt)), alone[MINI[1]])

    @pytest.mark.parametrize("batchsize", [1, 8])
    def test_two_tasks_at_once(self, alone, options, batchsize):
        found = report_of(options(",".join(MINI), batchsize=batchsize))
        for task in MINI:
            same(found, alone[task], f"{task}/")
        total = alone[MINI[0]]["exs"] + alone[MINI[1]]["exs"]
        assert found["exs"] == total
        # all samples together, not the mean of two tasks
        pooled = sum(alone[task]["length"] * alone[task]["exs"] for task in MINI) / total
        assert found["length"] == pytest.approx(pooled, abs=1e-9)
        assert " + " in found["p_cover_signature"], "jieba's words and basic ones"

    def test_eval_model_with_two_tasks(self, alone, options, tmp_path):
        path = tmp_path / "report.json"
        opt = options(",".join(MINI), batchsize=16, report_filename=str(path))
        eval_model.eval_model(opt)
        written = json.loads(path.read_text(encoding="utf-8"))["report"]
        plain = dict_report(report_of(options(MINI[0], batchsize=4), QueryAgent(opt)))
        same(written, plain, f"{MINI[0]}/")

    def test_two_workers(self, alone, options):
        for task in MINI:
            opt = options(task, batchsize=4)
            for found in run_workers(_evaluate, opt):
                same(found, alone[task])


class QueryAgent(Agent):
    """What `-m repeat_query` answers."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.id = "RepeatQueryAgent"

    def act(self):
        return Message(text=self.observation.get("text", "").split("\n")[-1], id=self.id)


def _evaluate(rank: int, opt) -> dict:
    found = eval_model._eval_single_world(opt, Parrot(opt), opt["task"])
    return dict_report(found)


class TestCost:
    """Values are asked for often; texts are encoded once."""

    @pytest.fixture
    def runs(self, monkeypatch):
        made, run = [], encoder.Encoder._run

        def watch(self, ids):
            made.append(len(ids))
            return run(self, ids)

        monkeypatch.setattr(encoder.Encoder, "_run", watch)
        monkeypatch.setattr(encoder, "_encoders", {})
        reports.scoring.scorer_for.cache_clear()
        yield made
        reports.scoring.scorer_for.cache_clear()

    def test_reports_cost_what_is_new(self, options, runs):
        opt = options(MINI[1], batchsize=4)
        world = create_task(opt, Parrot(opt))
        parley(world, 6)
        assert runs == [], "nothing before a value is asked for"
        first = dict_report(world.report())
        encoded = sum(runs)
        assert encoded > 20
        assert dict_report(world.report()) == first
        assert sum(runs) == encoded, "nothing is new"
        seen = set(world.report()["p_em"].log.replies)
        parley(world, 6)
        second = dict_report(world.report())
        replies = set(world.report()["p_em"].log.replies) - seen
        assert len(replies) == 24
        new = {t for reply in replies for t in (reply.text, *reply.references, *reply.persona)}
        old = {t for reply in seen for t in (reply.text, *reply.references, *reply.persona)}
        assert sum(runs) - encoded == len(new - old), "each new text once"
        assert second != first

    def test_world_logs_are_scored_in_batches(self, options, runs, tmp_path):
        path = tmp_path / "log.jsonl"
        opt = options(MINI[1], batchsize=4, world_logs=str(path), num_examples=60)
        report = dict_report(eval_model._eval_single_world(opt, Parrot(opt), opt["task"]))
        assert len(runs) < 12, "not one run a sample"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        logged = [turn[1]["metrics"] for line in lines for turn in line["dialog"]]
        assert len(logged) == report["exs"] == 60
        mean = sum(metrics["p_em"] for metrics in logged) / 60
        assert mean == pytest.approx(report["p_em"], abs=1e-9)
        assert logged[0]["bert_score_signature"] == report["bert_score_signature"]

    def test_what_was_reset_is_not_scored(self, options, runs):
        opt = options(MINI[1], batchsize=4)
        world = create_task(opt, Parrot(opt))
        parley(world, 3)
        world.reset()
        teacher = world.get_task_agent()
        teacher.index.value = 40  # other samples than those before
        parley(world, 1)
        found = world.report()
        dict_report(found)
        replies = found["p_em"].log.replies
        assert len(replies) == 4
        assert sum(runs) == len({t for r in replies for t in (r.text, *r.references, *r.persona)})


class TestMetric:
    @pytest.fixture
    def make(self):
        scorer = Scorer(("corpus_bleu", "corpus_distinct"), Settings())

        def one(text, reference="a b c d", output="corpus_bleu_1"):
            reply = Reply(text, [reference])
            scorer.hand_in(reply)
            kind = next(m for m in scorer.metrics if output in m.outputs)
            return reports.ReplyMetric(type(kind), output, scorer, reports._Log([reply]), 1)

        return one

    def test_sums_are_new(self, make):
        """ParlAI keeps the first object as the latest sample's metric and as the sum's beginning."""
        first = make("a b c d")
        both = first + make("x y z w")
        other = first + make("a b x y")
        assert [m.value() for m in (first, both, other)] == pytest.approx([100, 50, 75])
        three = both + make("a x y z")
        assert three.value() == pytest.approx(100 * 5 / 12)
        assert [m.value() for m in (first, both, other)] == pytest.approx([100, 50, 75])
        assert (None + first) is first and (first + None) is first

    def test_in_any_order_of_asking(self, make):
        sums = [make("a b c d")]
        for text in ("x y z w", "a b x y", "a x y z"):
            sums.append(sums[-1] + make(text))
        assert sums[3].value() == pytest.approx(100 * 7 / 16)
        assert [s.value() for s in sums[:3]] == pytest.approx([100, 50, 50])

    @pytest.mark.parametrize("output", ["corpus_bleu_1", "corpus_distinct_1"])
    def test_pickled(self, make, output):
        texts = ["a b c d", "x y z w", "a b x y", "a x y z"]
        metrics = [make(text, output=output) for text in texts]
        whole = sum(metrics[1:], metrics[0])
        halves = [metrics[0] + metrics[1], metrics[2] + metrics[3]]
        halves = [pickle.loads(pickle.dumps(half)) for half in halves]
        assert (halves[0] + halves[1]).value() == pytest.approx(whole.value())
        assert (halves[1] + metrics[0] + metrics[1]).value() == pytest.approx(whole.value())
        assert (metrics[0] + metrics[1] + halves[1]).value() == pytest.approx(whole.value())
        assert copy.deepcopy(whole).value() == whole.value()
        assert float(whole) == whole.value() and f"{whole}"

    def test_signatures(self):
        one, other = reports.Signature("a"), reports.Signature("b")
        assert (one + one).value() == "a" == str(one)
        assert (one + other + one).value() == "a + b"
        assert pickle.loads(pickle.dumps(one + other)).value() == "a + b"
        named = aggregate_named_reports({"x": {"s": one}, "y": {"s": other}})
        assert dict_report(named) == {"x/s": "a", "y/s": "b", "s": "a + b"}

    def test_totals_are_small(self, make):
        whole = make("a b c d")
        for _ in range(200):
            whole = whole + make("x y z w")
        assert len(pickle.dumps(whole)) < 1000 and whole.kind is CorpusBleu


class Few(SingleTurnTeacher):
    """Three samples; the second has no label, the third an empty list of labels."""

    def load(self, opt, fold):
        return [Sample(("i ski .",), f"query {i}", "yes i ski") for i in range(3)]

    def get(self, episode_idx, entry_idx=0):
        message = super().get(episode_idx, entry_idx)
        if episode_idx:
            labels = message.pop("labels")
            if episode_idx == 2:
                message["labels"] = labels[:0]
        return message


class TestTeacher:
    def options(self, metrics="default,corpus_bleu,p_cover,length", **more):
        return {"task": "few", "datatype": "test", "metrics": metrics, **more}

    def ask(self, teacher, text: str | None) -> Message:
        message = teacher.act()
        answer = Message(id="m") if text is None else Message(text=text, id="m")
        teacher.observe(answer)
        return message, answer

    def test_without_label(self):
        """They are counted, and judged by what needs no label."""
        teacher = Few(self.options())
        self.ask(teacher, "yes i ski")
        message, answer = self.ask(teacher, "i")
        assert "labels" not in message and answer["metrics"]["p_cover"].value() == 0.5
        assert "corpus_bleu_1" not in answer["metrics"]
        message, _ = self.ask(teacher, "")
        assert "eval_labels" not in message
        found = dict_report(teacher.report())
        assert found["exs"] == 3 and found["without_reference"] == 2
        assert found["corpus_bleu_3"] == pytest.approx(100) and found["accuracy"] == 1
        assert found["p_cover"] == pytest.approx(0.5)
        assert found["length"] == pytest.approx(4 / 3)

    def test_padding_is_not_counted(self):
        teacher = Few(self.options())
        for text in ("a", "b", "c"):
            self.ask(teacher, text)
        assert teacher.epoch_done()
        self.ask(teacher, None)
        assert teacher.report()["exs"].value() == 3

    def test_no_reply_is_no_empty_reply(self):
        teacher = Few(self.options())
        self.ask(teacher, None)
        assert set(dict_report(teacher.report())) == {"exs"}

    def test_not_while_training(self):
        teacher = Few(self.options(datatype="train"))
        teacher.act()
        teacher.observe(Message(text="yes i ski", id="m"))
        assert "length" not in teacher.report() and teacher.recorder.scorer is not None

    def test_copies_share_the_scorer_and_not_the_persona(self):
        teacher = Few(self.options())
        clone = Few(teacher.opt, teacher.share())
        assert clone.recorder.scorer is teacher.recorder.scorer
        assert clone.recorder is not teacher.recorder

    def test_a_persona_holds_until_the_dialogue_ends(self):
        recorder = reports.Recorder(self.options("p_cover"))
        seen = []
        for text, done in (
            ("your persona: i ski\nhi", False),
            ("and ?", True),
            ("no persona", False),
            ("your persona: i sew\nhi", True),
        ):
            recorder.asked({"text": text, "episode_done": done})
            found = dict_report(recorder.answered((), {"text": "i ski"}))
            seen.append((found["without_persona"], found.get("p_cover")))
        assert seen == [(0, 1), (0, 1), (1, None), (0, 0.5)]

    def test_unknown_name(self):
        with pytest.raises(PersonaAgentsError, match="--metrics char_fl.*char_f1"):
            Few(self.options("default,char_fl"))
        assert Few(self.options("f1,ppl,hits@1,rouge,all")).recorder.scorer is None

    def test_validation_metric_is_a_choice(self):
        for name in ("corpus_bleu_4", "few/corpus_bleu_4"):
            teacher = Few(self.options("default", validation_metric=name))
            assert teacher.recorder.scorer.names == ("corpus_bleu",)
