"""Who an iteration's time is blamed on, and how much iterations differ. What late clocks do: test_lateness.py."""

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
