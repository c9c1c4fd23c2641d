"""Plans for micro-batches that differ: with one mean per kind, and with the spread counted.

    python benchmarks/uneven_microbatches.py [--spreads 0.1 0.2 0.3] [--microbatches 8 32]

GPT-3 175B on A100, 1F1B, 4 stages. All instructions of a micro-batch take the same multiple of their time, drawn anew
in every iteration. The planner has seen 8 iterations; the judge runs 4,000 others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import perseus_ds.simulator
from perseus_ds.coordination.guard import ThroughputGuard
from perseus_ds.frontier import Plan, Problem, solve
from perseus_ds.frontier.observed import at_highest, with_sizes
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.plan import instruction_points
from perseus_ds.pipeline.observed import with_tail
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
BLOCKING_W = 83.64
STAGES = (4, 5, 6, 7)
SEEN, JUDGED = 8, 4000


class Judge:
    """Runs plans with micro-batches of its own.

    Args:
        problem: The pipeline, without a tail.
        spread: Relative standard deviation of a micro-batch's size.
    """

    def __init__(self, problem: Problem, spread: float) -> None:
        self._problem = problem
        microbatch = [one.microbatch for one in problem.dag.instructions]
        self._size = sizes(2, JUDGED, 1 + max(microbatch), spread)[:, microbatch]

    def times_s(self, plan: Plan) -> np.ndarray:
        """Return the time of every iteration."""
        took_s, _ = instruction_points(self._problem, plan.clocks_of(self._problem.dag.instructions))
        return np.array([self._problem.dag.makespan(took_s * size) for size in self._size])

    def energy_j(self, plan: Plan, time_s: float) -> float:
        """Return the mean energy of an iteration."""
        _, effective_j = instruction_points(self._problem, plan.clocks_of(self._problem.dag.instructions))
        return self._problem.energy_j(float((effective_j * self._size).sum(axis=1).mean()), time_s)


def sizes(seed: int, iterations: int, microbatches: int, spread: float) -> np.ndarray:
    """Return sizes of mean 1, shape (iterations, microbatches)."""
    return np.random.default_rng(seed).gamma(spread**-2, spread**2, (iterations, microbatches))


def rows(spread: float, microbatches: int) -> Iterator[tuple[str, ...]]:
    """Yield what both planners promise and keep, without slowdown and with some."""
    source = read_profile(PROFILE).curves
    curves = {
        CurveKey(stage, key.kind): points
        for stage, chosen in enumerate(STAGES)
        for key, points in source.items()
        if key.stage == chosen
    }
    bare = Problem(schedule_dag("1f1b", len(STAGES), microbatches), Profile(curves, PROFILE.stem), BLOCKING_W)
    judge, highest = Judge(bare, spread), at_highest(bare)
    baseline_s = float(judge.times_s(highest).mean())
    baseline_j = judge.energy_j(highest, baseline_s)
    traced = replace(bare, dag=with_tail(bare.dag, baseline_s - highest.time_s))
    seen = np.repeat(sizes(1, SEEN, microbatches, spread).reshape(-1, 1), len(bare.keys), axis=1)
    frontier = solve(traced)
    counted = replace(frontier, problem=with_sizes(traced, seen / seen.mean()))
    for slower in (1.0, 1.03, 1.06):
        t_s = slower * frontier.t_min_s
        for name, plan in (("one mean", frontier.plan(t_s)), ("spread counted", on_time_plan(counted, t_s, 0.0))):
            times_s = judge.times_s(plan)
            mean_s, energy_j = float(times_s.mean()), judge.energy_j(plan, float(times_s.mean()))
            yield (
                f"{100 * spread:.0f} %, {microbatches}",
                f"{100 * (slower - 1):.0f} %",
                name,
                f"{100 * (mean_s / plan.time_s - 1):+.1f} %",
                f"{100 * (mean_s / baseline_s - 1):+.1f} %",
                f"{100 * (1 - energy_j / baseline_j):.1f} %",
                str(steps(times_s, plan, baseline_s)),
            )


def steps(times_s: np.ndarray, plan: Plan, baseline_s: float) -> int:
    """Return in how many of 1,000 iterations the guard has left the plan, if leaving it does not help."""
    guard, left = ThroughputGuard(max_slowdown=1.02), 0
    for time_s in times_s[:1000]:
        left += guard.caution > 0.0
        guard.watch(baseline_s if guard.caution else time_s, plan.time_s, baseline_s, plan.deviation_s)
    return left


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spreads", nargs="+", type=float, default=[0.1, 0.2, 0.3])
    parser.add_argument("--microbatches", nargs="+", type=int, default=[8, 32])
    arguments = parser.parse_args()
    heads = ("spread, micro-batches", "asked for", "planner", "time over promised", "slowdown", "saving", "guard")
    table = Table(*heads)
    for microbatches in arguments.microbatches:
        for spread in arguments.spreads:
            for row in rows(spread, microbatches):
                table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
