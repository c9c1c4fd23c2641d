"""Plans: evaluation, switches, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Frontier, Plan, Problem, evaluate, solve
from perseus_ds.frontier.plan import count_switches
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return solve(Problem(schedule_dag("1f1b", 3, 4), same_everywhere(3, convex_points(8)), 50.0))


def test_plans_survive_json(frontier: Frontier) -> None:
    plan = frontier.plan(1.1 * frontier.t_min_s)
    aimed = replace(plan, switch_jitter_s=0.01, aims_s=dict.fromkeys(list(plan.frequency_mhz)[2:5], 0.004))
    for one in (plan, aimed):
        assert Plan.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_faster_than_the_fastest_is_refused(frontier: Frontier) -> None:
    with pytest.raises(PerseusError, match=r"iteration time: 0\.1 s is not allowed"):
        frontier.plan(0.1)


def test_switches_are_counted_around_the_iteration() -> None:
    dag = schedule_dag("1f1b", 2, 2)
    clocks = np.zeros(len(dag.instructions), dtype=np.int64)
    assert count_switches(dag, clocks) == 0
    clocks[dag.program_order[0][1]] = 1  # up, and down again
    clocks[dag.program_order[1][-1]] = 1  # up at the end, and down at the next iteration's start
    assert count_switches(dag, clocks) == 4


def test_a_plan_is_its_points_and_the_waiting_of_all_stages() -> None:
    points = curve((1400, 0.1, 30.0), (1000, 0.2, 20.0))
    problem = Problem(schedule_dag("1f1b", 2, 1), same_everywhere(2, points), 50.0)
    plan = evaluate(problem, [1400, 1000, 1000, 1400], lower_bound_j=90.0)
    assert plan.time_s == pytest.approx(0.1 + 0.2 + 0.2 + 0.1)
    assert plan.energy_j == pytest.approx(2 * (30 + 20) + 50 * 2 * 0.3)
    assert plan.gap == pytest.approx(130 / 90 - 1)
    assert [(one.stage, mhz) for one, mhz in plan.frequency_mhz.items()] == [(0, 1400), (0, 1000), (1, 1000), (1, 1400)]
    assert replace(plan, lower_bound_j=0.0).gap == replace(plan, lower_bound_j=131.0).gap == 0.0


@pytest.mark.parametrize("mhz", [999, 1100, 1500])
def test_frequencies_that_were_not_measured_are_refused(mhz: int) -> None:
    problem = Problem(schedule_dag("1f1b", 1, 1), same_everywhere(1, curve((1400, 1, 3), (1000, 2, 2))), 0.0)
    with pytest.raises(PerseusError, match=f"frequency: {mhz} is not allowed"):
        evaluate(problem, [1400, mhz])
