"""Compiles the solver's kernels: ``python -m perseus_ds.frontier.kernels``.

numba stores them on disk. The compilation takes about 20 s once per machine, and a second from then on. It holds the
GIL meanwhile, so a trainer runs it in another process.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from perseus_ds import isolated
from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import solve
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

__all__ = ["compile_isolated", "compile_kernels", "load_path_kernel"]

_NICENESS = 10
_TIMEOUT_S = 300.0


def compile_kernels() -> None:
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


def compile_isolated() -> None:
    """Let another process compile the kernels, and wait for it; does nothing once that is done."""
    try:
        if _are_kept():
            return
        subprocess.run(
            isolated.command("perseus_ds.frontier.kernels"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the trainer's to handle
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # then they are compiled here, where they are needed


def load_path_kernel() -> None:
    """Load the kernel that a trainer itself needs, for T' and begins; it takes a third of a second."""
    schedule_dag("1f1b", 1, 1).makespan([1.0, 1.0])


def _are_kept() -> bool:
    """Whether numba keeps the largest kernel, and none that is stale."""
    _forget_stale()
    return any(Path(advance.stats.cache_path or "").glob("flow.advance-*.nbi"))


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
    _forget_stale()  # before numba loads any: it would take them for good
    compile_kernels()
