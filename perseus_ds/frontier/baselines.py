"""Other systems as planners on the same DAG, with the same accounting.

- ``max``: every instruction at its highest frequency.
- ``envpipe``: EnvPipe (ATC '23). The outer envelope stays at the highest frequency: the last stage, the first
  micro-batch's way in and the last one's way out. Every other stage gets one lower frequency for the rest, as low as
  possible at the same iteration time.
- ``zeus-global``: one frequency for all stages (Zeus, NSDI '23).
- ``zeus-per-stage``: one frequency per stage that balances the stages' forward times (Perseus, section 6.1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, evaluate, instruction_points
from perseus_ds.frontier.problem import Problem

__all__ = ["BASELINES", "baseline_plans", "max_frequencies"]

IntArray = NDArray[np.int64]


def max_frequencies(problem: Problem) -> IntArray:
    """Return every instruction's highest frequency, shape (instructions,)."""
    highest = np.array([curve[0].frequency_mhz for curve in problem.curves], dtype=np.int64)
    return highest[problem.curve_of]


def baseline_plans(problem: Problem, planner: str) -> list[Plan]:
    """Return the Pareto-optimal plans of a planner in ``BASELINES``, fastest first."""
    plans = [evaluate(problem, frequencies) for frequencies in BASELINES[planner](problem)]
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.time_s, plan.energy_j)):
        if not best or plan.energy_j < best[-1].energy_j:
            best.append(plan)
    return best


def _max(problem: Problem) -> list[IntArray]:
    return [max_frequencies(problem)]


def _zeus_global(problem: Problem) -> list[IntArray]:
    """Every frequency common to all curves."""
    shared = set.intersection(*({point.frequency_mhz for point in curve} for curve in problem.curves))
    count = len(problem.dag.instructions)
    return [np.full(count, mhz, dtype=np.int64) for mhz in sorted(shared, reverse=True)] or _max(problem)


def _zeus_per_stage(problem: Problem) -> list[IntArray]:
    """For each forward time of any stage, every stage's lowest frequency that is at least as fast."""
    forward = {
        stage: {p.frequency_mhz: p.time_s for p in problem.profile.curve(key)}
        for key in problem.keys
        if key.kind.computes_forward and key.chunk == 0
        for stage in (key.stage,)
    }
    bottleneck = max(min(times.values()) for times in forward.values())
    plans = []
    for limit in sorted({time for times in forward.values() for time in times.values() if time >= bottleneck}):
        stage_mhz = {
            stage: min(mhz for mhz, time in times.items() if time <= limit) for stage, times in forward.items()
        }
        plans.append(_per_stage(problem, stage_mhz))
    return plans


def _envpipe(problem: Problem) -> list[IntArray]:
    """Lower one stage at a time, from the last but one to the first, at a constant makespan."""
    instructions = problem.dag.instructions
    frequencies = max_frequencies(problem)
    limit_s = problem.dag.makespan(instruction_points(problem, frequencies)[0]) * (1 + 1e-9)
    last_microbatch = max(one.microbatch for one in instructions)
    envelope = np.array(
        [
            one.stage == problem.dag.stages - 1
            or (one.kind.computes_forward and one.microbatch == 0)
            or (one.kind.computes_backward and last_microbatch in (one.microbatch, one.backward_microbatch))
            for one in instructions
        ]
    )
    stage = np.array([one.stage for one in instructions])
    for number in range(problem.dag.stages - 2, -1, -1):
        here = (stage == number) & ~envelope
        for mhz in sorted(
            {p.frequency_mhz for k in problem.keys if k.stage == number for p in problem.profile.curve(k)}
        ):
            lowered = np.where(here, _nearest(problem, mhz), frequencies)
            if problem.dag.makespan(instruction_points(problem, lowered)[0]) <= limit_s:
                frequencies = lowered
                break
    return [frequencies]


def _per_stage(problem: Problem, stage_mhz: dict[int, int]) -> IntArray:
    nearest = {mhz: _nearest(problem, mhz) for mhz in set(stage_mhz.values())}
    return np.array(
        [nearest[stage_mhz[one.stage]][node] for node, one in enumerate(problem.dag.instructions)], dtype=np.int64
    )


def _nearest(problem: Problem, mhz: int) -> IntArray:
    """Return, for every instruction, the lowest measured frequency from ``mhz`` up, or its highest."""
    per_key = []
    for curve in problem.curves:
        measured = [point.frequency_mhz for point in curve]
        per_key.append(min((f for f in measured if f >= mhz), default=measured[0]))
    return np.array(per_key, dtype=np.int64)[problem.curve_of]


BASELINES: dict[str, Callable[[Problem], list[IntArray]]] = {
    "envpipe": _envpipe,
    "zeus-global": _zeus_global,
    "zeus-per-stage": _zeus_per_stage,
    "max": _max,
}
