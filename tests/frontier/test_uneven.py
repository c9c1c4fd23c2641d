"""Micro-batches that differ: what they make of a plan, judged by a simulation of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.frontier import Frontier, Plan, Problem, solve
from perseus_ds.frontier.observed import at_highest, observed_problem, with_sizes
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.plan import instruction_points
from perseus_ds.frontier.uneven import Uneven, sizes_seen
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.observed import tail_s, with_tail
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

SPREAD = 0.2
STAGES, MICROBATCHES, ITERATIONS = 4, 8, 8


def sizes(seed: int, iterations: int) -> np.ndarray:
    """Return sizes of micro-batches, shape (iterations, micro-batches): mean 1, standard deviation ``SPREAD``."""
    return np.random.default_rng(seed).gamma(SPREAD**-2, SPREAD**2, (iterations, MICROBATCHES))


def times_s(problem: Problem, clocks_mhz, seed: int, iterations: int) -> np.ndarray:
    """Return how long iterations of other micro-batches take, without any tail."""
    took_s, _ = instruction_points(problem, clocks_mhz)
    microbatch = [one.microbatch for one in problem.dag.instructions]
    dag = replace(problem.dag, constants=tuple(replace(one, duration_s=0.0) for one in problem.dag.constants))
    return np.array([dag.makespan(took_s * row[microbatch]) for row in sizes(seed, iterations)])


def traced(profile: Profile, dag) -> list[StageTrace]:
    """Return the traces of baseline iterations at the highest clocks."""
    problem = Problem(dag, profile, 83.64)
    highest = at_highest(problem).clocks_of(dag.instructions)
    measured_s = float(np.median(times_s(problem, highest, 7, ITERATIONS)))
    at_highest_s, _ = instruction_points(problem, highest)
    traces = []
    for stage, order in enumerate(dag.program_order):
        now_s, operations = 0.0, []
        for node in order:
            operations.append(
                TimedOperation(dag.instructions[node].operation, now_s, now_s + float(at_highest_s[node]), 1410)
            )
            now_s = operations[-1].end_s
        microbatch = [one.operation.microbatch for one in operations]
        seen = tuple(map(tuple, sizes(7, ITERATIONS)[:, microbatch].tolist()))
        traces.append(StageTrace(stage, 0, measured_s, tuple(operations), seen))
    return traces


@pytest.fixture(scope="module")
def even(gpt3: Problem) -> Problem:
    curves = {key: points for key, points in gpt3.profile.curves.items() if key.stage < STAGES}
    return Problem(schedule_dag("1f1b", STAGES, MICROBATCHES), Profile(curves, "gpt3"), 83.64)


@pytest.fixture(scope="module")
def frontier(even: Problem) -> Frontier:
    """The frontier of a pipeline whose baseline iterations had differing micro-batches."""
    keys = tuple(sorted({CurveKey.of(one) for one in even.dag.instructions}))
    seen = sizes_seen(traced(even.profile, even.dag), keys)
    assert seen is not None
    highest = at_highest(even)
    clocks_mhz = highest.clocks_of(even.dag.instructions)
    added_s = times_s(even, clocks_mhz, 1, 4000).mean() - highest.time_s
    return solve(with_sizes(replace(even, dag=with_tail(even.dag, added_s)), seen))


def true_time_s(problem: Problem, plan: Plan) -> float:
    return float(times_s(problem, plan.clocks_of(problem.dag.instructions), 2, 4000).mean())


def test_one_mean_per_kind_promises_what_it_cannot_keep(frontier, even):
    ordinary = frontier.plan(frontier.t_min_s)
    assert true_time_s(even, ordinary) > 1.025 * ordinary.time_s


@pytest.mark.parametrize("slower", [1.0, 1.03, 1.1])
def test_a_plan_that_counts_with_them_takes_the_time_that_it_says(frontier, even, slower):
    t_s = slower * frontier.t_min_s
    plan = on_time_plan(frontier, t_s, 0.0)
    assert plan.time_s == pytest.approx(t_s, rel=0.01)
    assert true_time_s(even, plan) == pytest.approx(plan.time_s, rel=0.02)
    assert plan.lower_bound_j <= plan.energy_j < 0.98 * at_highest(frontier.problem).energy_j


def test_it_knows_how_much_iterations_differ(frontier, even):
    plan = on_time_plan(frontier, frontier.t_min_s, 0.0)
    took_s = times_s(even, plan.clocks_of(even.dag.instructions), 2, 4000)
    assert plan.deviation_s == pytest.approx(took_s.std(), rel=0.25)


def test_at_the_highest_clocks_an_iteration_takes_what_the_baseline_took():
    points = (ProfilePoint(1400, 1.0, 300.0), ProfilePoint(1000, 1.3, 240.0))
    profile = Profile({CurveKey(0, kind): points for kind in (Kind.FORWARD, Kind.BACKWARD)}, "made up")
    rows = ((0.8, 1.2, 0.8, 1.2), (1.2, 0.8, 1.2, 0.8)) * 3
    work = [(Kind.FORWARD, 0), (Kind.FORWARD, 1), (Kind.BACKWARD, 0), (Kind.BACKWARD, 1)]
    operations = tuple(
        TimedOperation(Operation(kind, microbatch), float(at), at + 1.0, 1400)
        for at, (kind, microbatch) in enumerate(work)
    )
    problem = observed_problem([StageTrace(0, 0, 4.3, operations, rows)], profile, 60.0, 1)
    assert problem.uneven is not None
    assert problem.uneven.spread == pytest.approx(0.2)
    # One stage has no slack that differences could use up: they are no part of the tail.
    assert (problem.uneven.tail_s, tail_s(problem.dag)) == (pytest.approx(0.0, abs=0.05), pytest.approx(0.3))
    assert at_highest(problem).time_s == pytest.approx(4.3)


def test_a_drawn_micro_batch_keeps_its_sizes_on_all_stages():
    dag = schedule_dag("1f1b", 2, 3)
    keys = tuple(sorted({CurveKey.of(one) for one in dag.instructions}))
    seen = np.outer(np.arange(1.0, 7.0), np.ones(len(keys)))
    curve_of = np.array([keys.index(CurveKey.of(one)) for one in dag.instructions])
    drawn = Uneven(seen).drawn(dag.instructions, curve_of, np.random.default_rng(1), 50)
    microbatch = np.array([one.microbatch for one in dag.instructions])
    for number in range(3):
        mine = drawn[:, microbatch == number]
        assert (mine == mine[:, :1]).all()
    assert set(np.unique(drawn)) == set(range(1, 7))


def test_a_stage_that_tells_nothing_has_micro_batches_alike():
    dag = schedule_dag("1f1b", 2, 2)
    keys = tuple(sorted({CurveKey.of(one) for one in dag.instructions}))

    def stage(number: int, seen) -> StageTrace:
        order = [dag.instructions[node].operation for node in dag.program_order[number]]
        return StageTrace(number, 0, 1.0, tuple(TimedOperation(one, 0.0, 1.0) for one in order), seen)

    silent = [stage(0, ()), stage(1, ())]
    assert sizes_seen(silent, keys) is None
    found = sizes_seen([stage(0, ()), stage(1, ((0.5, 0.5, 1.5, 1.5),) * 2)], keys)
    assert found is not None
    assert found.tolist() == [[1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 1.5, 1.5]] * 2
