"""The stats of a long training: it forgets old iterations, no sum, and notices when iterations become others."""

import time

import pytest

from perseus_ds.report.run_stats import Phase, RunStats


def test_a_training_of_weeks_neither_fills_the_memory_nor_gets_slower():
    stats = RunStats()
    phases = [Phase.WARMUP] * 3 + [Phase.BASELINE] * 8 + [Phase.PROFILING] * 30 + [Phase.ENFORCING] * 20_000
    for iteration, phase in enumerate(phases):
        stats.begin(iteration, phase, steady=True)
        stats.measured(iteration, 1.0, switches=10.0, late_switches=1.0)
        stats.energy(iteration, 1000.0 if phase is Phase.BASELINE else 880.0)
    begin = time.perf_counter()
    summary = stats.summary()
    assert time.perf_counter() - begin < 0.5
    assert len(stats.series()) < 5000
    assert summary["saving"] == 1.0 - 880.0 / 1000.0
    assert summary["profiling_iterations"] == 30
    assert summary["late_switches"] == 20_000
    assert summary["switches_per_iteration"] == 10.0
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
