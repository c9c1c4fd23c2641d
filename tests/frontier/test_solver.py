"""Solving: hand-solved cases, robustness, threads, imports."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.dag import Constant, PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, make_profile


def test_two_in_a_row_slow_down_where_a_second_saves_most() -> None:
    forward, backward = Instruction(0, Kind.FORWARD, 0), Instruction(0, Kind.BACKWARD, 0)
    profile = make_profile(
        {
            CurveKey(0, Kind.FORWARD): curve((2, 1.0, 10.0), (1, 2.0, 8.0)),  # 2 W
            CurveKey(0, Kind.BACKWARD): curve((2, 1.0, 10.0), (1, 2.0, 7.0)),  # 3 W
        }
    )
    frontier = solve(Problem(PipelineDag((forward, backward), (), edge_array([(0, 1)])), profile, 0.0))
    assert frontier.times_s == pytest.approx([4, 3, 2])
    assert [frontier.lower_bound_j(t) for t in (2, 2.5, 3, 3.5, 4)] == pytest.approx([20, 18.5, 17, 16, 15])
    assert frontier.plan(3.0).frequency_mhz == {forward: 2, backward: 1}
    assert frontier.start_times(3.0) == pytest.approx([0, 1])
    written = json.loads(json.dumps(frontier.to_json()))
    assert written["times_s"] == pytest.approx([2, 3, 4])
    assert written["lower_bound_j"] == pytest.approx([20, 17, 15])


def test_a_long_solve_tells_how_far_it_is() -> None:
    points = curve(*((mhz, 1400.0 / mhz + 1e-7 * (mhz % 7), 1.0 + (mhz / 1000.0) ** 2) for mhz in range(400, 1410, 15)))
    told: list[float] = []
    frontier = solve(Problem(schedule_dag("1f1b", 4, 24), same_everywhere(4, points), 10.0), on_progress=told.append)
    assert frontier.breakpoints > 256
    assert told
    assert told == sorted(told)
    assert 0 < told[0] < told[-1] <= 1


def test_constants_shift_the_frontier() -> None:
    dag = PipelineDag((Instruction(0, Kind.FORWARD, 0),), (Constant("tail", 0.5),), edge_array([(0, 1)]))
    frontier = solve(Problem(dag, same_everywhere(1, curve((2, 1.0, 10.0), (1, 2.0, 8.0))), 1.0))
    assert (frontier.t_min_s, frontier.t_star_s) == (1.5, 2.5)
    assert frontier.plan(1.5).energy_j == pytest.approx(10 + 0.5)


def test_instructions_that_cost_nothing_have_a_plan() -> None:
    forward, backward = Instruction(0, Kind.FORWARD, 0), Instruction(0, Kind.BACKWARD, 1)
    profile = make_profile(
        {CurveKey(0, Kind.FORWARD): curve((1400, 0.0001, 0.0)), CurveKey(0, Kind.BACKWARD): curve((1400, 0.0625, 0.0))}
    )
    instructions = (forward, backward, Instruction(0, Kind.FORWARD, 2), Instruction(0, Kind.BACKWARD, 3))
    frontier = solve(Problem(PipelineDag(instructions, (), edge_array([])), profile, 75.0))
    for t_s in (frontier.t_min_s, 0.07, frontier.t_star_s):
        assert frontier.plan(frontier.clamp(t_s)).gap == pytest.approx(0, abs=1e-9)


def test_one_frequency_only_has_one_plan() -> None:
    frontier = solve(Problem(schedule_dag("1f1b", 2, 3), same_everywhere(2, curve((1410, 0.1, 30.0))), 75.0))
    assert frontier.t_min_s == frontier.t_star_s
    assert frontier.plan(frontier.t_min_s).gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("tolerance", [3e-4, 1e-3, 1e-2])
def test_tolerance_bounds_the_error(tolerance: float) -> None:
    points = curve(*((1410 - 15 * i, 0.05 + 0.001 * i, 20 / (1 + 0.03 * i)) for i in range(40)))
    problem = Problem(schedule_dag("1f1b", 4, 8), same_everywhere(4, points), 75.0)
    exact, thinned = solve(problem), solve(problem, tolerance)
    assert thinned.breakpoints < exact.breakpoints
    for t_s in np.linspace(exact.t_min_s, exact.t_star_s, 7):
        bound, best = thinned.lower_bound_j(t_s), exact.lower_bound_j(t_s)
        assert best * (1 - tolerance) <= bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_noise_never_gives_negative_or_undefined_energies(seed: int) -> None:
    random = np.random.default_rng(seed)
    profile = make_profile(
        {
            CurveKey(stage, kind): curve(
                *((1410 - 15 * i, *row) for i, row in enumerate(random.uniform((0.01, 0), (0.1, 5), (20, 2)).tolist()))
            )
            for stage in range(4)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
        }
    )  # 0 to 5 J in up to 0.1 s: often far below blocking power
    frontier = solve(Problem(schedule_dag("1f1b", 4, 6), profile, 75.0))
    for t_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 5):
        plan = frontier.plan(t_s)
        assert plan.time_s <= t_s
        assert np.isfinite([plan.energy_j, plan.lower_bound_j, plan.gap]).all()
        assert plan.energy_j >= plan.lower_bound_j >= 0


def test_times_a_hair_apart_cost_no_precision() -> None:
    points = curve((1410, 0.05, 40.0), (1395, 0.05 + 1e-15, 30.0), (1000, 0.08, 20.0), (900, 0.1, 18.0))
    problem = Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, points), 75.0)
    frontier = solve(problem)
    plan = frontier.plan(1.02 * frontier.t_min_s)
    assert plan.time_s <= 1.02 * frontier.t_min_s
    assert plan.gap < 0.2
    slow = frontier.plan(frontier.t_star_s)
    assert slow.energy_j == pytest.approx(slow.lower_bound_j)


@pytest.mark.against_the_clock("a solve that waits for a core looks like one that holds the lock")
def test_a_thread_may_solve_while_python_goes_on() -> None:
    points = curve(*((1410 - 15 * i, 0.05 + 0.001 * i, 20 / (1 + 0.03 * i)) for i in range(60)))
    problem = Problem(schedule_dag("1f1b", 8, 48), same_everywhere(8, points), 75.0)
    solve(problem, 0.05).plan(1e9)  # compiled
    pauses, done = [], threading.Event()
    thread = threading.Thread(target=lambda: (solve(problem), done.set()))
    begin = time.perf_counter()
    thread.start()
    while not done.is_set():
        before = time.perf_counter()
        time.sleep(0.001)
        pauses.append(time.perf_counter() - before)
    thread.join()
    # Held throughout, the interpreter lock would make one pause of the whole solve.
    assert len(pauses) > 5
    assert max(pauses) < 0.8 * (time.perf_counter() - begin)


def test_import_is_light() -> None:
    code = (
        "import sys, perseus_ds.frontier, perseus_ds.pipeline.schedules; "
        "print([m for m in ('torch', 'pynvml', 'numba', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_solutions_between_few_checkpoints_lie_on_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_ds.frontier.solver._BUFFER", 8)
    monkeypatch.setattr("perseus_ds.frontier.solver._CHECKPOINTS", 6)
    problem = Problem(schedule_dag("1f1b", 4, 12), same_everywhere(4, convex_points(40)), 75.0)
    frontier = solve(problem)
    assert frontier.breakpoints > 6 * 8
    for share in np.linspace(0, 1, 9):
        limit_s = frontier.t_min_s + share * (frontier.t_star_s - frontier.t_min_s)
        durations, prices = frontier.solution(limit_s)
        spent_j = sum(
            np.interp(time_s, options.time_s[options.hull], options.effective_j[options.hull])
            for time_s, options in zip(durations, (problem.options[i] for i in problem.curve_of), strict=True)
        )
        assert problem.energy_j(spent_j, limit_s) == pytest.approx(frontier.lower_bound_j(limit_s))
        assert problem.dag.makespan(durations) == pytest.approx(limit_s)
        assert (prices >= 0).all()


def test_the_frontier_is_convex_and_falls_towards_t_star() -> None:
    frontier = solve(Problem(schedule_dag("1f1b", 3, 6), same_everywhere(3, convex_points(10)), 75.0))
    assert frontier.times_s[0] == pytest.approx(frontier.t_star_s)
    assert frontier.times_s[-1] == pytest.approx(frontier.t_min_s)
    slopes = np.diff(frontier.effective_j) / np.diff(frontier.times_s)
    assert (np.diff(frontier.effective_j) > 0).all()
    assert (np.diff(slopes) <= 1e-6).all()
    assert frontier.clamp(0.0) == frontier.t_min_s
    assert frontier.clamp(1e9) == frontier.t_star_s
    between = (frontier.t_min_s + frontier.t_star_s) / 2
    assert frontier.clamp(between) == between
