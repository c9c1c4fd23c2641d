"""How much slower a plan gets than it was, as GPUs warm up.

At the power limit a warm GPU, which leaks, runs at a lower clock. Refreshed baselines tell how much slower iterations
at the highest clocks have become. A plan becomes so only as far as its instructions run at the limit, or so little
below it that it comes down to them. Where a GPU runs lower clocks most of the time, its power has room for the highest
one now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseus_ds.coordination.plan_table import FrequencyPlan, PipelineGroup, PlanTable
from perseus_ds.profiling.table import CurveKey

__all__ = ["ageing"]

_LEAST_LONGER = 0.01  # by which at least an instruction at the limit is made to take longer
_TELLS = 0.1  # of that: where the highest clocks show less, something else makes them slower
_MOSTLY = 0.5  # of a stage's work: where less is at the highest clock, the limit does not bind


def ageing(table: PlanTable, plans: Sequence[FrequencyPlan], slower: float) -> float:
    """Return by what part of their time the plans get slower.

    Args:
        table: The plans, and the times that they follow from.
        plans: One per pipeline.
        slower: By what part of their time iterations at the highest clocks have become slower.

    Returns:
        0 if no instruction on the critical path runs at the limit, and ``slower`` if all do. ``slower`` also where
        nothing is known of a limit: then the job itself gets slower.
    """
    if not any(group.limited for group in table.groups):
        return slower
    longer = max(slower, _LEAST_LONGER)
    highest = max(_growth(group, None, longer) for group in table.groups)
    planned = max(_growth(table.of(pipeline), plan, longer) for pipeline, plan in enumerate(plans))
    return slower * min(1.0, planned / highest) if highest > _TELLS else slower


def _growth(group: PipelineGroup, plan: FrequencyPlan | None, longer: float) -> float:
    """Return how much longer an iteration takes, relative to its instructions at the limit; None: at highest clocks."""
    tops_mhz, instructions = _tops_mhz(group), group.dag.instructions
    stage = np.array([one.stage for one in instructions])
    times_s, limit_s = np.zeros(len(stage)), np.zeros(len(stage))
    for row, one in enumerate(instructions):
        key = CurveKey.of(one)
        mhz = tops_mhz[key] if plan is None else plan.clocks_mhz[one.stage][one.operation]
        times_s[row] = group.expected_s(key, mhz)
        if key in group.limited:  # no clock is faster than what the limit makes of the highest
            limit_s[row] = (1.0 + longer) * group.expected_s(key, tops_mhz[key])
    limited = limit_s > times_s
    share = np.bincount(stage, times_s * limited) / np.bincount(stage, times_s)
    slower_s = np.where(limited & (share[stage] >= _MOSTLY), limit_s, times_s)
    return (group.dag.makespan(slower_s) / group.dag.makespan(times_s) - 1.0) / longer


def _tops_mhz(group: PipelineGroup) -> dict[CurveKey, int]:
    """Return the highest clock of each curve."""
    tops_mhz: dict[CurveKey, int] = {}
    for key, mhz in group.expected_times_s:
        tops_mhz[key] = max(mhz, tops_mhz.get(key, 0))
    return tops_mhz
