"""Look-ups in a plan table: two pipelines of two stages, plans at 10, 11, 12 and 13 seconds."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.coordination.plan_table import FrequencyPlan, PipelineGroup, PlanSet, PlanTable, StragglerPlans
from perseus_ds.pipeline.schedules import schedule_dag

HEALTHY = np.ones((2, 2))


def route(times_s, slowdowns=(1.0, 1.0)) -> PlanSet:
    points = tuple(FrequencyPlan(time_s, 100.0 - time_s, 90.0, ({}, {}), 0) for time_s in times_s)
    return PlanSet(slowdowns, times_s[0], times_s[-1], times_s[0], points)


@pytest.fixture
def table():
    dag = schedule_dag("1f1b", stages=2, microbatches=4)
    fastest_s = np.ones(len(dag.instructions))
    assert dag.makespan(fastest_s) == pytest.approx(10.0)
    peers = PipelineGroup(dag, fastest_s, route([10.0, 11.0, 12.0, 13.0]), 100.0, 10.0, 5.0, {})
    return PlanTable(1, 4, 10.0, (peers,), (0, 0))


def test_without_stragglers_everybody_runs_the_fastest_plan(table):
    assert [point.time_s for point in table.choose(HEALTHY)] == [10.0, 10.0]


@pytest.mark.parametrize(("slowdown", "t_opt_s"), [(1.1, 10.0), (1.15, 11.0), (1.25, 12.0), (2.0, 13.0)])
def test_the_others_run_the_slowest_plan_within_t_prime_but_never_beyond_t_star(table, slowdown, t_opt_s):
    slowdowns = np.array([[1.0, 1.0], [1.0, slowdown]])
    assert table.t_prime_s(slowdowns) == pytest.approx(2 + 8 * slowdown)
    others, straggler = table.choose(slowdowns)
    assert others.time_s == t_opt_s
    assert straggler.time_s == 10.0  # it has no plan of its own yet, and must not slow down further


def test_the_straggler_runs_its_own_frontier_once_it_has_one(table):
    slowdowns = np.array([[1.0, 1.0], [1.0, 1.5]])
    straggler_plans = route([14.0, 15.0], slowdowns=(1.0, 1.5))
    assert table.missing(slowdowns) == [(0, (1.0, 1.5))]
    with_detour = table.with_straggler_plans(StragglerPlans(2, {(0, (1.0, 1.5)): straggler_plans}))
    assert with_detour.version == 2
    assert not with_detour.missing(slowdowns)
    assert [point.time_s for point in with_detour.choose(slowdowns)] == [13.0, 14.0]
    # As soon as it has recovered, the straggler_plans no longer fits.
    assert [point.time_s for point in with_detour.choose(HEALTHY)] == [10.0, 10.0]


def test_a_slower_objective_is_kept(table):
    base = PlanSet((1.0, 1.0), 10.0, 13.0, 11.5, table.peers[0].base.points)
    relaxed = replace(table, peers=(replace(table.peers[0], base=base),))
    assert relaxed.choose(HEALTHY)[0].time_s == 11.0


def test_old_detours_are_forgotten_before_they_fill_the_memory(table):
    for version in range(2, 60):
        condition = (1.0, 1.0 + version / 100)
        table = table.with_straggler_plans(
            StragglerPlans(version, {(0, condition): route([14.0], slowdowns=condition)})
        )
    assert len(table.peers[0].straggler_plans) == 16
    assert condition in table.peers[0].straggler_plans
