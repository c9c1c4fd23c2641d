"""Plans slower than T*, against all plans of a small pipeline."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.beyond import plans_beyond, uniform_caps
from perseus_ds.frontier.objectives import average_power_w
from perseus_ds.frontier.plan import evaluate
from perseus_ds.frontier.waiting import with_waiting
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

CLOCKS_MHZ = (1400, 1000, 700, 400)
PROFILE = make_profile(
    {
        CurveKey(stage, kind): [
            ProfilePoint(mhz, work * 1400 / mhz, work * 1400 / mhz * (90.0 + 300.0 * (mhz / 1400) ** 3))
            for mhz in CLOCKS_MHZ
        ]
        for kind, share in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0))
        for stage, work in enumerate((0.08 * share, 0.1 * share))
    }
)
SLOPING = replace(PROFILE, waiting_slope_w_per_mhz=0.02, waiting_mhz=1400.0)


def problem(profile=PROFILE, microbatches: int = 2) -> Problem:
    return Problem(schedule_dag("1f1b", 2, microbatches), profile, 50.0)


def slowest_along(one: Problem):
    frontier = solve(one)
    return with_waiting(one, frontier.plan(frontier.t_star_s))


@pytest.mark.parametrize("profile", [PROFILE, SLOPING], ids=["waiting alike", "waiting by clock"])
def test_they_fall_to_nearly_the_least_power_of_all_plans(profile):
    one = problem(profile, microbatches=1)
    fastest = slowest_along(one)
    every = [
        with_waiting(one, evaluate(one, np.array(clocks)))
        for clocks in product(CLOCKS_MHZ, repeat=len(one.dag.instructions))
    ]
    found = plans_beyond(one, fastest)
    times_s, powers_w = [plan.time_s for plan in found], [average_power_w(plan) for plan in found]
    assert times_s == sorted(times_s)
    assert times_s[0] > fastest.time_s
    assert powers_w == sorted(powers_w, reverse=True)
    assert powers_w[0] < average_power_w(fastest)
    least_w = min(map(average_power_w, every))
    assert least_w * (1 - 1e-9) <= powers_w[-1] <= 1.01 * least_w


@pytest.mark.parametrize("profile", [PROFILE, SLOPING], ids=["waiting alike", "waiting by clock"])
def test_no_uniform_cap_of_as_little_power_is_faster(profile):
    one = problem(profile)
    fastest = slowest_along(one)
    plans = [fastest, *plans_beyond(one, fastest)]
    slower = [cap for cap in uniform_caps(one) if cap.time_s > fastest.time_s]
    assert slower
    for cap in slower:
        as_fast = [average_power_w(plan) for plan in plans if plan.time_s <= cap.time_s]
        assert min(as_fast) <= average_power_w(cap) * 1.005


def test_a_cap_holds_for_all_clocks_and_the_highest_one_is_none():
    one = problem()
    caps = uniform_caps(one)
    assert [set(plan.frequency_mhz.values()) for plan in caps] == [{mhz} for mhz in CLOCKS_MHZ]
    assert caps[0].time_s == pytest.approx(solve(one).t_min_s)


def test_who_spares_switches_gets_plans_that_never_switch():
    one = problem()
    found = plans_beyond(one, slowest_along(one), caps_only=True)
    assert found
    assert {plan.switches for plan in found} == {0}


def test_clocks_that_jitter_count():
    one = problem()
    found = plans_beyond(one, slowest_along(one), jitter_s=0.01)
    assert {plan.switch_jitter_s for plan in found} == {0.01}


def test_where_no_clock_is_lower_there_is_nothing_beyond():
    highest = make_profile({key: points[:1] for key, points in PROFILE.curves.items()})
    one = problem(highest)
    assert plans_beyond(one, slowest_along(one)) == []
