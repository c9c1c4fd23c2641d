"""The metrics that a history of events makes."""

from dataclasses import replace

import numpy as np
import pytest
from made_up_plans import STAGES, first_table

from perseus_ds.coordination.events import (
    BaselineRefreshed,
    EnergySplitKnown,
    GuardStepped,
    IterationBegan,
    ObjectiveChanged,
    PlansAdopted,
    RoundHeard,
)
from perseus_ds.coordination.orders import objective_order
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.frontier.power_objectives import JobPower
from perseus_ds.profiling.breakdown import KindEnergy, RankEnergy
from perseus_ds.report.metrics_writer import MetricsWriter

TABLE = first_table(2)
PLANS = (TABLE.groups[0].base.points[0], TABLE.groups[0].base.points[2])


class Kept:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.values, self.ranks = {}, {}

    def write(self, iteration, values, ranks) -> None:
        self.values[iteration], self.ranks[iteration] = dict(values), ranks


def heard(iteration: int, energy_j: float, plans=(), t_prime_s: float = float("nan")) -> RoundHeard:
    """What was said about an iteration, and about the energy of the one before."""
    row = condense(np.array([RankStatus(iteration, 2.0, energy_j / STAGES, switches=4.0).row()] * STAGES), STAGES)
    return RoundHeard(iteration + 2, RoundResult(np.array([row, row]), STAGES), plans, t_prime_s)


def test_the_saving_is_measured_against_the_median_of_the_baseline():
    kept = Kept()
    writer = MetricsWriter([kept], pipelines=2)
    for iteration, phase in enumerate([Phase.WARMUP, Phase.BASELINE, Phase.BASELINE, Phase.BASELINE, Phase.SOLVING]):
        writer(IterationBegan(iteration, phase, False, ()))
    for iteration, energy_j in enumerate([5000.0, 5000.0, 1000.0, 1200.0, 1010.0, 909.0]):
        writer(heard(iteration, energy_j))
    assert "saving_ratio" not in kept.values[1], "the baseline is not known yet"
    assert kept.values[5]["saving_ratio"] == pytest.approx(1.0 - 909.0 / 1010.0)
    assert kept.values[5]["iteration_time_seconds"] == 2.0
    assert kept.values[5]["switches"] == 4.0 * STAGES
    assert kept.values[5]["plan_time_seconds"] == 0.0
    assert "t_prime_seconds" not in kept.values[5]


def test_the_slowest_pipeline_s_plan_counts():
    kept = Kept()
    MetricsWriter([kept], pipelines=2)(heard(7, 900.0, PLANS, t_prime_s=1.5))
    assert kept.values[7]["plan_time_seconds"] == max(plan.time_s for plan in PLANS)
    assert kept.values[7]["t_prime_seconds"] == 1.5


def test_the_power_of_the_job_stands_beside_its_target():
    kept = Kept()
    writer = MetricsWriter([kept], pipelines=2)
    writer(heard(0, 900.0))
    assert "power_watts" not in kept.values[0]
    assert kept.values[0]["power_target_watts"] == 0.0
    order = objective_order(JobPower(880.0))
    writer(ObjectiveChanged(2, JobPower(880.0), order, None))
    writer(heard(1, 900.0))
    assert kept.values[1]["power_watts"] == pytest.approx(2 * 900.0 / 2.0)
    assert kept.values[1]["power_target_watts"] == 880.0
    writer(ObjectiveChanged(3, None, order, None))
    writer(heard(2, 900.0))
    assert kept.values[2]["power_target_watts"] == 0.0


def test_more_work_means_a_larger_baseline():
    kept = Kept()
    writer = MetricsWriter([kept], pipelines=2, baseline_j=1000.0)
    group = replace(TABLE.groups[0], max_energy_j=1.5 * TABLE.groups[0].max_energy_j)
    larger = replace(TABLE, version=2, groups=(group,))
    for event in (
        PlansAdopted(3, TABLE, None),
        PlansAdopted(9, larger, TABLE),
        GuardStepped(9, 0.5),
        heard(11, 1200.0),
    ):
        writer(event)
    ratio = larger.max_energy_j / TABLE.max_energy_j
    assert kept.values[11]["saving_ratio"] == pytest.approx(1.0 - 1200.0 / (1000.0 * ratio))


def test_a_refreshed_baseline_replaces_that_of_other_work_at_once():
    kept = Kept()
    writer = MetricsWriter([kept], pipelines=2)
    for iteration in range(8):
        writer(IterationBegan(iteration, Phase.BASELINE, False, ()))
        writer(heard(iteration + 1, 1000.0))
    writer(PlansAdopted(9, TABLE, None))
    writer(PlansAdopted(10, replace(TABLE, version=2), TABLE))
    writer(IterationBegan(20, Phase.BASELINE, False, PLANS))
    writer(heard(21, 1900.0, PLANS))
    writer(heard(22, 1500.0, PLANS))
    writer(BaselineRefreshed(range(20, 21), {19: 1500.0, 20: 2000.0, 21: 1500.0}, 1.0))
    writer(heard(23, 1500.0, PLANS))
    assert kept.values[22]["saving_ratio"] == pytest.approx(-0.5), "not yet measured"
    assert kept.values[23]["saving_ratio"] == pytest.approx(0.25)


def test_a_split_of_the_energy_is_told_from_then_on():
    kept = Kept()
    writer = MetricsWriter([kept], pipelines=2)
    writer(heard(0, 1000.0))
    split = (RankEnergy(3, 1, 0, KindEnergy("forward", 2.0, 0.4, 150.0)),)
    writer(EnergySplitKnown(1, (), split, {"forward": 300.0, "waiting": 40.0}))
    writer(heard(1, 1000.0))
    writer(heard(2, 1000.0))
    assert "forward_energy_joules" not in kept.values[0]
    for iteration in (1, 2):
        assert kept.values[iteration]["forward_energy_joules"] == 300.0
        assert kept.values[iteration]["waiting_energy_joules"] == 40.0
        assert kept.ranks[iteration] is split
    assert kept.ranks[0] == ()
