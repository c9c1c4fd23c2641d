"""Look-ups in a plan table: two pipelines of two stages, plans at 10, 11, 12 and 13 seconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_plans import DAG, PROFILE, first_table, route_of

from perseus_ds.coordination.plan_table import (
    FrequencyPlan,
    PipelineGroup,
    PlanSet,
    PlanTable,
    StragglerPlans,
    is_slow,
    stage_slowdowns,
)
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey

HEALTHY = np.ones((2, 2))


def route(times_s, slowdowns=(1.0, 1.0)) -> PlanSet:
    points = tuple(FrequencyPlan(time_s, 100.0 - time_s, 90.0, ({}, {}), 0) for time_s in times_s)
    return PlanSet(slowdowns, times_s[0], times_s[-1], times_s[0], points)


def make_table() -> PlanTable:
    dag = schedule_dag("1f1b", stages=2, microbatches=4)
    fastest_s = np.ones(len(dag.instructions))
    assert dag.makespan(fastest_s) == pytest.approx(10.0)
    expected_s = {(CurveKey(0, Kind.FORWARD), 1400): 1.0}
    group = PipelineGroup(dag, fastest_s, route([10.0, 11.0, 12.0, 13.0]), 100.0, 10.0, 5.0, expected_s)
    return PlanTable(1, 4, 10.0, (group,), (0, 0))


@pytest.fixture
def table() -> PlanTable:
    return make_table()


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
    base = PlanSet((1.0, 1.0), 10.0, 13.0, 11.5, table.groups[0].base.points)
    relaxed = replace(table, groups=(replace(table.groups[0], base=base),))
    assert relaxed.choose(HEALTHY)[0].time_s == 11.0


def test_old_detours_are_forgotten_before_they_fill_the_memory(table):
    for version in range(2, 60):
        condition = (1.0, 1.0 + version / 100)
        table = table.with_straggler_plans(
            StragglerPlans(version, {(0, condition): route([14.0], slowdowns=condition)})
        )
    assert len(table.groups[0].straggler_plans) == 16
    assert condition in table.groups[0].straggler_plans


def test_the_latest_straggler_plans_are_those_that_stay(table):
    conditions = [(1.0, 1.0 + number / 100) for number in range(1, 19)]
    several = {(0, condition): route([14.0], slowdowns=condition) for condition in conditions[:16]}
    table = table.with_straggler_plans(StragglerPlans(2, several))
    # The first one again, made anew: it is the latest now.
    anew = route([14.5], slowdowns=conditions[0])
    table = table.with_straggler_plans(StragglerPlans(3, {(0, conditions[0]): anew}))
    table = table.with_straggler_plans(StragglerPlans(4, {(0, conditions[16]): route([15.0])}))
    assert set(table.groups[0].straggler_plans) == {conditions[0], *conditions[2:17]}
    assert table.groups[0].plan_set(conditions[0]) is anew
    assert table.groups[0].plan_set(conditions[1]) is table.groups[0].base
    many = {(0, condition): route([14.0], slowdowns=condition) for condition in conditions}
    table = table.with_straggler_plans(StragglerPlans(5, many))
    assert set(table.groups[0].straggler_plans) == set(conditions), "all that came at once stay"


times = st.floats(5.0, 40.0)


@given(points_s=st.lists(times, min_size=1, max_size=8, unique=True).map(sorted), t_objective_s=times, t_prime_s=times)
def test_a_pipeline_waits_for_the_slowest_or_for_the_objective_but_not_beyond_t_star(
    points_s, t_objective_s, t_prime_s
):
    one = replace(route(points_s), t_objective_s=t_objective_s)
    t_opt_s = one.t_opt_s(t_prime_s)
    if t_objective_s >= max(t_prime_s, one.t_min_s):
        assert t_opt_s == t_objective_s
    else:
        assert t_opt_s == max(t_objective_s, min(one.t_star_s, max(t_prime_s, one.t_min_s)))
    chosen_s = one.point(t_opt_s).time_s
    assert chosen_s == max((time_s for time_s in points_s if time_s <= t_opt_s * (1 + 1e-9)), default=points_s[0])


def test_a_plan_of_exactly_the_time_allowed_is_chosen_though_sums_differ_in_the_last_digit():
    one = route([10.0, 12.0])
    assert one.point(12.0).time_s == one.point(12.0 * (1 - 1e-12)).time_s == 12.0
    assert one.point(12.0 * (1 - 1e-8)).time_s == 10.0
    assert one.point(9.0).time_s == 10.0, "there is nothing faster"


slowness = st.sampled_from([1.0, 1.0, 1.15, 1.3, 1.5])


@given(slowdowns=st.lists(st.tuples(slowness, slowness), min_size=1, max_size=5), planned=st.booleans())
def test_nobody_is_slower_than_the_slowest_must_be_and_equals_run_alike(slowdowns, planned):
    table = replace(make_table(), group_of=(0,) * len(slowdowns))
    rows = np.array(slowdowns)
    t_prime_s = table.t_prime_s(rows)
    assert t_prime_s == pytest.approx(max(table.groups[0].fastest_with_s(condition) for condition in slowdowns))
    slow = {one for one in slowdowns if max(one) > 1.0}
    assert set(table.missing(rows)) == {(0, condition) for condition in slow}
    assert table.missing(rows) == sorted(table.missing(rows))
    if planned:
        routes = {}
        for condition in slow:
            fastest_s = table.groups[0].fastest_with_s(condition)
            routes[0, condition] = route([fastest_s, fastest_s + 1.0], slowdowns=condition)
        table = table.with_straggler_plans(StragglerPlans(2, routes))
        assert not table.missing(rows)
    plans = table.choose(rows)
    assert len(plans) == len(slowdowns)
    for condition, plan in zip(slowdowns, plans, strict=True):
        assert plan.time_s <= t_prime_s * (1 + 1e-9)
        assert plan == plans[slowdowns.index(condition)]
        if condition in slow and not planned:
            assert plan.time_s == 10.0


def test_all_wait_for_a_pipeline_whose_objective_makes_it_slow(table):
    patient = replace(table.groups[0], base=replace(table.groups[0].base, t_objective_s=12.0))
    two = replace(table, groups=(table.groups[0], patient), group_of=(0, 1, 0))
    assert [plan.time_s for plan in two.choose(np.ones((3, 2)))] == [12.0, 12.0, 12.0]


def test_energy_counts_the_waiting_for_the_slowest(table):
    slower = replace(table.groups[0], max_energy_j=200.0, max_time_s=14.0, waiting_w=7.0)
    two = replace(table, groups=(table.groups[0], slower), group_of=(0, 1, 0))
    assert two.of(1) is slower
    assert two.max_time_s == 14.0
    assert two.max_energy_j == pytest.approx((2 * (100.0 + 5.0 * 4.0) + 200.0) / 3)
    fast, slow = (table.groups[0].base.points[index] for index in (0, 3))
    assert two.energy_j((fast, fast, slow)) == pytest.approx((90.0 + 3 * 5.0 + 90.0 + 3 * 7.0 + 87.0) / 3)


def test_an_instruction_that_was_not_measured_is_expected_to_take_no_time(table):
    assert table.groups[0].expected_s(CurveKey(0, Kind.FORWARD), 1400) == 1.0
    assert table.groups[0].expected_s(CurveKey(0, Kind.FORWARD), 1200) == 0.0


@pytest.mark.parametrize(("slowdowns", "slow"), [([1.0, 1.0], False), ([1.0, 1.01], True), ([0.9, 1.0], False)])
def test_a_pipeline_is_slow_when_any_stage_is(slowdowns, slow):
    condition = stage_slowdowns(np.array(slowdowns))
    assert condition == tuple(slowdowns)
    assert is_slow(condition) is slow


def test_a_plan_s_file_tells_every_instruction_s_clock():
    clocks_mhz = ({Operation(Kind.FORWARD, 0): 1400}, {Operation(Kind.BACKWARD, 3, chunk=1): 900})
    told = FrequencyPlan(2.0, 500.0, 450.0, clocks_mhz, 4, 0.01).to_json()
    assert {name: told[name] for name in ("time_s", "energy_j", "lower_bound_j", "switches", "switch_jitter_s")} == {
        "time_s": 2.0,
        "energy_j": 500.0,
        "lower_bound_j": 450.0,
        "switches": 4,
        "switch_jitter_s": 0.01,
    }
    assert [Instruction.from_row(row) for row in told["frequency_mhz"]] == [
        (Instruction(0, Kind.FORWARD, 0), 1400),
        (Instruction(1, Kind.BACKWARD, 3, 1), 900),
    ]


def test_a_stage_held_at_a_clock_takes_its_profiled_times_there():
    held = np.array([[1.0, 1.0], [1.0, -1000.0]])
    table = first_table(2)
    own = route_of((1.0, -1000.0))
    assert table.t_prime_s(held) == pytest.approx(own.t_min_s)
    assert table.t_prime_s(held) == pytest.approx(table.t_prime_s(np.array([[1.0, 1.0], [1.0, 1.4]])))
    assert table.missing(held) == [(0, (1.0, -1000.0))]
    table = table.with_straggler_plans(StragglerPlans(2, {(0, (1.0, -1000.0)): own}))
    _, straggler = table.choose(held)
    assert straggler is own.points[0]
    clocks = set(straggler.clocks_mhz[1].values())
    assert 1400 in clocks, "so that it is seen when the GPU has cooled down"
    assert clocks.isdisjoint({1200, 1000})


def test_a_factor_wastes_what_a_ceiling_does_not():
    """Below its ceiling a hot GPU is as fast as ever: plans for a factor would not know it."""
    held, slower = route_of((-1000.0, 1.0)), route_of((1.4, 1.0))
    assert held.t_min_s == pytest.approx(slower.t_min_s)
    assert held.points[0].energy_j < slower.points[0].energy_j


@pytest.mark.parametrize("point", [0, 2, -1])
def test_a_plan_tells_when_its_instructions_begin(point):
    (group,) = first_table(1).groups
    plan = group.base.points[point]
    clocks = [plan.clocks_mhz[one.stage][one.operation] for one in DAG.instructions]
    times_s = [group.expected_s(CurveKey.of(one), mhz) for one, mhz in zip(DAG.instructions, clocks, strict=True)]
    for stage in range(2):
        begins_s = group.begins_s(plan, stage)
        own = dict(zip(plan.clocks_mhz[stage], begins_s, strict=True))
        assert list(begins_s) == sorted(begins_s), "in program order"
        for row, one in enumerate(DAG.instructions):
            if one.stage == stage:
                assert own[one.operation] == pytest.approx(DAG.starts_s(times_s)[row])
    first = PROFILE.curve(CurveKey(0, Kind.FORWARD))
    assert group.begins_s(plan, 1)[0] == pytest.approx(next(p.time_s for p in first if p.frequency_mhz == clocks[0]))


def test_a_clock_that_was_not_measured_leaves_the_begins_unknown():
    (group,) = first_table(1).groups
    fewer = dict(list(group.expected_times_s.items())[1:])
    highest = next(plan for plan in group.base.points if 1400 in plan.clocks_mhz[0].values())
    assert replace(group, expected_times_s=fewer).begins_s(highest, 0) == ()
