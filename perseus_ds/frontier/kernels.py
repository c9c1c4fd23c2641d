"""Compiles the solver's kernels: ``python -m perseus_ds.frontier.kernels``.

numba stores them on disk. The compilation takes about 20 s once per machine, and a second from then on. It holds the
GIL meanwhile, so a trainer leaves it to its worker process.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import solve
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

__all__ = ["load_kernels", "load_path_kernel"]

_NICENESS = 10


def _call_kernels() -> None:
    """Call every kernel once, with a pipeline of two stages."""
    points = [ProfilePoint(1410, 0.1, 30.0), ProfilePoint(1000, 0.12, 25.0), ProfilePoint(600, 0.2, 24.0)]
    profile = make_profile(
        {CurveKey(stage, kind): points for stage in range(2) for kind in (Kind.FORWARD, Kind.BACKWARD)}
    )
    frontier = solve(Problem(schedule_dag("1f1b", 2, 2), profile, blocking_power_w=75.0))
    middle_s = (frontier.t_min_s + frontier.t_star_s) / 2
    frontier.plan(middle_s)
    switch_aware_plan(frontier, middle_s, SwitchCost(penalty_j=0.1))
    on_time_plan(frontier, middle_s, jitter_s=0.01)
    late = replace(profile, request_stall_s=0.01, switch_tail_share=0.1, switch_tail_s=0.05)
    on_time_plan(solve(replace(frontier.problem, profile=late)), frontier.t_min_s, jitter_s=0.01)


def load_kernels() -> None:
    """Load every kernel, and compile those that are missing or older than a source."""
    _forget_stale()  # before numba loads any: it would take them for good
    _call_kernels()


def load_path_kernel() -> None:
    """Load the kernel that a trainer itself needs, for T' and begins; it takes a third of a second."""
    schedule_dag("1f1b", 1, 1).makespan([1.0, 1.0])


def _forget_stale() -> None:
    """Forget kernels that are older than any source.

    numba looks at a kernel's own file only, not at those of the kernels that it calls.
    """
    newest_s = max(source.stat().st_mtime for source in Path(__file__).parent.glob("*.py"))
    for index in Path(advance.stats.cache_path or "").glob("*.nbi"):
        if index.stat().st_mtime < newest_s:
            index.unlink(missing_ok=True)


if __name__ == "__main__":
    os.nice(_NICENESS)
    load_kernels()
