"""A job that follows a power: its plans chosen from what it measures, two iterations late. No clock, no thread."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from made_up_plans import STAGES, first_table, route_of

from perseus_ds.config import Config
from perseus_ds.coordination.plan_selector import PlanSelector
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StragglerPlans
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense
from perseus_ds.frontier.objectives import MinTime
from perseus_ds.frontier.power_objectives import JobPower

PIPELINES = 2
TYPICAL = 20  # iterations
SLOW = (1.0, 1.3)


@cache
def table() -> PlanTable:
    """Twelve plans of evenly falling power."""
    (group,) = first_table(PIPELINES).groups
    first, last = group.base.points[0], group.base.points[-1]
    points = []
    for part in np.linspace(0.0, 1.0, 12):
        time_s = first.time_s + part * (last.time_s - first.time_s)
        power_w = first.energy_j / first.time_s * (1 - part) + last.energy_j / last.time_s * part
        points.append(FrequencyPlan(time_s, power_w * time_s, 0.0, first.clocks_mhz, 0))
    base = replace(group.base, points=tuple(points))
    return replace(first_table(PIPELINES), groups=(replace(group, base=base),))


POWERS_W = [PIPELINES * plan.energy_j / plan.time_s for plan in table().groups[0].base.points]
MOST_W, LEAST_W = POWERS_W[0], POWERS_W[-1]
T_MIN_S = table().groups[0].base.t_min_s


class Job:
    """A job whose power is not quite what its plans predict."""

    def __init__(self, factor: float = 1.0, ramp_w_per_s: float | None = None, measures: bool = True, **objective):
        config = Config(run_dir="unused", objective={"ramp_w_per_s": ramp_w_per_s, **objective})
        self.selector = PlanSelector(config, PIPELINES, STAGES)
        self.table = table()
        self.factor, self.measures = factor, measures
        self.drawn_w: list[float] = []
        self._times_s: list[float] = []
        self.slow = np.ones((PIPELINES, STAGES))
        self.news = 0
        self.selector.adopt(self.table, 0)
        self.selector.choose(self.table)

    def order(self, power_w: float | None) -> None:
        self.selector.pursue(JobPower(power_w) if power_w else None, self.table)

    def runs(self, iterations: int) -> list[float]:
        """Return the power of each iteration."""
        for _ in range(iterations):
            now = len(self.drawn_w)
            if now >= 2 and self.selector.hear(self._round(now - 2), self.table).condition:
                self.table = self.table.with_straggler_plans(StragglerPlans(2, {(0, SLOW): route_of(SLOW)}))
            self.news += self.selector.choose(self.table)
            self.selector.began(now, self.table)
            plans = self.selector.plans
            noise = 1 + 0.01 * math.sin(2.3 * now)
            longest_s = max(plan.time_s for plan in plans)
            self._times_s.append(longest_s)
            self.drawn_w.append(PIPELINES * self.table.energy_j(plans) / longest_s * self.factor * noise)
        return self.drawn_w[-iterations:]

    def _round(self, iteration: int) -> RoundResult:
        """The energy in it is that of the iteration before."""
        energy_j = math.nan
        if iteration and self.measures:
            energy_j = self.drawn_w[iteration - 1] * self._times_s[iteration - 1] / (PIPELINES * STAGES)
        rows = [
            condense(
                np.array(
                    [
                        RankStatus(iteration, self._times_s[iteration], energy_j, slowdown=slowdown).row()
                        for slowdown in pipeline
                    ]
                ),
                STAGES,
            )
            for pipeline in self.slow
        ]
        return RoundResult(np.array(rows), STAGES)


def longest_above(powers_w: list[float], limit_w: float) -> int:
    """Return the longest run of iterations above a limit."""
    longest = lasting = 0
    for power_w in powers_w:
        lasting = lasting + 1 if power_w > limit_w else 0
        longest = max(longest, lasting)
    return longest


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("share", [0.15, 0.37, 0.5, 0.81])
def test_the_mean_power_meets_the_target_where_the_plans_are_wrong(factor, share):
    job = Job(factor)
    job.runs(10)
    target_w = factor * (LEAST_W + share * (MOST_W - LEAST_W))
    job.order(target_w)
    drawn_w = job.runs(TYPICAL)
    assert np.mean(drawn_w) == pytest.approx(target_w, rel=0.02)
    assert longest_above(drawn_w, 1.05 * target_w) <= 3
    drawn_w = job.runs(2 * TYPICAL)
    assert np.mean(drawn_w) == pytest.approx(target_w, rel=0.01)
    assert longest_above(drawn_w, 1.05 * target_w) <= 3


def test_an_order_that_comes_before_anything_is_measured_is_met_soon():
    job = Job(factor=1.1, power_w=0.9 * MOST_W)
    drawn_w = job.runs(TYPICAL)
    assert longest_above(drawn_w, 1.05 * 0.9 * MOST_W) <= 3
    assert np.mean(drawn_w) == pytest.approx(0.9 * MOST_W, rel=0.02)


def test_without_measurements_the_plans_predictions_are_met():
    job = Job(measures=False)
    job.order(0.87 * MOST_W)
    assert np.mean(job.runs(TYPICAL)) == pytest.approx(0.87 * MOST_W, rel=0.02)


def test_neighbouring_plans_that_alternate_are_no_news():
    job = Job()
    job.order(0.87 * MOST_W)
    job.runs(TYPICAL)
    assert len(set(job.drawn_w)) > 2
    assert job.news <= 2


@pytest.mark.parametrize(("end", "held_w"), [(0.5 * LEAST_W, LEAST_W), (2.0 * MOST_W, MOST_W)], ids=["floor", "top"])
def test_what_no_plan_can_do_leaves_no_debt(end, held_w):
    job = Job()
    job.order(end)
    assert np.mean(job.runs(50)) == pytest.approx(held_w, rel=0.01)
    target_w = (LEAST_W + MOST_W) / 2
    job.order(target_w)
    drawn_w = job.runs(TYPICAL)
    assert np.mean(drawn_w) == pytest.approx(target_w, rel=0.02)
    assert longest_above(drawn_w, 1.05 * target_w) <= 3


def test_a_floor_is_told():
    job = Job()
    job.order(0.5 * LEAST_W)
    assert not job.selector.expected(job.table).met
    job.order(0.8 * MOST_W)
    assert job.selector.expected(job.table).met


def test_a_ramp_bounds_how_fast_the_power_changes_down_and_up():
    ramp_w_per_s = 0.05 * MOST_W
    job = Job(ramp_w_per_s=ramp_w_per_s)
    job.runs(5)
    job.order(0.75 * MOST_W)
    limits_w = []
    for _ in range(TYPICAL):
        job.runs(1)
        limits_w.append(job.selector._power.limit_w)
        assert not (job.selector._power.on_a_ramp and job.selector.missing_s(job.table)), "no plan for every watt"
    longest_s = max(plan.time_s for plan in table().groups[0].base.points)
    assert limits_w[0] == pytest.approx(MOST_W - ramp_w_per_s * T_MIN_S, rel=0.02)
    assert limits_w[-1] == pytest.approx(0.75 * MOST_W)
    assert max(abs(np.diff(limits_w))) <= ramp_w_per_s * longest_s * (1 + 1e-9)
    job.order(None)
    assert job.runs(1)[0] < 0.85 * MOST_W, "the way back is a ramp, too"
    assert job.selector.limits_power
    job.runs(TYPICAL)
    assert not job.selector.follows_power
    assert job.drawn_w[-1] == pytest.approx(MOST_W, rel=0.02)


def test_another_objective_ends_the_limit_at_once_without_a_ramp():
    job = Job()
    job.order(0.75 * MOST_W)
    job.runs(5)
    job.selector.pursue(MinTime(), job.table)
    assert job.runs(1)[0] == pytest.approx(MOST_W, rel=0.02)
    assert not job.selector.follows_power


def test_a_straggler_during_an_order_does_not_break_the_limit():
    job = Job(factor=1.05)
    job.runs(5)
    job.order(0.8 * MOST_W)
    job.runs(10)
    job.slow[1] = SLOW
    drawn_w = job.runs(10)
    job.slow[1] = 1.0
    drawn_w += job.runs(TYPICAL)
    assert longest_above(drawn_w, 1.05 * 0.8 * MOST_W) <= 3
    assert np.mean(drawn_w[-10:]) == pytest.approx(0.8 * MOST_W, rel=0.02)


def test_two_orders_at_once_leave_the_account_of_the_last():
    job = Job()
    job.runs(5)
    job.order(0.7 * MOST_W)
    job.order(0.9 * MOST_W)
    assert np.mean(job.runs(TYPICAL)) == pytest.approx(0.9 * MOST_W, rel=0.02)


def test_what_the_fastest_plan_could_not_draw_is_not_drawn_later():
    job = Job(0.94)
    job.order(MOST_W)
    job.runs(60)
    job.factor = 1.03
    assert longest_above(job.runs(20), MOST_W) <= 10  # until the bias is learned anew
