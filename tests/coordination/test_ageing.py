"""GPUs at their power limit get slower as they warm up: so does the baseline, and a part of the plan."""

from dataclasses import replace

import pytest
from made_up_plans import DAG, first_table

from perseus_ds.coordination.ageing import ageing
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey

LAST = frozenset(CurveKey(1, kind) for kind in (Kind.FORWARD, Kind.BACKWARD))


def limited(curves: frozenset[CurveKey]) -> PlanTable:
    """Return a table of two pipelines whose curves run at the limit at 1,400 MHz."""
    table = first_table(2)
    return replace(table, groups=(replace(table.groups[0], limited=curves),))


def ages(table: PlanTable, clocks_mhz: tuple[int, int], slower: float = 0.01) -> float:
    """Return what share of the slowing plans show, with one clock for each stage, on the second pipeline."""
    fastest = table.groups[0].base.points[0]
    clocks = tuple({one.operation: clocks_mhz[k] for one in DAG.instructions if one.stage == k} for k in range(2))
    slow = tuple({one.operation: 800 for one in DAG.instructions if one.stage == k} for k in range(2))
    return ageing(table, [replace(fastest, clocks_mhz=slow), replace(fastest, clocks_mhz=clocks)], slower) / slower


def test_a_plan_ages_as_far_as_its_critical_path_runs_at_the_limit() -> None:
    table = limited(LAST)
    assert ages(table, (1400, 1400)) == 1.0
    assert ages(table, (1400, 1200)) == 0.0, "below the limit, no clock falls"
    assert 0.1 < ages(table, (800, 1400)) < 0.8, "the first stage, which does not get slower, is critical too"


def test_a_clock_just_below_the_limit_ages_as_the_limit_comes_down_to_it() -> None:
    """Seen on a virtual B200: at 1,484 MHz an instruction took 0.4 % longer than at what the limit made of 1,965."""
    table = limited(LAST)
    (group,) = table.groups
    near = {(key, 1200): group.expected_s(key, 1400) * 1.004 for key in LAST}
    close = replace(table, groups=(replace(group, expected_times_s={**group.expected_times_s, **near}),))
    assert 0.4 < ages(close, (1400, 1200)) < 0.8
    assert 0.85 < ages(close, (1400, 1200), slower=0.05) < 0.95
    assert ages(table, (1400, 1200)) == 0.0


def test_where_nothing_runs_at_the_limit_plans_get_slower_as_the_job_does() -> None:
    assert ages(limited(frozenset()), (1200, 1200)) == 1.0
    few = frozenset({CurveKey(0, Kind.FORWARD)})
    assert ages(limited(few), (1200, 1200)) == 1.0, "7 % of the critical path do not make a baseline slow"


def test_a_gpu_that_mostly_runs_lower_clocks_has_room_for_the_highest_now_and_then() -> None:
    table = limited(LAST)
    plan = replace(table.groups[0].base.points[0], clocks_mhz=({}, {}))
    for operation in (one.operation for one in DAG.instructions):
        plan.clocks_mhz[0][operation] = 1400
        plan.clocks_mhz[1][operation] = 1400 if operation.kind is Kind.FORWARD else 1200
    assert ageing(table, [plan, plan], 0.01) == 0.0, "backwards are two thirds of the work"
    for operation in plan.clocks_mhz[1]:
        plan.clocks_mhz[1][operation] = 1400 if operation.kind is Kind.BACKWARD else 1200
    assert 0.5 < ageing(table, [plan, plan], 0.01) / 0.01 < 0.8


@pytest.mark.parametrize("plan", range(5))
def test_plans_with_lower_clocks_age_less(plan) -> None:
    table = limited(LAST)
    points = table.groups[0].base.points
    shares = [ageing(table, [one, one], 0.01) / 0.01 for one in points]
    assert shares[0] > 0.9
    assert shares[plan] <= shares[0]
