"""Plans for jittering clocks, judged by a simulation of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.frontier import Frontier, Plan, Problem, solve
from perseus_ds.frontier.lateness import neighbours_of, no_blame, run_late
from perseus_ds.frontier.on_time import _around, _best_moves, _hasten, _save, _take, _Terms, on_time_plan, undominated
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint


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


def test_a_stall_counts_without_jitter_too(gpt3):
    frontier = solve(replace(gpt3, profile=replace(gpt3.profile, request_stall_s=0.002)))
    t_s = 1.1 * frontier.t_min_s
    plan = on_time_plan(frontier, t_s, 0.0)
    assert (plan.time_s, plan.energy_j) == pytest.approx(simulate(frontier.problem, plan, 0.0, draws=1))
    assert plan.time_s < 1.001 * t_s


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


# One stage: every instruction is always critical, so a move changes exactly what the blame says.
LATE_S = 0.002


@pytest.fixture
def alone():
    """Neighbours of one stage with three micro-batches and four clocks, and late and early draws of the same size."""
    points = ((1400, 0.1, 40.0), (1200, 0.11, 32.0), (1000, 0.13, 27.0), (800, 0.16, 25.0))
    curves = {
        CurveKey(0, kind): tuple(ProfilePoint(mhz, long * time_s, long * energy_j) for mhz, time_s, energy_j in points)
        for kind, long in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 1.7))
    }
    profile = Profile(curves, "made up", request_stall_s=0.003)
    nodes = neighbours_of(Problem(schedule_dag("1f1b", 1, 3), profile, 50.0))
    return nodes, np.array([[LATE_S] * 6, [-LATE_S] * 6])


def terms(limit_s: float, dearest_w: float = np.inf, waiting_w: float = 50.0) -> _Terms:
    return _Terms(limit_s, LATE_S / 2, waiting_w, dearest_w)


def test_a_move_changes_time_and_energy_as_it_is_said_to(alone):
    nodes, late_s = alone
    chance = np.random.default_rng(3)
    for _ in range(5):
        clock, blame = chance.integers(0, 4, 6), no_blame(6)
        before = run_late(nodes, clock, late_s, blame)
        for node in range(6):
            for other in range(4):
                said = np.subtract(
                    _around(nodes, clock, blame, terms(1.0), node, other),
                    _around(nodes, clock, blame, terms(1.0), node, clock[node]),
                )
                moved = clock.copy()
                moved[node] = other
                assert said == pytest.approx(np.subtract(run_late(nodes, moved, late_s, no_blame(6)), before))


def test_the_best_move_wins_most_time_per_joule_or_most_joules_per_second(alone):
    nodes, late_s = alone
    clock, blame, waiting_w = np.array([2, 1, 1, 3, 0, 2]), no_blame(6), 50.0
    time_s, energy_j = run_late(nodes, clock, late_s, blame)
    for faster in (True, False):
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms(1.0), faster)
        for node in range(6):
            values = {}
            for other in set(range(4)) - {int(clock[node])}:
                moved = clock.copy()
                moved[node] = other
                then_s, then_j = run_late(nodes, moved, late_s, no_blame(6))
                wins_s, costs_j = time_s - then_s, then_j - energy_j + waiting_w * (then_s - time_s)
                if faster and other > clock[node]:
                    values[other] = wins_s / max(costs_j, 1e-4)
                elif not faster and costs_j < 0:
                    values[other] = -costs_j / max(-wins_s, 1e-6)
                if to[node] == other:
                    assert (-change_s[node], cost_j[node]) == pytest.approx((wins_s, costs_j))
            assert to[node] == max(values, key=lambda one: values[one], default=-1)


def test_moves_are_made_cheapest_first_and_never_two_beside_each_other(alone):
    nodes, _ = alone
    to, size_s, price = np.full(6, 3), np.full(6, 0.01), np.array([3.0, 1.0, 2.0, 9.0, 4.0, np.inf])
    order = [int(node) for node in np.argsort(price)]
    first = order[0]
    beside = {int(nodes.before[first]), int(nodes.after[first])}
    second = next(node for node in order[1:] if node not in beside)
    for most_s, fitting, taken in ((0.01, False, {first}), (0.011, False, {first, second}), (0.011, True, {first})):
        clock = np.zeros(6, dtype=np.int64)
        assert _take(nodes, clock, to, size_s, price, most_s, fitting) == len(taken)
        assert set(np.flatnonzero(clock)) == taken
    clock = np.zeros(6, dtype=np.int64)
    taken = _take(nodes, clock, to, size_s, price, 1.0, False)
    moved = np.flatnonzero(clock)
    assert taken == moved.size >= 2
    assert 5 not in moved
    assert not any(nodes.after[node] in moved for node in moved)


@pytest.mark.parametrize(("dearest", "moves"), [(1.3, True), (0.7, False)])
def test_a_late_plan_gets_faster_unless_a_second_is_too_dear(alone, dearest, moves):
    nodes, late_s = alone[0]._replace(stall_s=0.0), alone[1]
    clock, blame = np.full(6, 2), no_blame(6)
    time_s, energy_j = run_late(nodes, clock, late_s, blame)
    then_s, then_j = run_late(nodes, np.full(6, 3), late_s, blame)
    waiting_w = 0.7 * (then_j - energy_j) / (time_s - then_s)
    costs_w = (then_j - energy_j) / (time_s - then_s) - waiting_w
    _hasten(nodes, clock, late_s, terms(then_s * 1.0001, dearest * costs_w, waiting_w))
    assert run_late(nodes, clock, late_s, blame)[0] == pytest.approx(then_s if moves else time_s)


def test_time_that_is_left_is_spent_on_lower_clocks(alone):
    nodes, late_s = alone
    clock, blame = np.full(6, 3), no_blame(6)
    time_s, energy_j = run_late(nodes, clock, late_s, blame)
    _save(nodes, clock, late_s, terms(1.1 * time_s))
    then_s, then_j = run_late(nodes, clock, late_s, blame)
    assert 1.05 * time_s < then_s <= 1.1 * time_s
    assert then_j + 50.0 * then_s < energy_j + 50.0 * time_s
