"""The problem that an observed iteration poses."""

from dataclasses import replace

import pytest

from perseus_ds.frontier.observed import at_highest, observed_problem
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

POINTS = (ProfilePoint(1400, 1.0, 300.0), ProfilePoint(1000, 1.3, 240.0))
PROFILE = Profile({CurveKey(0, kind): POINTS for kind in (Kind.FORWARD, Kind.BACKWARD)}, "made up")


def trace(duration_s: float) -> StageTrace:
    """One stage, one micro-batch, back to back."""
    operations = (
        TimedOperation(Operation(Kind.FORWARD, 0), 0.0, duration_s, 1400),
        TimedOperation(Operation(Kind.BACKWARD, 0), duration_s, 2 * duration_s, 1400),
    )
    return StageTrace(0, 0, 2 * duration_s, operations)


def test_at_the_highest_clock_every_instruction_runs_at_its_curve_s_first():
    plan = at_highest(observed_problem([trace(1.0)], PROFILE, 60.0, 1))
    assert set(plan.frequency_mhz.values()) == {1400}
    assert plan.time_s == pytest.approx(2.0)


def test_an_iteration_that_took_longer_than_its_curves_tell_gets_a_tail():
    problem = observed_problem([trace(1.1)], PROFILE, 60.0, 1)
    assert at_highest(problem).time_s == pytest.approx(2.2)
    assert [constant.duration_s for constant in problem.dag.constants][-1] == pytest.approx(0.2)


def test_an_iteration_as_fast_as_its_curves_gets_none():
    shorter = replace(trace(1.0), iteration_time_s=1.9)
    assert at_highest(observed_problem([shorter], PROFILE, 60.0, 1)).time_s == pytest.approx(2.0)
