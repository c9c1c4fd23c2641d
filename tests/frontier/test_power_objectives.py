"""A limit on power: kept by the plan, and hardly later than the bound allows."""

from __future__ import annotations

from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
pytestmark = pytest.mark.compiled  # every test plans a pipeline of 192 instructions


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return solve(Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64))


@pytest.mark.parametrize("cap_w", [1600.0, 1650.0, 1700.0])
def test_a_power_cap_is_kept_by_the_plan_and_hardly_later_than_by_the_bound(frontier: Frontier, cap_w: float) -> None:
    cap = PowerCap(cap_w)
    plan, target_s = cap.plan(frontier), cap.target_time_s(frontier)
    assert 0.99 * cap_w < plan.energy_j / plan.time_s <= cap_w
    assert plan == frontier.plan(target_s)
    assert frontier.lower_bound_j(0.98 * target_s) / (0.98 * target_s) > cap_w


def test_a_power_cap_that_the_fastest_keeps_asks_for_the_fastest(frontier: Frontier) -> None:
    assert PowerCap(1e6).target_time_s(frontier) == frontier.t_min_s


def test_a_job_s_power_is_shared_by_its_pipelines() -> None:
    assert JobPower(6400.0).per_pipeline(4) == PowerCap(1600.0)
