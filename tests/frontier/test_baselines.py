"""The other planners."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Plan, Problem, evaluate, solve
from perseus_ds.frontier.baselines import BASELINES, _nearest, baseline_plans, max_frequencies
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, make_profile

SLOW = curve((1400, 0.10, 30.0), (1200, 0.12, 25.0), (1000, 0.15, 24.0))
FAST = curve((1400, 0.05, 15.0), (1000, 0.08, 10.0), (500, 0.12, 7.0))


def two_stages(fast_backward: list = FAST) -> Problem:
    """A slow stage, then a fast one."""
    curves = {
        CurveKey(0, Kind.FORWARD): SLOW,
        CurveKey(0, Kind.BACKWARD): SLOW,
        CurveKey(1, Kind.FORWARD): FAST,
        CurveKey(1, Kind.BACKWARD): fast_backward,
    }
    return Problem(schedule_dag("1f1b", 2, 4), make_profile(curves), 20.0)


def clocks(plan: Plan, stage: int, *kinds: Kind) -> set[int]:
    return {mhz for one, mhz in plan.frequency_mhz.items() if one.stage == stage and one.kind in (kinds or Kind)}


def test_no_other_planner_beats_the_lower_bound() -> None:
    problem = Problem(schedule_dag("1f1b", 4, 6), same_everywhere(4, convex_points(12)), 75.0)
    frontier = solve(problem)
    for planner in BASELINES:
        plans = baseline_plans(problem, planner)
        assert plans == sorted(plans, key=lambda plan: plan.time_s)
        for plan in plans:
            assert plan.time_s >= frontier.t_min_s * (1 - 1e-12)
            assert plan.energy_j >= frontier.lower_bound_j(plan.time_s) * (1 - 1e-9)


def test_zeus_has_one_clock_for_all_stages_or_one_that_balances_each() -> None:
    problem = two_stages()
    shared = baseline_plans(problem, "zeus-global")
    assert [(clocks(plan, 0), clocks(plan, 1)) for plan in shared] == [({1400}, {1400}), ({1000}, {1000})]
    # The fast stage is as slow as it may be without being slower than the other.
    balanced = baseline_plans(problem, "zeus-per-stage")
    pairs = [(clocks(plan, 0), clocks(plan, 1)) for plan in balanced]
    assert pairs == [({1400}, {1000}), ({1200}, {500}), ({1000}, {500})]


def test_a_clock_that_a_curve_lacks_is_the_next_one_up() -> None:
    (plan, *_) = baseline_plans(two_stages(curve((1300, 0.05, 15.0), (1100, 0.08, 10.0))), "zeus-per-stage")
    assert clocks(plan, 1, Kind.FORWARD) == {1000}
    assert clocks(plan, 1, Kind.BACKWARD) == {1100}


def test_a_curve_that_ends_below_a_clock_runs_at_its_highest() -> None:
    problem = two_stages(curve((900, 0.05, 15.0), (500, 0.08, 10.0)))
    nearest = dict(zip(problem.dag.instructions, _nearest(problem, 1400).tolist(), strict=True))
    assert {mhz for one, mhz in nearest.items() if (one.stage, one.kind) == (1, Kind.BACKWARD)} == {900}
    assert {mhz for one, mhz in nearest.items() if one.stage == 0} == {1400}


def test_curves_without_a_common_clock_leave_zeus_the_highest() -> None:
    problem = two_stages(curve((1300, 0.05, 15.0)))
    (plan,) = baseline_plans(problem, "zeus-global")
    assert plan == evaluate(problem, max_frequencies(problem))
    assert clocks(plan, 1, Kind.BACKWARD) == {1300}


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 3), (4, 8)])
def test_envpipe_slows_each_stage_as_far_as_its_envelope_allows(stages: int, microbatches: int) -> None:
    points = convex_points(30)
    slower = [point._replace(time_s=1.3 * point.time_s) for point in points]
    curves = {
        CurveKey(stage, kind): slower if stage == stages - 1 else points
        for stage in range(stages)
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    problem = Problem(schedule_dag("1f1b", stages, microbatches), make_profile(curves), 75.0)
    (plan,) = baseline_plans(problem, "envpipe")
    fastest = evaluate(problem, max_frequencies(problem))
    assert plan.time_s == pytest.approx(fastest.time_s)
    instructions = problem.dag.instructions
    envelope = [
        one.stage == stages - 1 or (one.kind, one.microbatch) in ((Kind.FORWARD, 0), (Kind.BACKWARD, microbatches - 1))
        for one in instructions
    ]
    now = np.array([plan.frequency_mhz[one] for one in instructions])
    assert (now[envelope] == 1410).all()
    for stage in range(stages - 1):
        here = np.array([one.stage == stage for one in instructions]) & ~np.array(envelope)
        (mhz,) = set(now[here].tolist())
        assert mhz < 1410
        assert evaluate(problem, np.where(here, mhz - 15, now)).time_s > 1.0001 * fastest.time_s
