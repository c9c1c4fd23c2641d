"""Plans with few clock switches."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perseus_ds.simulator
from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.plan import count_switches
from perseus_ds.frontier.switching import SwitchCost, _cheapest_path, switch_aware_plan
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
BLOCKING_POWER_W = 83.64


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), BLOCKING_POWER_W)


def least_by_trying(options_s, options_j, row, prices, penalty_j, most) -> float:
    """The least cost of any path of clocks around the iteration."""
    costs = []
    for path in itertools.product(range(options_s.shape[1]), repeat=row.size):
        switches = sum(a != b for a, b in zip(path, (path[-1], *path[:-1]), strict=True))
        if most < 0 or switches <= most:
            own = sum(options_j[row[i], c] + prices[i] * options_s[row[i], c] for i, c in enumerate(path))
            costs.append(own + penalty_j * switches)
    return min(costs)


@given(seed=st.integers(0, 10_000), penalty_j=st.sampled_from([0.0, 0.3, 2.0]), most=st.sampled_from([-1, 0, 2, 3, 4]))
@settings(max_examples=30, deadline=None)
def test_a_stage_s_path_is_the_cheapest_there_is(seed, penalty_j, most):
    chance = np.random.default_rng(seed)
    options_s, options_j = chance.uniform(0.1, 1.0, (2, 3)), chance.uniform(1.0, 5.0, (2, 3))
    row, prices = chance.integers(0, 2, 6), chance.uniform(0.0, 5.0, 6)
    path = _cheapest_path(options_s, options_j, row, prices, penalty_j, most)
    switches = np.count_nonzero(path != np.roll(path, 1))
    cost = (options_j[row, path] + prices * options_s[row, path]).sum() + penalty_j * switches
    assert most < 0 or switches <= most
    assert cost == pytest.approx(least_by_trying(options_s, options_j, row, prices, penalty_j, most))


@pytest.mark.compiled
@pytest.mark.parametrize(("most", "loses"), [(2, 0.065), (4, 0.022), (8, 0.01)])
def test_few_switches_keep_most_of_the_saving(problem: Problem, most: int, loses: float) -> None:
    """Measured: 6.1, 2.0 and 0.8 %. With the ordinary plan's prices alone it is 15, 5 and 10 %."""
    frontier = solve(problem)
    t_s = 1.009 * frontier.t_min_s
    few = switch_aware_plan(frontier, t_s, SwitchCost(max_switches=most))
    assert few.energy_j < (1 + loses) * frontier.plan(t_s).energy_j


@pytest.mark.compiled
def test_a_penalty_buys_fewer_switches(problem: Problem) -> None:
    frontier = solve(problem)
    plans = [switch_aware_plan(frontier, 1.009 * frontier.t_min_s, SwitchCost(penalty)) for penalty in (0.0, 1.0, 10.0)]
    switches = [plan.switches for plan in plans]
    assert switches == sorted(switches, reverse=True)
    assert switches[-1] < switches[0] / 2


@pytest.mark.compiled
@pytest.mark.parametrize("most", [0, 4])
def test_max_switches_holds_for_every_stage(problem: Problem, most: int) -> None:
    frontier = solve(problem)
    plan = switch_aware_plan(frontier, 1.05 * frontier.t_min_s, SwitchCost(max_switches=most))
    frequencies = np.array([plan.frequency_mhz[one] for one in problem.dag.instructions])
    for order in problem.dag.program_order:
        assert np.count_nonzero(frequencies[order] != np.roll(frequencies[order], 1)) <= most
    assert plan.switches == count_switches(problem.dag, frequencies)
    assert plan.time_s <= 1.05 * frontier.t_min_s * (1 + 1e-9)


@pytest.mark.compiled
def test_a_quick_plan_is_in_time_and_switches_as_seldom(problem: Problem) -> None:
    frontier = solve(problem)
    t_s, cost = 1.02 * frontier.t_min_s, SwitchCost(penalty_j=20.0)
    quick, thorough = (switch_aware_plan(frontier, t_s, cost, thorough=one) for one in (False, True))
    assert quick.time_s <= t_s * (1 + 1e-9)
    assert quick.switches < 0.5 * frontier.plan(t_s).switches
    paid_j = [plan.energy_j + 20.0 * plan.switches for plan in (thorough, quick)]
    assert paid_j[0] <= paid_j[1] < 1.1 * paid_j[0]


@pytest.mark.compiled
def test_without_a_cost_it_is_as_good_as_the_ordinary_plan(problem: Problem) -> None:
    frontier = solve(problem)
    t_s = 1.05 * frontier.t_min_s
    free, ordinary = switch_aware_plan(frontier, t_s, SwitchCost()), frontier.plan(t_s)
    assert free.time_s <= t_s * (1 + 1e-9)
    assert free.energy_j <= ordinary.energy_j


def test_a_time_that_needs_more_switches_is_refused_with_the_nearest_one() -> None:
    """The forward is fastest at one clock, the backward at another."""
    curves = {
        CurveKey(0, Kind.FORWARD): (ProfilePoint(2000, 0.2, 20.0), ProfilePoint(1000, 0.1, 10.0)),
        CurveKey(0, Kind.BACKWARD): (ProfilePoint(2000, 0.1, 20.0), ProfilePoint(1000, 0.2, 10.0)),
    }
    frontier = solve(Problem(schedule_dag("1f1b", 1, 1), Profile(curves, "made up"), 0.0))
    assert frontier.t_min_s == pytest.approx(0.2)
    with pytest.raises(PerseusError, match=r"deadline=0\.3"):
        switch_aware_plan(frontier, 0.2, SwitchCost(max_switches=0))


def test_curves_of_a_stage_that_share_no_clock_are_refused() -> None:
    def curve(*clocks_mhz: int) -> tuple[ProfilePoint, ...]:
        return tuple(ProfilePoint(mhz, 200.0 / mhz, mhz / 10.0) for mhz in clocks_mhz)

    curves = {CurveKey(0, Kind.FORWARD): curve(2000, 1000), CurveKey(0, Kind.BACKWARD): curve(1500, 500)}
    frontier = solve(Problem(schedule_dag("1f1b", 1, 1), Profile(curves, "made up"), 0.0))
    with pytest.raises(PerseusError, match="share a frequency"):
        switch_aware_plan(frontier, frontier.t_star_s, SwitchCost())


def test_impossible_costs_are_refused() -> None:
    with pytest.raises(PerseusError, match="switch penalty: -1"):
        SwitchCost(penalty_j=-1)
    with pytest.raises(PerseusError, match="max_switches: -1"):
        SwitchCost(max_switches=-1)
