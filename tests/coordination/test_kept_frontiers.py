"""Frontiers are solved once per pipeline group and condition, as long as they are kept."""

from dataclasses import replace

import numpy as np
import pytest
from made_up_job import PROFILE, traces

from perseus_ds.coordination import kept_frontiers
from perseus_ds.coordination.derived_profiles import scaled_profile, slowed_profile
from perseus_ds.coordination.kept_frontiers import KeptFrontiers
from perseus_ds.coordination.plan_table import FrequencyPlan
from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

PROBLEM = Problem(dag_from_traces(traces(2)), PROFILE, 60.0)
SLOWER = Problem(dag_from_traces(traces(2)), scaled_profile(PROFILE, np.array([1.2, 1.2])), 60.0)
HEALTHY, SLOW = (0, (1.0, 1.0)), (0, (1.0, 1.3))


@pytest.fixture
def solved(monkeypatch) -> list[Problem]:
    """All problems that are solved from now on."""
    problems: list[Problem] = []

    def counted(problem, *arguments):
        problems.append(problem)
        return solve(problem, *arguments)

    monkeypatch.setattr(kept_frontiers, "solve", counted)
    return problems


def plans(*times_s: float) -> list[FrequencyPlan]:
    return [FrequencyPlan(time_s, 100.0 - time_s, 90.0, ({}, {}), 0) for time_s in times_s]


def test_a_frontier_is_solved_once_whoever_asks_again(solved):
    kept = KeptFrontiers([PROBLEM, SLOWER])
    assert kept.healthy == (HEALTHY, (1, (1.0, 1.0)))
    first = kept.solve(kept.healthy)
    more = kept.solve([SLOW, *kept.healthy])
    assert all(more[which] is first[which] for which in kept.healthy)
    assert list(more) == [SLOW, *kept.healthy]
    assert solved[:2] == [PROBLEM, SLOWER]
    assert len(solved) == 3
    assert set(kept._kept) == {SLOW, *kept.healthy}


def test_a_straggler_s_frontier_is_that_of_its_slowed_profile():
    found = KeptFrontiers([SLOWER, PROBLEM], tolerance=0.0).solve([(1, (1.0, 1.3))])[1, (1.0, 1.3)]
    slow = slowed_profile(PROFILE, np.array([1.0, 1.3]), PROBLEM.stage_power_w)
    expected = solve(Problem(PROBLEM.dag, slow, 60.0))
    assert found.t_min_s == expected.t_min_s > solve(PROBLEM).t_min_s
    assert found.effective_j.tolist() == expected.effective_j.tolist()


def test_a_gpu_under_a_ceiling_has_no_higher_clock_for_when_it_has_rested(solved):
    rested = dict.fromkeys(PROBLEM.dag.instructions, 0.9)
    KeptFrontiers([replace(PROBLEM, rested=rested)]).solve([(0, (1.3, -900.0))])
    assert {one.stage for one in solved[0].rested} == {0}, "a factor slows a rested GPU as any other"


def test_the_tolerance_is_the_solver_s(monkeypatch):
    tolerances = []
    monkeypatch.setattr(kept_frontiers, "solve", lambda problem, tolerance, _: tolerances.append(tolerance))
    KeptFrontiers([PROBLEM], tolerance=0.02).solve([HEALTHY])
    assert tolerances == [0.02]


def test_progress_goes_on_over_all_that_are_wanted():
    points = [ProfilePoint(mhz, 1400.0 / mhz, 1.0 + (mhz / 1000.0) ** 2) for mhz in range(1400, 400, -15)]
    profile = make_profile({CurveKey(s, kind): points for s in range(4) for kind in (Kind.FORWARD, Kind.BACKWARD)})
    large = Problem(schedule_dag("1f1b", 4, 24), profile, 10.0)
    parts: list[float] = []
    kept = KeptFrontiers([large, large])
    kept.solve(kept.healthy, parts.append)
    assert parts == sorted(parts)
    assert 0.0 < parts[0] < 0.5 < parts[-1] <= 1.0
    begun = len(parts)
    kept.solve(kept.healthy, parts.append)
    assert len(parts) == begun, "nothing is solved again"


def test_plans_along_a_frontier_are_wanted_once_and_join_every_objective_s():
    kept = KeptFrontiers([PROBLEM])
    frontier = kept.solve([HEALTHY])[HEALTHY]
    times_s = kept.missing_times_s(HEALTHY)
    assert times_s[0] == frontier.t_min_s
    assert times_s[-1] == pytest.approx(frontier.t_star_s)
    beyond = plans(14.0)
    first = kept.plan_set(HEALTHY, plans(12.0, 10.0, 11.0, 13.0), lambda which: tuple(beyond))
    assert (first.slowdowns, first.t_min_s, first.t_star_s) == ((1.0, 1.0), frontier.t_min_s, frontier.t_star_s)
    assert first.t_objective_s == 12.0
    assert [point.time_s for point in first.points] == [10.0, 11.0, 12.0, 13.0]
    assert kept.missing_times_s(HEALTHY) == ()
    second = kept.plan_set(HEALTHY, plans(10.5), lambda which: pytest.fail("they are kept"))
    assert [*second.beyond] == beyond
    assert [point.time_s for point in second.all_points] == [10.0, 10.5, 11.0, 13.0, 14.0]
    assert second.t_objective_s == 10.5
    assert [point.time_s for point in second.points] == [10.0, 10.5, 11.0, 13.0]


def test_stragglers_long_gone_are_forgotten_and_healthy_pipelines_never(solved):
    kept = KeptFrontiers([PROBLEM])
    conditions = [(0, (1.0, 1.0 + number / 50)) for number in range(1, 19)]
    kept.solve([HEALTHY])
    for which in conditions[:16]:
        kept.solve([which])
    kept.solve(conditions[:1])  # wanted again: the second one is the oldest now
    kept.solve(conditions[16:17])
    assert set(kept._kept) == {HEALTHY, conditions[0], *conditions[2:17]}
    kept.solve(conditions)
    assert set(kept._kept) == {HEALTHY, *conditions}, "all that are wanted at once stay"
    assert len(solved) == 1 + 17 + 2
