"""Compiles the solver's kernels: ``python -m perseus_ds.frontier.kernels``.

numba keeps them on disk, so this takes some 20 s once per machine and a second from then on. It holds the
interpreter's lock meanwhile, so a trainer has it done in another process.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from perseus_ds import isolated
from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import solve
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, ProfilePoint, make_profile

__all__ = ["compile_isolated", "compile_kernels"]

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
    switch_aware_plan(frontier, middle_s, SwitchCost(latency_s=0.01))


def compile_isolated() -> None:
    """Have the kernels compiled by another process, and wait for it; nothing to do where that was done before."""
    if _are_kept():
        return
    try:
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


def _are_kept() -> bool:
    """Whether numba keeps the largest kernel, made from the present source."""
    source_s = Path(__file__).with_name("flow.py").stat().st_mtime
    kept = Path(advance.stats.cache_path or "").glob("flow.advance-*.nbi")
    return any(index.stat().st_mtime > source_s for index in kept)


if __name__ == "__main__":
    os.nice(_NICENESS)
    compile_kernels()
