"""The stats of a long training: it forgets old iterations, no sum, and notices when iterations become others."""

import math
import time

import pytest

from perseus_ds.coordination.phases import Phase
from perseus_ds.report.run_stats import RunStats


def test_a_training_of_weeks_neither_fills_the_memory_nor_gets_slower():
    stats = RunStats()
    phases = [Phase.WARMUP] * 3 + [Phase.BASELINE] * 8 + [Phase.PROFILING] * 30 + [Phase.ENFORCING] * 20_000
    for iteration, phase in enumerate(phases):
        stats.begin(iteration, phase, steady=True)
        share = math.nan if iteration % 2 else 0.98
        stats.measured(iteration, 1.0, switches=10.0, late_switches=1.0, share_at_clock=share)
        stats.energy(iteration, 1000.0 if phase is Phase.BASELINE else 880.0)
    begin = time.perf_counter()
    summary = stats.summary()
    assert time.perf_counter() - begin < 5.0
    assert len(stats.series()) < 5000
    assert summary["saving"] == 1.0 - 880.0 / 1000.0
    assert summary["profiling_iterations"] == 30
    assert summary["late_switches"] == 20_000
    assert summary["switches_per_iteration"] == 10.0
    assert summary["share_at_clock"] == 0.98
    assert stats.series()[-1]["iteration"] == len(phases) - 1


def test_saving_and_slowdown_are_those_of_iterations_as_large_as_they_are_now():
    stats = RunStats()

    def run(phase: Phase, count: int, time_s: float, energy_j: float) -> None:
        for iteration in range(stats.last_iteration + 1, stats.last_iteration + 1 + count):
            stats.begin(iteration, phase, steady=True)
            stats.measured(iteration, time_s, switches=0.0, late_switches=0.0)
            stats.energy(iteration, energy_j)

    run(Phase.BASELINE, 8, 1.0, 1000.0)
    run(Phase.ENFORCING, 100, 1.0, 850.0)
    stats.replanned(time_ratio=2.0, energy_ratio=2.0)  # twice as many micro-batches
    assert stats.summary()["saving"] is None
    run(Phase.ENFORCING, 10, 2.02, 1700.0)
    summary = stats.summary()
    assert summary["saving"] == pytest.approx(0.15)
    assert summary["slowdown"] == pytest.approx(0.01)


class Weeks:
    """A training whose baseline is refreshed now and then."""

    def __init__(self) -> None:
        self.stats = RunStats()
        self.records: list[dict] = []

    def run(self, phase: Phase, count: int, time_s: float, energy_j: float, steady: bool = True) -> "Weeks":
        for iteration in range(self.stats.last_iteration + 1, self.stats.last_iteration + 1 + count):
            self.stats.begin(iteration, phase, steady)
            self.stats.measured(iteration, time_s, switches=0.0, late_switches=0.0)
            self.stats.energy(iteration, energy_j)
            if record := self.stats.refreshed(iteration):
                self.records.append(record)
        return self

    def refreshes(self, count: int, energy_j: float, plan_j: float) -> "Weeks":
        for _ in range(count):
            self.run(Phase.ENFORCING, 1, 1.0, 999.0, steady=False).run(Phase.BASELINE, 1, 1.0, energy_j)
            self.run(Phase.ENFORCING, 20, 1.01, plan_j)
        return self

    def saving(self) -> float:
        return self.stats.summary()["saving"]


def test_from_the_third_refresh_on_the_saving_is_one_against_now():
    weeks = Weeks().run(Phase.BASELINE, 8, 1.0, 1000.0).run(Phase.ENFORCING, 20, 1.01, 900.0)
    assert weeks.records == [], "the first baseline has no plan to be compared with"
    weeks.refreshes(2, energy_j=1200.0, plan_j=900.0)
    assert weeks.saving() == pytest.approx(0.1)
    weeks.refreshes(1, energy_j=1200.0, plan_j=900.0)
    assert weeks.saving() == pytest.approx(0.25)
    assert weeks.records[-1] == {
        "iteration_time_s": 1.0,
        "energy_j": 1200.0,
        "plan_time_s": 1.01,
        "plan_energy_j": 900.0,
        "saving": pytest.approx(0.25),
    }
    counted = [row["energy_j"] for row in weeks.stats.series() if row["phase"] == "baseline" and row["steady"]]
    assert counted == [1200.0] * 3


def test_only_the_latest_eight_refreshes_count():
    weeks = Weeks().run(Phase.BASELINE, 8, 1.0, 1000.0).run(Phase.ENFORCING, 20, 1.01, 900.0)
    weeks.refreshes(8, energy_j=1200.0, plan_j=900.0).refreshes(5, energy_j=1500.0, plan_j=900.0)
    assert weeks.saving() == pytest.approx(0.4)


def test_a_refresh_that_is_disturbed_or_not_measured_does_not_count():
    weeks = Weeks().run(Phase.BASELINE, 8, 1.0, 1000.0).run(Phase.ENFORCING, 20, 1.01, 900.0)
    weeks.run(Phase.BASELINE, 1, 1.0, 1200.0, steady=False).run(Phase.BASELINE, 1, 1.0, float("nan"))
    assert weeks.records == []


def test_other_work_takes_the_scaled_baseline_until_its_own_has_been_refreshed():
    weeks = Weeks().run(Phase.BASELINE, 8, 1.0, 1000.0).run(Phase.ENFORCING, 20, 1.01, 900.0)
    weeks.refreshes(3, energy_j=1200.0, plan_j=900.0)
    weeks.stats.replanned(time_ratio=2.0, energy_ratio=2.0)
    weeks.run(Phase.ENFORCING, 20, 2.0, 1800.0)
    assert weeks.saving() == pytest.approx(0.25)
    weeks.refreshes(3, energy_j=3600.0, plan_j=1800.0)
    assert weeks.saving() == pytest.approx(0.5)


def test_a_resumed_training_of_weeks_keeps_its_latest_refreshes():
    weeks = Weeks().run(Phase.ENFORCING, 5000, 1.01, 900.0)
    for _ in range(6):
        weeks.refreshes(1, energy_j=1200.0, plan_j=900.0).run(Phase.ENFORCING, 300, 1.01, 900.0)
    assert weeks.saving() == pytest.approx(0.25)
    assert len(weeks.stats.series()) <= 4097
    assert sum(row["phase"] == "baseline" for row in weeks.stats.series()) == 6
