"""Who an iteration's time is blamed on, and how much iterations differ. What late clocks do: test_lateness.py."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.frontier import Problem
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.lateness import Draws, neighbours_of
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

POINTS = [ProfilePoint(1000, 0.1, 20.0), ProfilePoint(500, 0.2, 16.0)]


def pipeline(stages: int, microbatches: int) -> Problem:
    curves = {CurveKey(s, k): POINTS for s in range(stages) for k in (Kind.FORWARD, Kind.BACKWARD)}
    return Problem(schedule_dag("1f1b", stages, microbatches), make_profile(curves), blocking_power_w=0.0)


def test_blame_goes_to_who_is_on_the_critical_path():
    problem = pipeline(2, 2)
    nodes, blame = neighbours_of(problem), no_blame(8)
    clock = np.full(8, 1)
    run_late(nodes, clock, Draws(np.zeros((8, 2)), np.zeros((8, 2)), np.ones((8, 2))), blame)
    on_path = {problem.dag.instructions[node].label for node in np.flatnonzero(blame.critical)}
    assert blame.critical.sum() == pytest.approx(6)
    assert len(on_path) == 6
    assert set(np.unique(blame.critical)) == {0.0, 1.0}


def test_micro_batches_of_other_sizes_take_and_use_that_much_more_or_less():
    nodes, clock = neighbours_of(pipeline(1, 1)), np.array([1, 1])
    sizes = np.array([[0.5, 1.5], [1.0, 2.0]])  # the forward in two draws, and the backward
    draws = Draws(np.zeros((2, 2)), np.zeros((2, 2)), sizes)
    time_s, effective_j, deviation_s = run_late(nodes, clock, draws, no_blame(2))
    assert (time_s, effective_j) == (pytest.approx(0.25), pytest.approx(50.0))
    assert deviation_s == pytest.approx(0.1)


def ran(latency_s: float, slow: list[str], early_s: float = 0.0) -> tuple[float, float]:
    """Return mean time and energy of two stages and micro-batches, some at 500 MHz: one time of ten those are early."""
    problem = pipeline(2, 2)
    known = {"switch_latency_s": {500: latency_s, 1000: latency_s}, "request_stall_s": 0.01}
    nodes = neighbours_of(replace(problem, profile=replace(problem.profile, **known)))
    is_slow = np.array([one.label in slow for one in problem.dag.instructions])
    jitter_s = np.zeros((8, 10))
    jitter_s[is_slow, 0] = -early_s
    draws = Draws(jitter_s, np.zeros((8, 10)), np.ones((8, 10)))
    return run_late(nodes, np.where(is_slow, 0, 1), draws, no_blame(8))[:2]


def test_a_request_lets_the_gpu_stand_still_where_it_comes_and_costs_nothing_in_a_wait():
    slow = ["backward of micro-batch 0, chunk 0, stage 1", "forward of micro-batch 1, chunk 0, stage 1"]
    slow += ["backward of micro-batch 1, chunk 0, stage 1"]
    # The first backward of stage 1 begins at 0.2 s, its first forward at 0.1 s.
    (in_the_forward_s, _), (in_the_wait_s, _) = ran(0.05, slow), ran(0.15, slow)
    assert in_the_forward_s == pytest.approx(in_the_wait_s + 0.01)


def test_a_clock_that_comes_early_in_a_wait_changes_nothing():
    slow = ["backward of micro-batch 0, chunk 0, stage 0"]  # stage 0 waits from 0.2 s to 0.3 s
    assert ran(0.01, slow, early_s=0.05) == pytest.approx(ran(0.01, slow))
    slow = ["forward of micro-batch 1, chunk 0, stage 0"]  # right after the first one
    assert ran(0.01, slow, early_s=0.05)[1] < ran(0.01, slow)[1] - 0.01
