"""A GPU at its power limit, whose first forward after a wait is faster at the highest clock than the others."""

from dataclasses import replace

import pytest

from perseus_ds.frontier import solve
from perseus_ds.frontier.observed import observed_problem
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

FORWARD = CurveKey(0, Kind.FORWARD)
# Of the highest clock 0.98 s are a mean over all forwards: the limit makes 1.0 s of it, and at first 0.9 s.
POINTS = (ProfilePoint(1980, 0.98, 700.0), ProfilePoint(1600, 1.0, 690.0), ProfilePoint(1500, 1.06, 660.0))
PROFILE = Profile({FORWARD: POINTS}, "made up", limited=frozenset({FORWARD}))
TOOK_S = (0.9, 1.0, 1.0, 1.001, 0.999)


def trace(*took_s: float) -> StageTrace:
    """Forwards of one stage, back to back."""
    operations, now_s = [], 0.0
    for microbatch, one_s in enumerate(took_s):
        operations.append(TimedOperation(Operation(Kind.FORWARD, microbatch), now_s, now_s + one_s, 1980))
        now_s += one_s
    return StageTrace(0, 0, now_s, tuple(operations))


def tops_s(*took_s: float, profile: Profile = PROFILE) -> list[float]:
    """Return the time of each forward at the highest clock, in s."""
    problem = observed_problem([trace(*took_s)], profile, 60.0, 1)
    assert all(curve[1:] == POINTS[1:] for curve in problem.curves), "at other clocks a rest changes nothing"
    return [problem.curves[curve][0].time_s for curve in problem.curve_of.tolist()]


def test_a_rested_instruction_has_a_time_of_its_own_at_the_highest_clock() -> None:
    assert tops_s(*TOOK_S) == pytest.approx([0.9, 1.0, 1.0, 1.0, 1.0])


def test_a_profile_of_warmer_gpus_keeps_their_mean() -> None:
    assert tops_s(*(one_s / 1.05 for one_s in TOOK_S)) == pytest.approx([0.9, 1.0, 1.0, 1.0, 1.0])


def test_the_plan_asks_for_the_highest_clock_where_the_gpu_has_rested() -> None:
    """A plan that knows no rests asks for it everywhere: on average it takes less time."""
    problem = observed_problem([trace(*TOOK_S)], PROFILE, 60.0, 1)
    frontier = solve(problem)
    assert frontier.t_min_s == pytest.approx(4.9)
    clocks_mhz = frontier.plan(frontier.t_min_s).clocks_of(problem.dag.instructions)
    assert clocks_mhz.tolist() == [1980, 1600, 1600, 1600, 1600]
    blind = solve(observed_problem([trace(*TOOK_S)], replace(PROFILE, limited=frozenset()), 60.0, 1))
    assert set(blind.plan(4.9).frequency_mhz.values()) == {1980}


def test_what_the_reduction_makes_longer_is_no_lack_of_rest() -> None:
    assert tops_s(*TOOK_S[:-1], 1.1) == pytest.approx([0.9, 1.0, 1.0, 1.0, 1.0], abs=0.001)


def test_a_curve_whose_highest_clock_can_be_held_knows_no_rests() -> None:
    assert tops_s(*TOOK_S, profile=replace(PROFILE, limited=frozenset())) == [0.98] * 5


def test_where_micro_batches_differ_their_sizes_are_not_taken_for_rests() -> None:
    uneven = replace(trace(*TOOK_S), sizes=((0.9, 1.0, 1.0, 1.0, 1.0),) * 4)
    problem = observed_problem([uneven], PROFILE, 60.0, 1)
    assert problem.rested == {}
