"""Plans for clocks that take time to change, checked by simulating one iteration event by event."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Plan, Problem, solve
from perseus_ds.frontier.plan import count_switches, evaluate
from perseus_ds.frontier.switching import (
    SwitchCost,
    delayed_points,
    evaluate_delayed,
    switch_aware_plan,
    switch_curve,
)
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
BLOCKING_POWER_W = 83.64
LATENCY_S = 0.020


def simulate(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Run one iteration: an instruction asks for its clock as it begins and gets it LATENCY_S later.

    Returns:
        Iteration time and energy.
    """
    points = {(key, p.frequency_mhz): p for key in problem.keys for p in problem.profile.curve(key)}
    dag = problem.dag
    clock = {stage: plan.frequency_mhz[dag.instructions[order[-1]]] for stage, order in enumerate(dag.program_order)}
    ends, busy_s, busy_j = np.zeros(dag.nodes), 0.0, 0.0
    begin, tails = dag.predecessors
    for node in dag.topological_order.tolist():
        one = dag.instructions[node]
        time_s = max((ends[t] for t in tails[begin[node] : begin[node + 1]]), default=0.0)
        key, asked_mhz = problem.keys[problem.curve_of[node]], plan.frequency_mhz[one]
        left, until_switch_s = 1.0, LATENCY_S if clock[one.stage] != asked_mhz else 0.0
        old = points[key, clock[one.stage]]
        done = min(left, until_switch_s / old.time_s)
        new = points[key, asked_mhz]
        ends[node] = time_s + done * old.time_s + (left - done) * new.time_s
        busy_s += ends[node] - time_s
        busy_j += done * old.energy_j + (left - done) * new.energy_j
        clock[one.stage] = asked_mhz
    return ends.max(), busy_j + BLOCKING_POWER_W * (dag.stages * ends.max() - busy_s)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), BLOCKING_POWER_W)


def test_switch_aware_keeps_the_time_where_the_naive_plan_does_not(problem: Problem) -> None:
    frontier = solve(problem)
    highest_s = frontier.t_min_s
    baseline_j = problem.energy_j(
        sum(c.effective_j[0] * np.count_nonzero(problem.curve_of == i) for i, c in enumerate(problem.options)),
        highest_s,
    )
    naive = frontier.plan(highest_s)
    naive_s, _ = simulate(problem, naive)
    assert naive_s > 1.01 * highest_s

    aware = switch_aware_plan(frontier, 1.009 * highest_s, SwitchCost(LATENCY_S))
    aware_s, aware_j = simulate(problem, aware)
    assert aware_s <= 1.01 * highest_s
    assert aware_s == pytest.approx(aware.time_s)
    assert aware_j == pytest.approx(aware.energy_j)
    assert (1 - naive.energy_j / baseline_j) - (1 - aware_j / baseline_j) <= 0.005


def test_a_penalty_buys_fewer_switches(problem: Problem) -> None:
    frontier = solve(problem)
    plans = switch_curve(frontier, 1.009 * frontier.t_min_s, LATENCY_S, [0.0, 1.0, 10.0])
    switches = [plan.switches for plan in plans]
    assert switches == sorted(switches, reverse=True)
    assert switches[-1] < switches[0] / 2


@pytest.mark.parametrize("most", [0, 4])
def test_max_switches_holds_for_every_stage(problem: Problem, most: int) -> None:
    frontier = solve(problem)
    plan = switch_aware_plan(frontier, 1.05 * frontier.t_min_s, SwitchCost(LATENCY_S, max_switches=most))
    frequencies = np.array([plan.frequency_mhz[one] for one in problem.dag.instructions])
    for order in problem.dag.program_order:
        assert np.count_nonzero(frequencies[order] != np.roll(frequencies[order], 1)) <= most
    assert plan.switches == count_switches(problem.dag, frequencies)
    assert plan.time_s <= 1.05 * frontier.t_min_s * (1 + 1e-9)


def test_a_plan_evaluated_again_with_its_latency_is_the_same(problem: Problem) -> None:
    frontier = solve(problem)
    plan = switch_aware_plan(frontier, 1.009 * frontier.t_min_s, SwitchCost(LATENCY_S))
    frequencies = np.array([plan.frequency_mhz[one] for one in problem.dag.instructions])
    assert evaluate_delayed(problem, frequencies, plan.switch_latency_s, plan.lower_bound_j) == plan
    assert evaluate_delayed(problem, frequencies, 0.0) == evaluate(problem, frequencies)


def test_a_clock_comes_late_also_where_the_curves_share_none() -> None:
    def curve(*clocks_mhz: int) -> tuple[ProfilePoint, ...]:
        return tuple(ProfilePoint(mhz, 200.0 / mhz, mhz / 10.0) for mhz in clocks_mhz)

    curves = {CurveKey(0, Kind.FORWARD): curve(2000, 1000), CurveKey(0, Kind.BACKWARD): curve(1500, 500)}
    problem = Problem(schedule_dag("1f1b", 1, 1), Profile(curves, "made up"), 0.0)
    times, _ = delayed_points(problem, np.array([1000, 500]), LATENCY_S)
    # The backward runs LATENCY_S at the forward's 1000 MHz: half way from 500 to 1500, so (0.4 + 0.133) / 2 long.
    late = LATENCY_S / ((0.4 + 200.0 / 1500) / 2)
    assert times[1] == pytest.approx(LATENCY_S + (1 - late) * 0.4)


def test_impossible_costs_are_refused() -> None:
    with pytest.raises(PerseusError, match="switch latency: -1"):
        SwitchCost(latency_s=-1)
