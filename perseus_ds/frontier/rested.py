"""Instructions of GPUs at their power limit that are faster at the highest clock, as their GPU has rested.

The limit is on a mean. After a wait a GPU runs the highest clock for a while, until the limit holds it again. The first
forward of a stage may take 12 % less time than the others there. At a clock that the GPU can hold, all take the same.
So to ask for a lower clock costs more where the GPU has rested, and less elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median

from perseus_ds.frontier.problem import Problem
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.observed import extra_times_s
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.table import CurveKey

__all__ = ["with_rests"]

_STEP = 0.02  # of a curve's usual time: instructions that differ by less are alike


def with_rests(problem: Problem, traces: Sequence[StageTrace]) -> Problem:
    """Return the problem where instructions on rested GPUs have curves of their own.

    A curve's highest clock was measured as a mean over all its instructions. The traces tell how they differ. Other
    clocks stay as they are. Where micro-batches differ in size, nobody knows what a rest does.

    Args:
        problem: What is planned; its profile's ``limited`` are the curves that the power limit holds.
        traces: One per stage, of an iteration at the highest clocks.
    """
    if any(trace.sizes for trace in traces):
        return problem
    rested = {}
    for took_s in _limited(problem, traces).values():
        usual_s, mean_s = median(took_s.values()), fmean(took_s.values())
        steps = {one: max(0, round((1.0 - one_s / usual_s) / _STEP)) for one, one_s in took_s.items()}
        for step in set(steps.values()):
            alike = [one for one in took_s if steps[one] == step]
            rested |= dict.fromkeys(alike, fmean(took_s[one] for one in alike) / mean_s)
    return replace(problem, rested=rested)


def _limited(problem: Problem, traces: Iterable[StageTrace]) -> dict[CurveKey, dict[Instruction, float]]:
    """Return how long each instruction of the limited curves took, in s, without its extra time."""
    took_s: dict[CurveKey, dict[Instruction, float]] = defaultdict(dict)
    for trace in traces:
        extra_s = extra_times_s(trace)
        for timed in trace.instructions:
            one = Instruction.of(trace.stage, timed.operation)
            if CurveKey.of(one) in problem.profile.limited:
                took_s[CurveKey.of(one)][one] = timed.duration_s - extra_s.get(one, 0.0)
    return took_s
