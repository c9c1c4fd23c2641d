"""What is solved but not yet rounded, shared out among ranks."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_job import PROFILE, traces

from perseus_ds.coordination.solved_frontiers import SolvedFrontiers, times_along
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.switching import SwitchCost
from perseus_ds.frontier.waiting import waiting_beyond_j
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, make_profile

FRONTIER = solve(Problem(dag_from_traces(traces()), PROFILE, 60.0))
SLOPING = solve(replace(FRONTIER.problem, profile=replace(PROFILE, waiting_slope_w_per_mhz=0.1, waiting_mhz=1000.0)))
T_MIN_S, T_STAR_S = FRONTIER.t_min_s, FRONTIER.t_star_s
BUSY_S = 1.3 * T_MIN_S  # here plans switch often
HEALTHY, SLOW = (0, (1.0, 1.0)), (0, (1.0, 1.3))


def draft(
    times_s: dict, cost: SwitchCost | None = None, spares_switches: bool = False, frontier: Frontier = FRONTIER
) -> SolvedFrontiers:
    return SolvedFrontiers(dict.fromkeys(times_s, frontier), times_s, cost or SwitchCost(), spares_switches)


def only_plan(t_s: float, cost: SwitchCost | None = None, spares_switches: bool = False, frontier: Frontier = FRONTIER):
    one = draft({HEALTHY: (t_s,)}, cost, spares_switches, frontier)
    ((plan,),) = one.plans([one.discretize_shard(0, 1)]).values()
    return plan


@given(first=st.integers(0, 30), second=st.integers(0, 30), places=st.integers(1, 70))
def test_each_plan_is_in_one_share_and_shares_differ_by_one_at_most(first, second, places):
    whole = draft({HEALTHY: (T_MIN_S,) * first, SLOW: (T_STAR_S,) * second})
    shares = [whole.share(place, places) for place in range(places)]
    assert sorted(number for share in shares for number in share) == list(range(first + second))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_plans_come_back_by_frontier_in_the_order_of_their_times():
    times_s = {HEALTHY: (T_STAR_S, T_MIN_S, BUSY_S), SLOW: (T_MIN_S, T_STAR_S)}
    sent = pickle.loads(pickle.dumps(draft(times_s)))
    plans = sent.plans([sent.discretize_shard(place, 2) for place in (1, 0)])
    assert list(plans) == [HEALTHY, SLOW]
    for which, wanted_s in times_s.items():
        for plan, t_s in zip(plans[which], wanted_s, strict=True):
            expected = on_time_plan(FRONTIER, t_s, jitter_s=0.0)
            assert (plan.time_s, plan.energy_j, plan.lower_bound_j, plan.switches, plan.switch_jitter_s) == (
                expected.time_s,
                expected.energy_j,
                expected.lower_bound_j,
                expected.switches,
                0.0,
            )
            clocks_mhz = {(one.stage, one.operation): mhz for one, mhz in expected.frequency_mhz.items()}
            assert {
                (stage, operation): mhz
                for stage, clocks in enumerate(plan.clocks_mhz)
                for operation, mhz in clocks.items()
            } == clocks_mhz


def test_what_waiting_takes_beyond_blocking_power_counts_in_the_plan_and_in_its_bound():
    plan, flat = only_plan(T_MIN_S, frontier=SLOPING), SLOPING.plan(T_MIN_S)
    assert plan.rest_mhz == min(point.frequency_mhz for point in next(iter(PROFILE.curves.values())))
    beyond_j = waiting_beyond_j(SLOPING.problem, flat, plan.rest_mhz)
    assert 0 < beyond_j < waiting_beyond_j(SLOPING.problem, flat)
    assert plan.energy_j == pytest.approx(flat.energy_j + beyond_j)
    assert plan.lower_bound_j == pytest.approx(flat.lower_bound_j + beyond_j)


def test_who_rounds_hears_how_many_are_done():
    done = []
    draft({HEALTHY: (T_MIN_S,) * 5}).discretize_shard(1, 2, done.append)
    assert done == [1, 2]


@pytest.mark.parametrize(("condition", "count"), [((1.0, 1.0), 24), ((1.0, 1.3), 8)])
def test_plans_are_made_ready_from_end_to_end_closer_together_where_it_is_fast(condition, count):
    times_s = times_along(FRONTIER, condition)
    assert len(times_s) == count
    assert (times_s[0], times_s[-1]) == pytest.approx((T_MIN_S, T_STAR_S))
    steps_s = np.diff(times_s)
    assert (steps_s > 0).all()
    assert (np.diff(steps_s) > 0).all()


def test_clocks_that_jitter_are_expected_to_cost_a_little_time_and_energy():
    draft = SolvedFrontiers({HEALTHY: FRONTIER}, {HEALTHY: (BUSY_S,)}, SwitchCost(), False, jitter_s=0.01)
    ((plan,),) = draft.plans([draft.discretize_shard(0, 1)]).values()
    assert plan.switch_jitter_s == 0.01
    assert BUSY_S < plan.time_s < 1.01 * BUSY_S
    assert plan.energy_j > plan.lower_bound_j


def test_who_spares_switches_gets_few_even_when_they_do_not_show():
    few = only_plan(BUSY_S, SwitchCost(max_switches=2), spares_switches=True)
    assert few.switches <= 2 * 2 < only_plan(BUSY_S).switches
    assert few.time_s <= BUSY_S * (1 + 1e-9)
    draft = SolvedFrontiers({HEALTHY: FRONTIER}, {HEALTHY: (BUSY_S,)}, SwitchCost(max_switches=2), True, jitter_s=0.01)
    ((jittering,),) = draft.plans([draft.discretize_shard(0, 1)]).values()
    assert jittering.clocks_mhz == few.clocks_mhz
    assert jittering.time_s > few.time_s


def test_who_spares_switches_does_not_rest():
    assert only_plan(T_MIN_S, SwitchCost(max_switches=2), spares_switches=True, frontier=SLOPING).rest_mhz == 0


def test_highest_clocks_that_are_not_the_fastest_still_make_a_plan_without_switches():
    odd = {
        key: (points[0]._replace(time_s=1.02 * points[0].time_s), points[0]._replace(frequency_mhz=1390), *points[1:])
        for key, points in PROFILE.curves.items()
    }
    frontier = solve(Problem(FRONTIER.problem.dag, Profile(odd, "odd"), 60.0))
    assert at_highest(frontier.problem).time_s > 1.01 * frontier.t_min_s
    one = SolvedFrontiers({HEALTHY: frontier}, {HEALTHY: (frontier.t_min_s,)}, SwitchCost(max_switches=0), True)
    ((plan,),) = one.plans([one.discretize_shard(0, 1)]).values()
    assert plan.switches == 0


def test_ranks_are_told_when_clocks_are_to_come():
    """Backwards hardly depend on the clock here, so that clocks come within them."""
    forward = [ProfilePoint(1000, 0.1, 20.0), ProfilePoint(500, 0.2, 12.0)]
    backward = [ProfilePoint(1000, 0.2, 40.0), ProfilePoint(500, 0.205, 25.0)]
    curves = {CurveKey(stage, Kind.FORWARD): forward for stage in (0, 1)}
    curves |= {CurveKey(stage, Kind.BACKWARD): backward for stage in (0, 1)}
    frontier = solve(Problem(schedule_dag("1f1b", 2, 4), make_profile(curves), 60.0))
    t_s, jitter_s = 1.02 * frontier.t_min_s, 0.005
    one = SolvedFrontiers({HEALTHY: frontier}, {HEALTHY: (t_s,)}, SwitchCost(), False, jitter_s)
    told, planned = one.discretize_shard(0, 1)[0], on_time_plan(frontier, t_s, jitter_s)
    assert planned.aims_s
    aims_s = {(stage, operation): aim_s for stage, aims in enumerate(told.aims_s) for operation, aim_s in aims.items()}
    assert aims_s == {(one.stage, one.operation): aim_s for one, aim_s in planned.aims_s.items()}
