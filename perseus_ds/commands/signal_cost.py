"""What following a power signal costs a job: the part of ``emulate`` behind ``--signal``."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from perseus_ds.commands.plan import jitter_of, problem_of, rounded, solve_with_progress
from perseus_ds.frontier.beyond import plans_beyond, uniform_caps
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.power_signal import Follower, StepCost, read_signal
from perseus_ds.frontier.waiting import with_waiting
from perseus_ds.messages import PerseusError

__all__ = ["run_signal"]

_POINTS = 25  # along the frontier, as many as a job holds


def run_signal(arguments: argparse.Namespace) -> int:
    """Print what each row of a signal costs.

    Args:
        arguments: Of ``emulate``, with a signal.

    Raises:
        PerseusError: Wrong input, or an option that goes with no signal.
    """
    begin = time.perf_counter()
    for name in ("straggler", "strong_scaling"):
        if value := getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise PerseusError("plan-bad-value", name=option, value=value, allowed="without --signal")
    steps = read_signal(arguments.signal)
    problem = problem_of(arguments)
    frontier = solve_with_progress(problem, arguments.tolerance)
    jitter_s = jitter_of(arguments) or 0.0
    times_s = np.linspace(frontier.t_min_s, frontier.t_star_s, _POINTS).tolist()
    plans = rounded(frontier, times_s, lambda t_s: on_time_plan(frontier, t_s, jitter_s))
    along = [with_waiting(problem, plan) for plan in plans]
    follower = Follower(
        [*along, *plans_beyond(problem, along[-1], jitter_s)], uniform_caps(problem), arguments.pipelines
    )
    costs = [follower.cost(step) for step in steps]
    document = {"pipelines": arguments.pipelines, **_whole(costs), "steps": [asdict(cost) for cost in costs]}
    if arguments.json:
        print(json.dumps({**document, "seconds": time.perf_counter() - begin}))
    else:
        _print_table(costs, document)
    return 0


def _whole(costs: list[StepCost]) -> dict[str, float]:
    """Return slowdown and energy over the whole signal."""
    count = sum(cost.iterations for cost in costs)
    return {
        name: sum(getattr(cost, name) * cost.iterations for cost in costs) / (count if "slowdown" in name else 1)
        for name in ("slowdown", "uniform_slowdown", "energy_j", "uniform_energy_j")
    }


def _print_table(costs: list[StepCost], whole: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Slowdown in % of the time without any cap; uniform: one clock cap on all GPUs")
    for name in ("iterations", "allowed W", "drawn W", "slowdown", "uniform", "energy J", "uniform J"):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(
            str(cost.iterations),
            f"{cost.target_w:.0f}",
            f"{cost.power_w:.0f}" + ("" if cost.met else " (least)"),
            f"{100 * cost.slowdown:.2f}",
            f"{100 * cost.uniform_slowdown:.2f}" + ("" if cost.uniform_met else " (too much)"),
            f"{cost.energy_j:.0f}",
            f"{cost.uniform_energy_j:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"Whole signal: {100 * whole['slowdown']:.2f} % slower, {whole['energy_j']:.0f} J; "
        f"uniform: {100 * whole['uniform_slowdown']:.2f} %, {whole['uniform_energy_j']:.0f} J."
    )
