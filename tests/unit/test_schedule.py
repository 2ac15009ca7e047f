"""The paper's learning-rate schedule, alone and through real trainings."""

from __future__ import annotations

import pytest
import tiny
import torch
import transformers
from parlai.core.agents import create_agent
from parlai.scripts.train_model import TrainLoop

from persona_agents.agents import schedule as schedule_module
from persona_agents.agents.schedule import LinearSchedule, count_examples, linear_factor

PEAKS = (5e-5, 7e-6)


def two_groups():
    """An AdamW over two parameters, each a group with its own peak."""
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in PEAKS]
    return torch.optim.AdamW([{"params": [p], "lr": lr} for p, lr in zip(parameters, PEAKS)])


def schedule(optimizer=None, **opt):
    """A schedule whose training has begun."""
    made = LinearSchedule(optimizer or two_groups(), {"warmup_ratio": 0.1, **opt})
    made.begin()
    return made


def rates(made):
    return [group["lr"] for group in made.optimizer.param_groups]


class TestByUpdates:
    @pytest.mark.parametrize(("steps", "ratio"), [(100, 0.1), (50, 0.0), (40, 0.5)])
    def test_equals_the_librarys(self, steps, ratio):
        ours = schedule(max_train_steps=steps, warmup_ratio=ratio)
        optimizer = two_groups()
        theirs = transformers.get_linear_schedule_with_warmup(optimizer, int(steps * ratio), steps)
        for step in range(steps + 1):
            if step:
                optimizer.step()
                theirs.step()
                ours.step(step)
            expected = [group["lr"] for group in optimizer.param_groups]
            assert rates(ours) == pytest.approx(expected, abs=1e-18), step
            assert ours.get_last_lr() == rates(ours)[0]

    def test_peak_is_after_a_tenth(self):
        ours = schedule(max_train_steps=200)
        ours.step(20)
        assert rates(ours) == pytest.approx(PEAKS)
        ours.step(19)
        assert max(rates(ours)) < PEAKS[0]

    def test_stays_at_zero_and_does_not_end_the_training(self):
        ours = schedule(max_train_steps=10)
        for step in (10, 11, 1000):
            ours.step(step)
            ours.train_step(step)
            ours.valid_step({})
            assert rates(ours) == [0.0, 0.0]

    @pytest.mark.parametrize(("steps", "share"), [(10, 0.5), (1000, 0.3)])
    def test_the_nearer_of_two_limits_decides(self, monkeypatch, steps, share):
        monkeypatch.setattr(schedule_module, "count_examples", lambda opt: 100)
        made = schedule(max_train_steps=steps, num_epochs=2)  # 200 examples
        made.see(60)
        made.step(5)
        assert made.progress() == pytest.approx(share)

    @pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
    def test_factor_at_the_edges(self, ratio):
        assert linear_factor(0.0, ratio) == (1.0 if ratio == 0.0 else 0.0)
        assert linear_factor(ratio, ratio) == pytest.approx(1.0)
        assert linear_factor(1.0, ratio) == (1.0 if ratio == 1.0 else 0.0)
        assert linear_factor(7.0, ratio) == (1.0 if ratio == 1.0 else 0.0)


class TestByExamples:
    @pytest.fixture(autouse=True)
    def _hundred_examples(self, monkeypatch):
        monkeypatch.setattr(schedule_module, "count_examples", lambda opt: 100)

    def test_progress(self):
        ours = schedule(num_epochs=2)  # 200 examples
        assert rates(ours) == [0.0, 0.0]
        for examples, factor in ((10, 0.5), (10, 1.0), (90, 0.5), (90, 0.0), (50, 0.0)):
            ours.see(examples)
            ours.step(1)
            assert rates(ours) == pytest.approx([peak * factor for peak in PEAKS])

    def test_workers_share_the_examples(self, monkeypatch):
        monkeypatch.setattr(schedule_module, "num_workers", lambda: 4)
        ours = schedule(num_epochs=2)
        ours.see(5)  # each of four workers
        ours.step(1)
        assert rates(ours) == pytest.approx(PEAKS)

    def test_fractions_of_an_epoch(self):
        assert schedule(num_epochs=0.5).total_examples == 50

    def test_resumed_where_it_stopped(self):
        before = schedule(num_epochs=2)
        before.see(110)
        before.step(7)
        states = {"lr_scheduler": before.get_state_dict(), "number_training_updates": 7}
        after = LinearSchedule(two_groups(), {"warmup_ratio": 0.1, "num_epochs": 2})
        after.load_state(states)
        after.see(0)
        assert rates(after) == rates(before) == pytest.approx([peak / 2 for peak in PEAKS])
        assert after.get_initial_number_training_updates() == 7

    def test_resumed_with_more_epochs(self):
        before = schedule(num_epochs=1)
        before.see(100)
        after = LinearSchedule(two_groups(), {"warmup_ratio": 0.1, "num_epochs": 4})
        states = {"lr_scheduler": before.get_state_dict(), "number_training_updates": 7}
        after.load_state(states)
        after.see(0)
        assert rates(after) == pytest.approx([peak * 0.75 / 0.9 for peak in PEAKS])


class TestUnknownLength:
    @pytest.mark.parametrize(
        "opt", [{}, {"num_epochs": -1, "max_train_steps": -1}, {"num_epochs": 3}]
    )
    def test_keeps_the_peak_and_says_so(self, monkeypatch, caplog, opt):
        monkeypatch.setattr(schedule_module, "count_examples", lambda opt: None)
        warned = []
        monkeypatch.setattr(schedule_module.logging, "warning", warned.append)
        ours = schedule(**opt)
        for step in (0, 1, 10_000):
            ours.see(16)
            ours.step(step)
            assert rates(ours) == list(PEAKS)
        assert len(warned) == 1 and "--num-epochs" in warned[0]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A task of 40 samples."""
    return tiny.write_corpus(tmp_path_factory.mktemp("corpus"), tiny.samples("en")[:40])


class TestCounting:
    def test_one_task_and_several(self, corpus):
        opt = tiny.options(**corpus, model_file="unused")
        assert count_examples(opt) == 40
        opt["task"] = "personachat_single_turn,personachat_single_turn:mini"
        assert count_examples(opt) == 40 + len(tiny.samples("en"))

    def test_options_are_left_alone(self, corpus):
        opt = tiny.options(**corpus, model_file="unused")
        before = dict(opt)
        count_examples(opt)
        assert dict(opt) == before

    def test_endless_task_cannot_be_counted(self, monkeypatch):
        class Endless:
            def num_examples(self):
                return None

            def shutdown(self):
                pass

        monkeypatch.setattr(
            schedule_module, "create_task_agent_from_taskname", lambda opt: [Endless()]
        )
        assert count_examples({}) is None


def test_a_model_that_only_answers_needs_no_training_data(monkeypatch):
    monkeypatch.setattr(schedule_module, "count_examples", lambda opt: pytest.fail("counted"))
    made = LinearSchedule(two_groups(), {"warmup_ratio": 0.1, "num_epochs": 3})
    made.load_state({"lr_scheduler": {"examples": 9}, "number_training_updates": 3})
    assert made.get_state_dict() == {"examples": 9}


class TestTraining:
    @pytest.fixture
    def trained(self, corpus, tmp_path, monkeypatch):
        """Train a tiny agent; returns it with [(examples so far, rate after it)] of each update."""

        def train(**settings):
            given = {"num_epochs": 2, "batchsize": 8, "learningrate": 1e-3, "dropout": 0.0}
            opt = tiny.options(**corpus, model_file=str(tmp_path / "m"), **{**given, **settings})
            courses = {}  # ParlAI loads the model once more at the end, with another schedule
            step = LinearSchedule.step

            def watched(self, updates):
                step(self, updates)
                courses.setdefault(self, []).append((self.examples, rates(self)[0]))

            monkeypatch.setattr(LinearSchedule, "step", watched)
            monkeypatch.setattr(TrainLoop, "validate", lambda loop: False)
            loop = TrainLoop(opt)
            for _ in loop.train_steps():
                pass
            return loop.agent, next(iter(courses.values()))

        return train

    @staticmethod
    def check(course, total, warmup=0.1):
        for examples, rate in course:
            assert rate == pytest.approx(1e-3 * linear_factor(examples / total, warmup), abs=1e-12)

    def test_plain_batches(self, trained):
        agent, course = trained()
        assert [examples for examples, _ in course] == list(range(0, 81, 8))
        self.check(course, 80)
        assert course[0][1] == 0.0 and course[1][1] == pytest.approx(1e-3) and course[-1][1] == 0.0
        assert agent._number_training_updates == 10

    def test_dynamic_batches_end_at_zero(self, trained):
        _, course = trained(dynamic_batching="full", text_truncate=64, label_truncate=64)
        self.check(course, 80)
        steps = [after - before for (before, _), (after, _) in zip(course, course[1:])]
        assert set(steps) != {8}, "batches are as large as they can be, not --batchsize"
        assert course[-1][0] == pytest.approx(80, abs=8) and course[-1][1] <= 1.2e-4
        assert max(rate for _, rate in course) > 7e-4

    def test_gradient_accumulation(self, trained):
        agent, course = trained(update_freq=5, warmup_ratio=0.5)
        assert agent._number_training_updates == 2
        self.check(course, 80, warmup=0.5)
        assert course[-1][1] == 0.0

    def test_resumed_training_has_the_saved_rates(self, trained, corpus, tmp_path):
        agent, _ = trained(num_epochs=3, max_train_steps=4)
        agent.save(str(tmp_path / "saved"))
        opt = tiny.options(
            **corpus, learningrate=1e-3, max_train_steps=8, model_file=str(tmp_path / "saved")
        )
        resumed = create_agent(opt)
        assert resumed._number_training_updates == 4
        resumed.scheduler.begin()
        assert rates(resumed.scheduler) == pytest.approx([1e-3 * 0.5 / 0.9])
        tiny.train_steps(resumed, [tiny.samples("en")[:8]])
        assert resumed._number_training_updates == 5
        assert rates(resumed.scheduler) == pytest.approx([1e-3 * 0.375 / 0.9])
