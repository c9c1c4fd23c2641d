"""The job's power at each iteration time, against sums over the pipelines' own plans."""

import numpy as np
import pytest
from made_up_plans import STAGES, first_table, route_of

from perseus_ds.coordination.job_curve import JobCurve
from perseus_ds.coordination.plan_table import StragglerPlans

HEALTHY = np.ones((3, STAGES))
BASE = route_of((1.0,) * STAGES)
SLOW = (1.0, 1.3)


def test_all_pipelines_draw_their_share_at_one_time():
    curve = JobCurve(first_table(3), HEALTHY)
    assert list(curve.times_s) == [plan.time_s for plan in BASE.points]
    for point, plan in zip(curve.points, BASE.points, strict=True):
        assert point.energy_j == pytest.approx(3 * plan.energy_j)
        assert point.power_w == pytest.approx(3 * plan.energy_j / plan.time_s)
        assert point.pipeline_power_w == pytest.approx(plan.energy_j / plan.time_s)


def test_who_waits_for_a_straggler_draws_waiting_power():
    table = first_table(2).with_straggler_plans(StragglerPlans(2, {(0, SLOW): route_of(SLOW)}))
    curve = JobCurve(table, np.array([(1.0, 1.0), SLOW]))
    fastest = curve.points[0]
    slow, fast = route_of(SLOW).points[0], BASE.point(route_of(SLOW).points[0].time_s)
    waiting_j = 60.0 * STAGES * (slow.time_s - fast.time_s)
    assert curve.t_min_s == pytest.approx(slow.time_s)
    assert fastest.energy_j == pytest.approx(slow.energy_j + fast.energy_j + waiting_j, rel=1e-6)


@pytest.mark.parametrize("whole_job", [True, False])
def test_the_fastest_point_within_a_power(whole_job):
    curve = JobCurve(first_table(3), HEALTHY)
    drawn_w = [point.power_w if whole_job else point.pipeline_power_w for point in curve.points]
    for index, power_w in enumerate(drawn_w):
        assert curve.fastest_within(power_w, whole_job) == curve.points[index]
    floor = curve.fastest_within(0.9 * drawn_w[-1], whole_job)
    assert (floor.time_s, floor.met) == (curve.points[-1].time_s, False)


def test_between_the_points_the_energy_is_linear_and_the_ends_hold():
    curve = JobCurve(first_table(1), np.ones((1, STAGES)))
    first, second = curve.points[:2]
    middle_s = (first.time_s + second.time_s) / 2
    assert curve.lower_bound_j(middle_s) == pytest.approx((first.energy_j + second.energy_j) / 2)
    assert curve.clamp(0.0) == curve.t_min_s
    assert curve.clamp(99.0) == curve.points[-1].time_s
