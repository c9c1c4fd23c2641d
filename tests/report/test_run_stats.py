"""The stats of a long training: it forgets old iterations, no sum, and notices when iterations become others."""

import math
import time

import pytest

from perseus_ds.coordination.events import StragglerChanged
from perseus_ds.coordination.phases import Phase
from perseus_ds.report.run_stats import Measurement, RunStats


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
        return self

    def refreshes(self, count: int, energy_j: float, plan_j: float, time_s: float = 1.01) -> "Weeks":
        """The counter errs by half; the corrected energies are right."""
        for _ in range(count):
            self.run(Phase.ENFORCING, 10, time_s, 0.5 * plan_j)
            self.run(Phase.ENFORCING, 1, time_s, 999.0, steady=False)
            first = self.stats.last_iteration + 1
            self.run(Phase.BASELINE, 4, time_s - 0.01, 0.5 * energy_j)
            self.run(Phase.ENFORCING, 10, time_s, 0.5 * plan_j)
            measured = range(first, first + 4)
            energies_j = {n: energy_j if n in measured else plan_j for n in range(first - 9, first + 13)}
            if record := self.stats.refreshed(measured, energies_j):
                self.records.append(record)
        return self

    def saving(self) -> float:
        return self.stats.summary()["saving"]


@pytest.fixture
def weeks() -> Weeks:
    return Weeks().run(Phase.BASELINE, 8, 1.0, 1000.0).run(Phase.ENFORCING, 20, 1.01, 900.0)


def test_from_the_first_refresh_on_the_saving_is_one_against_now(weeks):
    """The first baseline is of cold GPUs, which draw less."""
    weeks.refreshes(1, energy_j=1200.0, plan_j=900.0)
    assert weeks.records == [
        {
            "iteration_time_s": 1.0,
            "energy_j": 1200.0,
            "plan_time_s": 1.01,
            "plan_energy_j": 900.0,
            "saving": pytest.approx(0.25),
        }
    ]
    assert weeks.saving() == pytest.approx(0.25)
    weeks.refreshes(1, energy_j=1200.0, plan_j=900.0)
    summary = weeks.stats.summary()
    assert (summary["saving"], summary["slowdown"]) == (pytest.approx(0.25), pytest.approx(0.01))
    assert (summary["baseline"]["energy_j"], summary["measured"]["energy_j"]) == (1200.0, 900.0)
    counted = [row for row in weeks.stats.series() if row["steady"]]
    assert sum(row["phase"] == "baseline" for row in counted) == 2 * 4
    assert sum(row["phase"] == "enforcing" for row in counted) == 2 * 16


@pytest.mark.parametrize(
    ("highest_s", "ageing", "factor"),
    [(1.0, 1.0, 1.05), (1.0, 0.4, 1.02), (1.0, 0.0, 1.0), (1.03, 1.0, 1.05 / 1.03), (1.06, 1.0, 1.0), (0.9, 1.0, 1.05)],
)
def test_the_prediction_changes_as_the_baseline_has_since_the_plan_was_made(weeks, highest_s, ageing, factor):
    weeks.stats.plan(Measurement(1.02, 870.0), Measurement(highest_s, 1000.0), lambda slower: ageing * slower)
    weeks.run(Phase.ENFORCING, 20, 1.02, 900.0).refreshes(1, energy_j=1100.0, plan_j=950.0, time_s=1.06)
    summary = weeks.stats.summary()
    assert summary["predicted"]["iteration_time_s"] == pytest.approx(factor * 1.02)
    assert summary["predicted"]["energy_j"] == pytest.approx(1.1 * 870.0)
    assert summary["predicted_saving"] == pytest.approx(0.13)


def test_the_energy_predicted_is_what_the_predicted_saving_leaves_of_the_baseline(weeks):
    """Neither the plan's energy nor that at the highest clocks holds all that the baseline draws."""
    weeks.stats.plan(Measurement(1.02, 840.0), Measurement(1.0, 960.0), lambda slower: slower)
    summary = weeks.stats.summary()
    assert summary["predicted_saving"] == pytest.approx(1.0 - 840.0 / 960.0)
    assert summary["predicted"]["energy_j"] == pytest.approx(1000.0 * 840.0 / 960.0)


def test_gpus_that_get_warm_beside_a_refresh_make_no_saving(weeks):
    """Each iteration draws one per cent more than the one before; the plan saves a tenth."""
    for _ in range(2):
        first = weeks.run(Phase.ENFORCING, 12, 1.0, 1.0).stats.last_iteration + 1
        weeks.run(Phase.BASELINE, 4, 1.0, 1.0).run(Phase.ENFORCING, 12, 1.0, 1.0)
        measured = range(first, first + 4)
        part = {number: 1.0 if number in measured else 0.9 for number in range(first - 8, first + 10)}
        weeks.stats.refreshed(measured, {number: share * 1.01**number for number, share in part.items()})
    assert weeks.saving() == pytest.approx(0.1, abs=0.002)


def test_only_the_latest_eight_refreshes_count(weeks):
    weeks.refreshes(8, energy_j=1200.0, plan_j=900.0).refreshes(5, energy_j=1500.0, plan_j=900.0)
    assert weeks.saving() == pytest.approx(1.0 - 900.0 / ((3 * 1200.0 + 5 * 1500.0) / 8))
    weeks.refreshes(3, energy_j=1500.0, plan_j=900.0)
    assert weeks.saving() == pytest.approx(0.4)


def test_a_refresh_that_is_disturbed_or_not_measured_does_not_count(weeks):
    first = weeks.stats.last_iteration + 1
    weeks.run(Phase.BASELINE, 1, 1.0, 1200.0, steady=False).run(Phase.ENFORCING, 9, 1.0, 900.0)
    around = dict.fromkeys(range(first - 8, first + 9), 900.0)
    assert weeks.stats.refreshed(range(first, first + 1), around) is None
    assert weeks.stats.refreshed(range(first, first + 1), {}) is None
    alone = {number: 900.0 for number in around if number <= first}
    assert weeks.stats.refreshed(range(first, first + 1), alone) is None, "a straggler came just after it"


@pytest.mark.parametrize("healthy", [1, 2])
def test_a_straggler_that_is_not_noticed_yet_spoils_no_comparison(weeks, healthy):
    """It begins some iterations after a refresh, and is noticed three iterations later."""
    weeks.run(Phase.ENFORCING, 10, 1.01, 900.0).run(Phase.BASELINE, 4, 1.0, 1000.0)
    refresh = range(weeks.stats.last_iteration - 3, weeks.stats.last_iteration + 1)
    weeks.run(Phase.ENFORCING, healthy, 1.01, 900.0).run(Phase.ENFORCING, 3, 1.15, 980.0)
    seen = weeks.stats.last_iteration
    weeks.stats.straggler_changed(StragglerChanged(seen + 1, seen, ((1.15, 1.0),), ((3, 0),), 1.15), 2)
    weeks.run(Phase.ENFORCING, 12, 1.15, 980.0, steady=False)
    energies_j = dict.fromkeys(range(refresh.start - 9, seen - 2), 900.0) | dict.fromkeys(
        range(seen - 2, seen + 9), 980.0
    )
    compared = weeks.stats.refreshed(refresh, energies_j | dict.fromkeys(refresh, 1000.0))
    if healthy == 1:
        assert compared is None, "there is too little to compare with on one side"
        return
    assert (compared["plan_time_s"], compared["saving"]) == (pytest.approx(1.01), pytest.approx(0.1))


def test_other_work_takes_the_scaled_baseline_until_its_own_has_been_refreshed(weeks):
    weeks.refreshes(3, energy_j=1200.0, plan_j=900.0)
    weeks.stats.replanned(time_ratio=2.0, energy_ratio=2.0)
    weeks.run(Phase.ENFORCING, 20, 2.0, 1800.0)
    assert weeks.saving() == pytest.approx(0.25)
    weeks.refreshes(2, energy_j=3600.0, plan_j=1800.0, time_s=2.0)
    assert weeks.saving() == pytest.approx(0.5)


def test_a_training_of_weeks_keeps_its_latest_refreshes_and_what_they_are_compared_with(weeks):
    weeks.run(Phase.ENFORCING, 5000, 1.01, 900.0)
    for _ in range(6):
        weeks.refreshes(1, energy_j=1200.0, plan_j=900.0).run(Phase.ENFORCING, 800, 1.01, 9.0)
    assert weeks.saving() == pytest.approx(0.25)
    assert len(weeks.stats.series()) <= 4097
    assert sum(row["steady"] for row in weeks.stats.series() if row["phase"] == "baseline") == 24
