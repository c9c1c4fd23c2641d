"""What wrong energies cost: plans of the measured, the true and the published energies, judged by the true ones.

    python benchmarks/energies.py runs/worlds/gh200-megatron/run

The runs are of virtual GPUs, which keep the truth. Instructions take what the profile says; only energies differ. Where
no truth is known of a clock, its error is taken from the clocks beside it. The published energies follow the power law
of ``profiling/law.py``, with the right sum at the highest clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from perseus_ds.frontier import Problem, solve
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.profiling.law import EXPONENT
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.report.claims import true_costs
from perseus_ds.report.rundata import RunData, read_run
from perseus_ds.simulator.truth import read_truth

SLOWER = (1.0, 1.03, 1.08)  # multiples of T_min


def main() -> None:
    """Print the true saving of each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        compare(read_run(run))


def compare(data: RunData) -> None:
    """Print a run's errors, and for each iteration time the saving of three plans in per cent."""
    problem, jitter_s = data.problem, (data.planned or {})["switch_jitter_s"]
    assert problem is not None, "the run has no plan"
    numbers = [row["iteration"] for row in data.iterations]
    costs = true_costs(data, read_truth(data.path / "gpus", [*numbers, numbers[-1] + 1]))
    errors = {
        key: [
            (point.frequency_mhz, point.energy_j / cost[1] * cost[0] / point.time_s)
            for point in reversed(points)
            if (cost := costs.get((key, point.frequency_mhz)))
        ]
        for key, points in problem.profile.curves.items()
    }
    rms = np.sqrt(np.mean([(error - 1.0) ** 2 for row in errors.values() for _, error in row]))
    print(f"{data.path}: powers off by {100 * rms:.2f} %, root mean square")
    top_mhz = max(point.frequency_mhz for curve in problem.curves for point in curve)
    law = changed(problem, lambda _, point: point.time_s * (point.frequency_mhz / top_mhz) ** EXPONENT)
    scale = at_highest_j(problem) / at_highest_j(law)
    true = changed(problem, lambda key, point: point.energy_j / float(np.interp(point[0], *np.transpose(errors[key]))))
    candidates = {
        "true": true,
        "measured": problem,
        "power law": changed(law, lambda _, point: scale * point.energy_j),
    }
    baseline_j = at_highest(true).energy_j
    for slower in SLOWER:
        cells = []
        for name, one in candidates.items():
            frontier = solve(one)
            plan = on_time_plan(frontier, frontier.clamp(slower * frontier.t_min_s), jitter_s)
            judged = evaluate_late(true, plan.clocks_of(problem.dag.instructions), jitter_s)
            cells.append(f"{name} {100 * (1.0 - judged.energy_j / baseline_j):.2f} %")
        print(f"  {slower:.2f} T_min: " + ", ".join(cells), flush=True)


def changed(problem: Problem, energy_j: Callable[[CurveKey, ProfilePoint], float]) -> Problem:
    """Return the problem with other energies."""
    curves = {
        key: tuple(point._replace(energy_j=energy_j(key, point)) for point in points)
        for key, points in problem.profile.curves.items()
    }
    return replace(problem, profile=replace(problem.profile, curves=curves))


def at_highest_j(problem: Problem) -> float:
    """Return the energy of all instructions at their highest clocks, without that of waiting."""
    return sum(problem.curves[curve][0].energy_j for curve in problem.curve_of)


if __name__ == "__main__":
    main()
