"""Objectives: what each asks of a frontier, what the other planners have for it, and its written forms."""

from __future__ import annotations

from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Frontier, Problem, evaluate, solve
from perseus_ds.frontier.baselines import baseline_plans, max_frequencies
from perseus_ds.frontier.objectives import Deadline, MinEnergy, MinTime, Objective, Slowdown
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
pytestmark = pytest.mark.compiled  # every test plans a pipeline of 192 instructions
EVERY = (MinTime(), MinEnergy(), Slowdown(1.05), Deadline(3.0), PowerCap(1600.0), JobPower(1600.0))


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return solve(Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64))


def made_up(time_s: float, energy_j: float) -> Plan:
    return Plan({}, time_s, energy_j, 0.0, 0)


def test_min_time_is_the_fastest_and_saves(frontier: Frontier) -> None:
    plan = MinTime().plan(frontier)
    assert MinTime().target_time_s(frontier) == frontier.t_min_s
    assert plan.time_s <= frontier.t_min_s
    assert plan.energy_j < evaluate(frontier.problem, max_frequencies(frontier.problem)).energy_j


def test_a_limit_in_time_is_used_up_as_far_as_that_saves(frontier: Frontier) -> None:
    assert Slowdown(1.03).target_time_s(frontier) == pytest.approx(1.03 * frontier.t_min_s)
    assert Deadline(3.0).target_time_s(frontier) == 3.0
    thriftiest_s = MinEnergy().target_time_s(frontier)
    assert frontier.t_min_s < thriftiest_s < frontier.t_star_s
    assert Deadline(100.0).target_time_s(frontier) == Slowdown(9.0).target_time_s(frontier) == thriftiest_s
    assert 0.99 * 3 < Deadline(3.0).plan(frontier).time_s <= 3


def test_min_energy_s_bound_is_the_lowest(frontier: Frontier) -> None:
    time_s = MinEnergy().target_time_s(frontier)
    least_j = frontier.lower_bound_j(time_s)
    assert least_j < frontier.lower_bound_j(0.99 * time_s)
    assert least_j < frontier.lower_bound_j(1.01 * time_s)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Deadline(1.0), r"no plan is faster than 2\.83651 s; closest plan: deadline=2\.83651"),
        (Slowdown(0.9), r"slowdown=0\.9 cannot be met: no plan is faster than 2\.83651 s; closest plan: deadline="),
        (PowerCap(100.0), r"every plan draws (\d+)\.\d+ W or more; closest plan: power_cap=\d+"),
    ],
    ids=str,
)
def test_what_cannot_be_met_says_so(frontier: Frontier, objective: Objective, message: str) -> None:
    with pytest.raises(PerseusError, match=message):
        objective.plan(frontier)


def test_the_closest_to_what_cannot_be_met_is_an_end_of_the_frontier(frontier: Frontier) -> None:
    assert Deadline(1.0).closest_time_s(frontier) == Slowdown(0.9).closest_time_s(frontier) == frontier.t_min_s
    assert PowerCap(100.0).closest_time_s(frontier) == frontier.t_star_s


def test_each_objective_chooses_among_the_plans_of_another_planner(frontier: Frontier) -> None:
    fast, middle, slow, slowest = (made_up(*row) for row in ((2.9, 6000), (3.0, 5100), (3.2, 4000), (3.4, 4600)))
    chosen = {one: one.best_of([fast, middle, slow, slowest], frontier, "another") for one in EVERY}
    assert list(chosen.values()) == [fast, slow, fast, middle, slow, slow]


def test_a_planner_without_a_fitting_plan_says_which_is_closest(frontier: Frontier) -> None:
    with pytest.raises(PerseusError, match=r"planner another has no such plan; closest plan: 3 s, 1700 W"):
        Deadline(2.9).best_of([made_up(3.1, 5000), made_up(3.0, 5100)], frontier, "another")
    (highest,) = baseline_plans(frontier.problem, "max")
    with pytest.raises(PerseusError, match="planner max has no such plan"):
        PowerCap(1.0).best_of([highest], frontier, "max")
