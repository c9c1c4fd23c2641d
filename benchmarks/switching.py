"""Plans for clocks that jitter, on the GPT-3 175B profiles: how late they come, and what that costs.

    python benchmarks/switching.py [--microbatches 12 24 48 96] [--latencies 0.01 0.03 0.1] [--stall 0] [--points 25]

A clock is asked for ahead by its latency, so that it comes when the plan wants it; what is left is a jitter of a tenth
of that. Every plan along the frontier is simulated with draws of its own. Each row has the worst of them, beside the
ordinary plans' worst with the same jitter, and with clocks that are asked for only as their instruction begins.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import perseus_ds.simulator
from perseus_ds.frontier import Frontier, Plan, Problem, solve
from perseus_ds.frontier.on_time import on_time_plan, undominated
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILES = Path(perseus_ds.simulator.__file__).parent / "profiles"
GPUS = {"A100": ("gpt3-175b-a100-sxm.csv", 83.64), "A40": ("gpt3-175b-a40.csv", 70.38)}
JITTER = 0.1  # of the latency
DRAWS = 100
LIMITS = {0.01: (0.003, 0.006), 0.03: (0.003, 0.006), 0.1: (0.005, 0.015)}  # time over T, energy over the bound at T


def simulated(problem: Problem, plan: Plan, late_s: NDArray[np.float64]) -> tuple[float, float]:
    """Run iterations node by node.

    Args:
        problem: What was planned.
        plan: A plan of it.
        late_s: How late each instruction's clock comes after it was planned to, shape (draws, instructions).

    Returns:
        Mean time and energy.
    """
    dag = problem.dag
    late_s = late_s + np.array([plan.aims_s.get(one, 0.0) for one in dag.instructions])
    stage_energy_j = np.zeros(len(late_s))
    before, after = {}, {}
    for order in dag.program_order:
        before.update(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
        after.update(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True))
    curves = {key: np.array([p[:3] for p in problem.profile.curve(key)[::-1]]).T for key in problem.keys}
    ends, busy_j = np.zeros((dag.nodes, len(late_s))), stage_energy_j
    for node in dag.topological_order.tolist():
        tails = dag.predecessors.members[dag.predecessors.indptr[node] : dag.predecessors.indptr[node + 1]]
        start_s = ends[tails].max(axis=0) if tails.size else np.zeros(len(late_s))
        key = problem.keys[problem.curve_of[node]]
        mhz = [plan.frequency_mhz[dag.instructions[one]] for one in (before[node], node, after[node])]
        (old_s, own_s, new_s), (old_j, own_j, new_j) = (np.interp(mhz, curves[key][0], row) for row in curves[key][1:])
        # Work done at the clock before, then at the clock after; the rest at its own.
        old = np.minimum(1.0, np.maximum(0.0, late_s[:, node]) / old_s)
        new = np.minimum(1.0 - old, np.maximum(0.0, -late_s[:, after[node]]) / own_s)
        busy_s = old * old_s + new * new_s + (1 - old - new) * own_s
        busy_j += old * old_j + new * new_j + (1 - old - new) * own_j - problem.stage_power_w[key.stage] * busy_s
        ends[node] = start_s + busy_s + (problem.profile.request_stall_s if mhz[1] != mhz[2] else 0.0)
    time_s = float(ends.max(axis=0).mean())
    return time_s, problem.energy_j(float(busy_j.mean()), time_s)


def worst(frontier: Frontier, plans: list[Plan], times_s: list[float], late_s: NDArray[np.float64]) -> list[float]:
    """Return the largest excess of time over T, and of energy over the bound at T."""
    ran = [simulated(frontier.problem, plan, late_s) for plan in plans]
    return [
        max(time_s / t_s for (time_s, _), t_s in zip(ran, times_s, strict=True)) - 1,
        max(energy_j / frontier.lower_bound_j(t_s) for (_, energy_j), t_s in zip(ran, times_s, strict=True)) - 1,
    ]


def row(frontier: Frontier, ordinary: list[Plan], times_s: list[float], latency_s: float) -> list[str]:
    """Return one row of the table."""
    count, jitter_s = len(frontier.problem.dag.instructions), JITTER * latency_s
    seconds, plans = [], []
    for t_s in times_s:
        begin_s = time.process_time()
        plans.append(on_time_plan(frontier, t_s, jitter_s))
        seconds.append(time.process_time() - begin_s)
    plans = undominated(plans)
    dominated = sum(one.time_s <= other.time_s and one.energy_j < other.energy_j for one in plans for other in plans)
    late_s = np.random.default_rng(7).normal(0.0, jitter_s, (DRAWS, count))
    found = worst(frontier, plans, times_s, late_s)
    before = worst(frontier, ordinary, times_s, late_s)
    behind = worst(frontier, ordinary, times_s, np.full((1, count), latency_s))
    kept = all(value <= limit for value, limit in zip(found, LIMITS.get(latency_s, (np.inf, np.inf)), strict=True))
    cells = [f"{100 * value:+.2f} %" for value in (*found, *before, *behind)]
    return [*cells, str(dominated), f"{np.mean(seconds):.3f} s", "yes" if kept else "no"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", nargs="+", choices=GPUS, default=list(GPUS))
    parser.add_argument("--microbatches", nargs="+", type=int, default=[12, 24, 48, 96])
    parser.add_argument("--latencies", nargs="+", type=float, default=[0.01, 0.03, 0.1])
    parser.add_argument("--stall", type=float, default=0.0, help="seconds that a request lets a GPU stand still")
    parser.add_argument("--points", type=int, default=25)
    arguments = parser.parse_args()
    table = Table(title="Simulated; the worst along the frontier: time over T, energy over the bound at T")
    heads = ("GPU", "micro-batches", "latency", "time", "energy", "ordinary: time", "energy")
    for name in (*heads, "asked for late: time", "energy", "dominated", "CPU per plan", "within limits"):
        table.add_column(name, justify="right")
    for gpu in arguments.gpus:
        file, blocking_power_w = GPUS[gpu]
        profile = replace(read_profile(PROFILES / file), request_stall_s=arguments.stall)
        for microbatches in arguments.microbatches:
            dag = schedule_dag("1f1b", profile.stages, microbatches)
            frontier = solve(Problem(dag, profile, blocking_power_w))
            times_s = np.linspace(frontier.t_min_s, frontier.t_star_s, arguments.points).tolist()
            on_time_plan(frontier, times_s[0], 0.001)  # loads the kernels
            ordinary = [frontier.plan(t_s) for t_s in times_s]
            for latency_s in arguments.latencies:
                cells = row(frontier, ordinary, times_s, latency_s)
                table.add_row(gpu, str(microbatches), f"{1e3 * latency_s:g} ms", *cells)
                print(gpu, microbatches, f"{1e3 * latency_s:g} ms", *cells, flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
