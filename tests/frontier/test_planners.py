"""Objectives, the other planners, plan files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perseus_ds.simulator
from perseus_ds.frontier import Frontier, Plan, Problem, evaluate, solve
from perseus_ds.frontier.baselines import BASELINES, baseline_plans, max_frequencies
from perseus_ds.frontier.objectives import parse_objective, plan_for
from perseus_ds.frontier.zeus import read_zeus_plan, write_zeus_plans
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return solve(Problem(schedule_dag("1f1b", 8, 12), read_profile(PROFILE), 83.64))


def test_min_time_is_the_fastest_and_saves(frontier: Frontier) -> None:
    plan = plan_for(frontier, parse_objective("min_time"))
    assert plan.time_s <= frontier.t_min_s
    assert plan.energy_j < evaluate(frontier.problem, max_frequencies(frontier.problem)).energy_j


def test_slowdown_deadline_and_power_cap_are_kept(frontier: Frontier) -> None:
    assert plan_for(frontier, parse_objective("slowdown=1.03")).time_s <= 1.03 * frontier.t_min_s
    assert plan_for(frontier, parse_objective("deadline=3")).time_s <= 3
    capped = plan_for(frontier, parse_objective("power_cap=1600"))
    assert capped.energy_j / capped.time_s <= 1600


def test_min_energy_uses_least(frontier: Frontier) -> None:
    least = plan_for(frontier, parse_objective("min_energy"))
    others = [plan_for(frontier, parse_objective(text)) for text in ("min_time", "slowdown=1.05", "power_cap=1600")]
    assert all(least.energy_j <= other.energy_j for other in others)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("deadline=1", r"no plan is faster than 2\.83651 s; closest plan: deadline=2\.83651"),
        ("slowdown=0.9", r"no plan is faster than"),
        ("power_cap=100", r"every plan draws .* W or more; closest plan: power_cap="),
    ],
)
def test_what_cannot_be_met_says_so(frontier: Frontier, objective: str, message: str) -> None:
    with pytest.raises(PerseusError, match=message):
        plan_for(frontier, parse_objective(objective))


@pytest.mark.parametrize("text", ["", "fast", "slowdown", "slowdown=x", "deadline=-1", "power_cap=nan", "min_time=3"])
def test_unknown_objectives_list_what_is_allowed(text: str) -> None:
    with pytest.raises(PerseusError, match="allowed: min_time, min_energy, slowdown=FACTOR"):
        parse_objective(text)


def test_no_other_planner_beats_the_lower_bound(frontier: Frontier) -> None:
    for planner in BASELINES:
        plans = baseline_plans(frontier.problem, planner)
        assert plans == sorted(plans, key=lambda plan: plan.time_s)
        for plan in plans:
            assert plan.time_s >= frontier.t_min_s * (1 - 1e-12)
            assert plan.energy_j >= frontier.lower_bound_j(plan.time_s) * (1 - 1e-9)


def test_zeus_plan_files_come_back_as_they_went(frontier: Frontier, tmp_path: Path) -> None:
    plans = [frontier.plan(frontier.t_min_s), frontier.plan(frontier.t_star_s)]
    files = write_zeus_plans(plans, tmp_path)
    assert [file.name for file in files] == ["freqs_pipeline_00000.py", "freqs_pipeline_00001.py"]
    fastest = read_zeus_plan(files[1], frontier.problem)
    assert fastest.frequency_mhz == plans[0].frequency_mhz
    assert fastest.time_s == pytest.approx(plans[0].time_s)


@pytest.mark.parametrize("text", ["", "[[('forward', 1410)]]", "__import__('os')", "[[('forward', 'x')]]", "(("])
def test_other_files_are_no_zeus_plans(frontier: Frontier, tmp_path: Path, text: str) -> None:
    file = tmp_path / "freqs_pipeline_00000.py"
    file.write_text(text)
    with pytest.raises(PerseusError, match="not a Zeus frequency plan"):
        read_zeus_plan(file, frontier.problem)


def test_plans_survive_json(frontier: Frontier) -> None:
    plan = frontier.plan(1.1 * frontier.t_min_s)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_faster_than_the_fastest_is_refused(frontier: Frontier) -> None:
    with pytest.raises(PerseusError, match="iteration time: 1 s is not allowed"):
        frontier.plan(1.0)
