"""Plans for jittering clocks, judged by a simulation of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.frontier import Frontier, Plan, Problem, on_time, solve
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.on_time import on_time_plan, undominated
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint


@pytest.fixture(scope="module")
def frontier(gpt3: Problem) -> Frontier:
    return solve(gpt3)


def simulate(problem: Problem, plan: Plan, jitter_s: float, draws: int = 100) -> tuple[float, float]:
    """Run iterations with normal deviations; a late clock leaves the old one, an early one cuts into the last."""
    points = {(key, p.frequency_mhz): p for key in problem.keys for p in problem.profile.curve(key)}
    dag, late_s = problem.dag, np.random.default_rng(5).normal(0.0, jitter_s, (len(problem.dag.instructions), draws))
    mhz = [plan.frequency_mhz[one] for one in dag.instructions]
    before, after = {}, {}
    for order in dag.program_order:
        before.update(zip(order, np.roll(order, 1), strict=True))
        after.update(zip(order, np.roll(order, -1), strict=True))
    ends, busy_s, busy_j = np.zeros((dag.nodes, draws)), 0.0, 0.0
    for node in dag.topological_order.tolist():
        tails = dag.predecessors.members[dag.predecessors.indptr[node] : dag.predecessors.indptr[node + 1]]
        key = problem.keys[problem.curve_of[node]]
        old, own, new = (points[key, mhz[one]] for one in (before[node], node, after[node]))
        first = np.clip(late_s[node], 0.0, None) / old.time_s
        last = np.clip(-late_s[after[node]], 0.0, None) / own.time_s
        lasts_s = first * old.time_s + last * new.time_s + (1 - first - last) * own.time_s
        stalls_s = problem.profile.request_stall_s * (own != new)
        ends[node] = (ends[tails].max(axis=0) if tails.size else 0.0) + lasts_s + stalls_s
        busy_s += lasts_s.mean()
        busy_j += (first * old.energy_j + last * new.energy_j + (1 - first - last) * own.energy_j).mean()
    time_s = ends.max(axis=0).mean()
    return time_s, busy_j + 83.64 * (dag.stages * time_s - busy_s)


def shorter(problem: Problem, factor: float) -> dict[CurveKey, tuple[ProfilePoint, ...]]:
    """Return the curves of shorter instructions."""
    return {
        key: tuple(one._replace(time_s=factor * one.time_s, energy_j=factor * one.energy_j) for one in points)
        for key, points in problem.profile.curves.items()
    }


@pytest.mark.parametrize(("jitter_s", "late", "above"), [(0.003, 0.003, 0.006), (0.010, 0.006, 0.018)])
@pytest.mark.parametrize("slower", [1.0, 1.02, 1.25])
def test_with_jitter_plans_stay_near_the_time_and_the_bound(frontier, slower, jitter_s, late, above):
    t_s = slower * frontier.t_min_s
    plan = on_time_plan(frontier, t_s, jitter_s)
    time_s, energy_j = simulate(frontier.problem, plan, jitter_s)
    assert time_s <= (1 + late) * t_s
    assert energy_j <= (1 + above) * frontier.lower_bound_j(t_s)
    assert (plan.time_s, plan.energy_j) == pytest.approx((time_s, energy_j), rel=1e-3)
    assert plan.lower_bound_j == frontier.lower_bound_j(t_s)


@pytest.mark.parametrize("part", [0.7, 0.85, 1.0])
def test_who_is_given_time_up_to_t_star_draws_as_little_power_as_the_bound_does(frontier, part):
    """Beyond the time of least energy, time costs energy: who has it anyway shall not spend energy to be early."""
    t_s = frontier.t_min_s + part * (frontier.t_star_s - frontier.t_min_s)
    plan = on_time_plan(frontier, t_s, 0.003)
    assert frontier.lower_bound_j(t_s) > frontier.lower_bound_j(0.97 * t_s)
    assert plan.energy_j / plan.time_s <= 1.004 * frontier.lower_bound_j(t_s) / t_s


def test_where_the_ordinary_plan_comes_late_this_one_does_not(frontier):
    ordinary_s, _ = simulate(frontier.problem, frontier.plan(frontier.t_min_s), 0.01)
    assert ordinary_s > 1.01 * frontier.t_min_s
    assert on_time_plan(frontier, frontier.t_min_s, 0.01).time_s < 1.006 * frontier.t_min_s


def test_where_requests_stall_it_is_on_time_with_fewer_of_them(gpt3):
    frontier = solve(replace(gpt3, profile=replace(gpt3.profile, request_stall_s=0.002)))
    t_s = 1.02 * frontier.t_min_s
    ordinary, plan = frontier.plan(t_s), on_time_plan(frontier, t_s, 0.002)
    assert plan.switches < 0.8 * ordinary.switches
    time_s, energy_j = simulate(frontier.problem, plan, 0.002)
    assert simulate(frontier.problem, ordinary, 0.002)[0] > 1.025 * t_s
    assert time_s < 1.012 * t_s
    assert (plan.time_s, plan.energy_j) == pytest.approx((time_s, energy_j), rel=1e-3)


def test_where_stalls_leave_no_time_near_t_min_few_switches_keep_it(gpt3):
    frontier = solve(replace(gpt3, profile=replace(gpt3.profile, request_stall_s=0.004)))
    plan = on_time_plan(frontier, frontier.t_min_s, 0.003)
    assert simulate(frontier.problem, plan, 0.003)[0] < 1.006 * frontier.t_min_s
    assert plan.switches < 40


def test_a_stall_counts_without_jitter_too(gpt3):
    frontier = solve(replace(gpt3, profile=replace(gpt3.profile, request_stall_s=0.002)))
    t_s = 1.1 * frontier.t_min_s
    plan = on_time_plan(frontier, t_s, 0.0)
    assert (plan.time_s, plan.energy_j) == pytest.approx(simulate(frontier.problem, plan, 0.0, draws=1))
    assert plan.time_s < 1.001 * t_s


def test_where_clocks_take_long_to_come_it_switches_seldom_and_is_on_time(gpt3):
    clocks_mhz = {point.frequency_mhz for curve in gpt3.profile.curves.values() for point in curve}
    chance = np.random.default_rng(3)
    latency_s = dict(zip(sorted(clocks_mhz), chance.uniform(0.1, 1.0, len(clocks_mhz)), strict=True))
    slow = replace(gpt3, profile=replace(gpt3.profile, switch_latency_s=latency_s))
    frontier = solve(slow)
    t_s = 1.01 * frontier.t_min_s
    ordinary = frontier.plan(t_s)
    late = evaluate_late(slow, ordinary.clocks_of(slow.dag.instructions), 0.002)
    assert late.time_s > 1.01 * t_s
    plan = on_time_plan(frontier, t_s, 0.002)
    assert plan.time_s < 1.005 * t_s
    assert plan.energy_j < late.energy_j
    assert plan.switches < 0.5 * ordinary.switches


def test_plans_of_few_switches_that_begin_beyond_the_time_allowed_may_be_the_best(gpt3):
    """Short instructions, stalls, and switches that now and then take 100 ms longer: 0.92 without such plans."""
    tails = {"request_stall_s": 0.0005, "switch_tail_share": 0.05, "switch_tail_s": 0.1}
    problem = Problem(schedule_dag("1f1b", 8, 8), replace(gpt3.profile, curves=shorter(gpt3, 0.2), **tails), 83.64)
    frontier = solve(problem)
    plan = on_time_plan(frontier, frontier.t_min_s, 0.0025)
    assert plan.time_s < 1.006 * frontier.t_min_s
    assert plan.energy_j < 0.895 * at_highest(problem).energy_j


@pytest.mark.parametrize(
    ("accepted", "within", "slower", "saves"),
    [
        (0.003, 1.005, 1.0, 0.018),
        (0.003, 1.005, 1.03, 0.015),
        (0.0048, 1.008, 1.0, 0.03),
        (0.0048, 1.008, 1.03, 0.0175),
    ],
)
def test_random_moves_find_plans_that_single_ones_do_not(gpt3, monkeypatch, accepted, within, slower, saves):
    """As on a GH200: 20 to 200 ms to each clock, and a tail. Instructions take 15 to 45 ms."""
    clocks_mhz = sorted({point.frequency_mhz for curve in gpt3.profile.curves.values() for point in curve})
    latencies_s = np.random.default_rng(3).uniform(0.02, 0.2, len(clocks_mhz))
    tails = {"request_stall_s": 0.0005, "switch_tail_share": 0.05, "switch_tail_s": 0.15}
    tails["switch_latency_s"] = dict(zip(clocks_mhz, latencies_s, strict=True))
    problem = Problem(schedule_dag("1f1b", 8, 8), replace(gpt3.profile, curves=shorter(gpt3, 0.3), **tails), 83.64)
    frontier = solve(problem)
    t_s = slower * frontier.t_min_s
    monkeypatch.setattr(on_time, "_TOLERANCE_AT_MOST", accepted)  # the more time there is, the more they find
    plan = on_time_plan(frontier, t_s, 0.02)
    monkeypatch.setattr(on_time, "searched", lambda *_: None)
    without = on_time_plan(frontier, t_s, 0.02)
    assert plan.time_s < within * t_s  # of 1.008 the controller emulated 1.0063
    assert plan.energy_j < (1.0 - saves) * without.energy_j


def test_curves_without_a_common_clock_have_a_plan_too(gpt3):
    """Few visits on a busy host may leave a stage such curves."""
    apart = {key: points[number % 2 :: 2] for number, (key, points) in enumerate(sorted(gpt3.profile.curves.items()))}
    latency_s = dict.fromkeys({point.frequency_mhz for points in apart.values() for point in points}, 0.5)
    frontier = solve(replace(gpt3, profile=replace(gpt3.profile, curves=apart, switch_latency_s=latency_s)))
    plan = on_time_plan(frontier, 1.02 * frontier.t_min_s, 0.03)
    assert plan.time_s < 1.1 * frontier.t_min_s


def test_without_jitter_it_is_the_ordinary_plan(frontier):
    t_s = 1.1 * frontier.t_min_s
    ordinary = frontier.plan(t_s)
    assert on_time_plan(frontier, t_s, 0.0) == replace(ordinary, lower_bound_j=frontier.lower_bound_j(t_s))


plans = st.lists(
    st.builds(
        Plan,
        frequency_mhz=st.just({}),
        time_s=st.floats(1.0, 2.0),
        energy_j=st.floats(1.0, 2.0),
        lower_bound_j=st.just(0.0),
        switches=st.just(0),
    ),
    max_size=8,
)


@given(plans)
def test_no_plan_of_a_table_dominates_another(found):
    best = undominated(found)
    assert len(best) == len(found)
    assert all(plan in found for plan in best)
    for one in best:
        assert not any(other.time_s <= one.time_s and other.energy_j < one.energy_j for other in best)
    energies_j = [plan.energy_j for plan in best]
    assert energies_j == sorted(energies_j, reverse=True)
    assert max((plan.time_s for plan in best), default=0.0) <= max((plan.time_s for plan in found), default=0.0)


def test_a_plan_that_ends_early_counts_its_wait_where_a_straggler_sets_the_pace():
    early = Plan({}, 1.0, 10.0, 0.0, 0)
    late = Plan({}, 1.5, 12.0, 0.0, 0)
    assert undominated([early, late]) == [early, early]
    # Within 1.5 s, the early plan takes 10 J and another 0.5 s of waiting at 5 W: more than 12 J.
    assert undominated([early, late], 5.0) == [early, late]
