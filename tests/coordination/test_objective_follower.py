"""What an ordered objective asks of the plans that are there."""

import numpy as np
import pytest
from made_up_plans import STAGES, first_table, route_of

from perseus_ds.coordination.objective_follower import ObjectiveFollower
from perseus_ds.frontier.objectives import Deadline, MinEnergy, MinTime, Slowdown
from perseus_ds.frontier.power_objectives import JobPower, PowerCap

TABLE, HEALTHY = first_table(2), np.ones((2, STAGES))
POINTS = route_of((1.0,) * STAGES).points
T_MIN_S = route_of((1.0,) * STAGES).t_min_s
POWERS_W = [plan.energy_j / plan.time_s for plan in POINTS]
THRIFTIEST_S = min(POINTS, key=lambda plan: plan.energy_j).time_s


def target(objective):
    follower = ObjectiveFollower()
    follower.pursue(objective)
    return follower.target(TABLE, HEALTHY)


def test_without_an_order_there_is_no_target():
    assert target(None) is None


@pytest.mark.parametrize(
    ("objective", "time_s"),
    [
        (MinTime(), T_MIN_S),
        (MinEnergy(), THRIFTIEST_S),
        (Slowdown(1.03), 1.03 * T_MIN_S),
        (Deadline(1.01 * T_MIN_S), 1.01 * T_MIN_S),
        (JobPower(2 * POWERS_W[2]), POINTS[2].time_s),
        (PowerCap(POWERS_W[1]), POINTS[1].time_s),
    ],
    ids=str,
)
def test_each_objective_has_its_time(objective, time_s):
    found = target(objective)
    assert found.time_s == pytest.approx(time_s)
    assert found.met


def test_a_configured_power_of_the_job_is_followed_until_another_order():
    follower = ObjectiveFollower(JobPower(2 * POWERS_W[2]))
    assert follower.power_w == 2 * POWERS_W[2]
    follower.pursue(MinTime())
    assert follower.power_w is None
    follower.pursue(None)
    assert follower.target(TABLE, HEALTHY).time_s == pytest.approx(POINTS[2].time_s)
    assert ObjectiveFollower(Slowdown(1.1)).objective is None, "the plan table has its time"


def test_the_curve_is_made_anew_for_another_table_or_condition():
    follower = ObjectiveFollower()
    first = follower.curve(TABLE, HEALTHY)
    assert follower.curve(TABLE, HEALTHY.copy()) is first
    assert follower.curve(TABLE, np.full_like(HEALTHY, 1.2)) is not first
    assert follower.curve(first_table(2), HEALTHY) is not first


@pytest.mark.parametrize(
    ("objective", "time_s"), [(Deadline(0.1), T_MIN_S), (JobPower(1.0), POINTS[-1].time_s)], ids=str
)
def test_what_cannot_be_met_is_met_as_far_as_possible(objective, time_s):
    found = target(objective)
    assert found.time_s == pytest.approx(time_s)
    assert not found.met
