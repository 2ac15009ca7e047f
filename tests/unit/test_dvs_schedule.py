"""b_k, the learning rate and the end of a training, under scripted numbers."""

from __future__ import annotations

import pytest
import torch

from persona_agents.agents.dvs_schedule import Baseline, DVSSchedule
from tests.gloo import run_workers


class TestBaseline:
    def test_update(self):
        baseline = Baseline()
        first = torch.tensor([[-4.0, -2.0], [-3.0, -7.0]], dtype=torch.double)
        assert baseline(first) == -4.0  # b_0 is the first batch's mean
        assert baseline.value == -4.0
        second = torch.tensor([[-1.0, -1.0]], dtype=torch.double)
        assert baseline(second) == -4.0  # b_1 serves batch 1, which changes b_2
        assert baseline.value == pytest.approx(0.9 * -4.0 + 0.1 * -1.0, abs=1e-15)
        assert baseline(second) == pytest.approx(-3.7, abs=1e-15)
        assert baseline.value == pytest.approx(0.9 * -3.7 - 0.1, abs=1e-15)

    def test_batches_of_any_size_weigh_the_same(self):
        """The mean over the batch, not its sum: b stays where the rewards are."""
        baseline = Baseline()
        for size in (64, 3, 64, 10) * 20:
            baseline(torch.full((size, 5), -2.5))
        assert baseline.value == pytest.approx(-2.5)

    def test_workers_share_it(self):
        results = run_workers(_two_updates)
        assert results[0] == results[1]
        assert results[0] == pytest.approx(0.9 * -3.0 + 0.1 * -5.0)


def _two_updates(rank):
    """Worker 0 has one reply of -1, worker 1 two of -4; then all have -5."""
    baseline = Baseline()
    baseline(torch.tensor([[-1.0], [-4.0], [-4.0]][rank : 1 + 2 * rank]))
    baseline(torch.full((2, 3), -5.0))
    return torch.tensor(baseline.value).item()


def new_schedule(mode="joint", pretrain=0.0, **options):
    optimizer = torch.optim.Adadelta([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    return DVSSchedule(optimizer, {"dvs": mode, "dvs_pretrain_epochs": pretrain, **OPT, **options})


OPT = {"warmup_ratio": 0.1}


def run(schedule, perplexities):
    """(rate after each validation, number of the validation after which training ends)."""
    rates, end = [], None
    for number, perplexity in enumerate(perplexities, 1):
        schedule.step(number)  # an update in between
        schedule.valid_step({"ppl": perplexity})
        rates.append(schedule.get_last_lr())
        if schedule.ended and end is None:
            end = number
    return rates, end


class TestRateAndEnd:
    @pytest.mark.parametrize(
        "perplexities, rates, end",
        [
            ([9, 8, 7, 6], [1, 1, 1, 1], None),
            ([9, 8, 8.5, 7, 7.5, 7.4], [1, 1, 0.5, 0.5, 0.5, 0.5], None),  # once
            ([9, 8, 8.5, 8.6, 1], [1, 1, 0.5, 0.5, 0.5], 4),
            ([9, 8, 8.5, 8.4, 8.45, 8.46], [1, 1, 0.5, 0.5, 0.5, 0.5], 6),
            ([9, 9, 9], [1, 1, 1], None),  # equal is no rise
            ([9, float("nan"), float("nan")], [1, 0.5, 0.5], 3),
        ],
    )
    @pytest.mark.parametrize("mode", ["joint", "separate", "none"])
    def test_scripted(self, perplexities, rates, end, mode):
        assert run(new_schedule(mode), perplexities) == (rates, end)

    def test_half_of_another_rate(self):
        schedule = new_schedule()
        schedule.peaks = [0.4]
        assert run(schedule, [5, 6])[0] == [0.4, 0.2]

    def test_phase_one_is_not_judged_but_remembered(self, monkeypatch):
        monkeypatch.setattr("persona_agents.agents.dvs_schedule.count_examples", lambda opt: 100)
        schedule = new_schedule(pretrain=2)
        phases = []
        for perplexity in (9, 10, 11, 10.5, 12, 13):
            for _ in range(4):
                schedule.see(25)
                phases.append(schedule.phase)
            schedule.valid_step({"ppl": perplexity})
        assert phases == [1] * 8 + [2] * 16
        # 11 after 10 is the first rise that counts, 12 and 13 after 10.5 are the two that end it
        assert schedule.dropped and schedule.ended and schedule.rises == 2

    def test_a_part_of_an_epoch(self, monkeypatch):
        monkeypatch.setattr("persona_agents.agents.dvs_schedule.count_examples", lambda opt: 10)
        schedule = new_schedule(pretrain=0.4)
        phases = []
        for _ in range(6):
            schedule.see(2)
            phases.append(schedule.phase)
        assert phases == [1, 1, 2, 2, 2, 2]

    def test_without_a_count_of_examples_validations_count(self, monkeypatch):
        monkeypatch.setattr("persona_agents.agents.dvs_schedule.count_examples", lambda opt: None)
        schedule = new_schedule(pretrain=1)
        schedule.see(2)
        assert schedule.phase == 1
        schedule.valid_step({"ppl": 3.0})
        schedule.see(2)
        assert schedule.phase == 2

    def test_a_restored_schedule_goes_on(self):
        perplexities = [9, 8, 8.5, 8.4, 8.6, 8.7]
        for cut in range(1, 6):
            first = new_schedule()
            run(first, perplexities[:cut])
            second = new_schedule()
            second.load_state(
                {"lr_scheduler": first.get_state_dict(), "number_training_updates": cut}
            )
            assert second.get_last_lr() == first.get_last_lr()
            assert second.ended is first.ended is False
            run(second, perplexities[cut:])
            assert second.ended and second.get_last_lr() == 0.5
