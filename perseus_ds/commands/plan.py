"""``plan``: solve a profile's frontier and choose a plan."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds.console import ProgressLine
from perseus_ds.frontier.baselines import BASELINES, baseline_plans, max_frequencies
from perseus_ds.frontier.objectives import Objective, parse_objective, plan_for, target_time_s
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier, solve
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.schedules import SCHEDULES, schedule_dag
from perseus_ds.profiling.table import read_profile, split_chunks

__all__ = ["add_parser", "add_problem_arguments", "problem_of", "run", "solve_with_progress"]

_MANY_INSTRUCTIONS = 1000  # below, it is over before anybody looks


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a pipeline, shared by ``plan`` and ``emulate``."""
    parser.add_argument("profile", help="CSV: stage,instruction,frequency,time,energy in MHz, seconds, joules")
    parser.add_argument("--microbatches", type=int, required=True, metavar="M", help="micro-batches per iteration")
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b")
    parser.add_argument("--chunks", type=int, default=1, metavar="V", help="model chunks per stage (interleaved)")
    parser.add_argument(
        "--blocking-power", type=float, default=75.0, metavar="W", help="watts of a GPU that waits (default: 75)"
    )
    parser.add_argument(
        "--gpus-per-stage", type=int, default=1, metavar="G", help="GPUs that do as the profiled one (default: 1)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="X",
        help="relative energy error allowed, for speed (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_parser(subparsers: Any) -> None:
    """Add the ``plan`` command."""
    parser = subparsers.add_parser("plan", help="solve the frontier of a profile", description=__doc__)
    add_problem_arguments(parser)
    parser.add_argument("--points", type=int, default=10, metavar="K", help="plans along the frontier (default: 10)")
    parser.add_argument(
        "--objective",
        default="min_time",
        help="min_time (default), min_energy, slowdown=FACTOR, deadline=SECONDS or power_cap=WATTS",
    )
    parser.add_argument("--planner", choices=["perseus", *BASELINES], default="perseus")
    parser.add_argument("-o", "--output", metavar="DIR", help="write frontier, plans for Zeus, and plots there")


def problem_of(arguments: argparse.Namespace) -> Problem:
    """Build the problem that the shared arguments describe.

    Raises:
        PerseusError: One line telling which value is wrong.
    """
    if not 0 <= arguments.tolerance <= 0.1:
        raise PerseusError("plan-bad-value", name="--tolerance", value=arguments.tolerance, allowed="0 to 0.1")
    profile = split_chunks(read_profile(arguments.profile), arguments.chunks)
    dag = schedule_dag(arguments.schedule, profile.stages, arguments.microbatches, arguments.chunks)
    return Problem(dag, profile, arguments.blocking_power, arguments.gpus_per_stage)


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        PerseusError: Wrong input, or an objective that cannot be met.
    """
    begin = time.perf_counter()
    if arguments.points < 1:
        raise PerseusError("plan-bad-value", name="--points", value=arguments.points, allowed="from 1")
    objective = parse_objective(arguments.objective)
    problem = problem_of(arguments)
    solving = time.perf_counter()
    frontier = solve_with_progress(problem, arguments.tolerance)
    rounding = time.perf_counter()
    plans, chosen = _plans(frontier, objective, arguments.planner, arguments.points)
    end = time.perf_counter()

    baseline = evaluate(problem, max_frequencies(problem))
    document = {
        "schedule": arguments.schedule,
        "stages": problem.dag.stages,
        "microbatches": arguments.microbatches,
        "chunks": arguments.chunks,
        "instructions": len(problem.dag.instructions),
        "blocking_power_w": arguments.blocking_power,
        "planner": arguments.planner,
        "baseline": {"time_s": baseline.time_s, "energy_j": baseline.energy_j},
        "t_min_s": frontier.t_min_s,
        "t_star_s": frontier.t_star_s,
        "frontier": [_row(plan) for plan in plans],
        "chosen": {
            **_row(chosen),
            "gap": chosen.gap,
            "saving": 1 - chosen.energy_j / baseline.energy_j if baseline.energy_j > 0 else 0.0,
            "switches": chosen.switches,
        },
        "seconds": {"frontier": rounding - solving, "rounding": end - rounding, "total": end - begin},
    }
    if arguments.output:
        _write(Path(arguments.output), document, problem, plans, chosen, baseline)
    if arguments.json:
        print(json.dumps(document))
    else:
        _print_table(document, objective, frontier)
    return 0


def solve_with_progress(problem: Problem, tolerance: float) -> Frontier:
    """Solve, and show how far it is where it takes long."""
    if len(problem.dag.instructions) < _MANY_INSTRUCTIONS:
        return solve(problem, tolerance)
    with closing(ProgressLine("solving, percent", 100, every=20)) as line:
        frontier = solve(problem, tolerance, lambda share: line.to(round(100 * share)))
        line.to(100)
    return frontier


def _rounded(frontier: Frontier, times: Sequence[float]) -> list[Plan]:
    """Return the plans at iteration times, and show how far it is where it takes long."""
    if len(frontier.problem.dag.instructions) < _MANY_INSTRUCTIONS:
        return [frontier.plan(time) for time in times]
    plans = []
    with closing(ProgressLine("rounding, plans", len(times))) as line:
        for time in times:
            plans.append(frontier.plan(time))
            line.step()
    return plans


def _row(plan: Plan) -> dict[str, float]:
    return {"time_s": plan.time_s, "energy_j": plan.energy_j, "lower_bound_j": plan.lower_bound_j}


def _plans(frontier: Frontier, objective: Objective, planner: str, points: int) -> tuple[list[Plan], Plan]:
    """Return a planner's plans from fast to slow, and the one that the objective asks for."""
    if planner == "perseus":
        times = np.linspace(frontier.t_min_s, frontier.t_star_s, points)
        return _rounded(frontier, times.tolist()), plan_for(frontier, objective)
    plans = [
        replace(plan, lower_bound_j=frontier.lower_bound_j(plan.time_s))
        for plan in baseline_plans(frontier.problem, planner)
    ]
    if objective.name == "power_cap":
        fitting = [plan for plan in plans if plan.energy_j <= objective.value * plan.time_s]
    else:
        limit = plans[0].time_s if objective.name == "min_time" else target_time_s(frontier, objective)
        fitting = plans if objective.name == "min_energy" else [p for p in plans if p.time_s <= limit * (1 + 1e-9)]
    if not fitting:
        closest = plans[-1] if objective.name == "power_cap" else plans[0]
        raise PerseusError(
            "plan-infeasible",
            objective=objective,
            detail=f"planner {planner} has no such plan",
            closest=f"{closest.time_s:.6g} s, {closest.energy_j / closest.time_s:.6g} W",
        )
    if objective.name == "power_cap":
        return plans, fitting[0]
    return plans, min(fitting, key=lambda plan: plan.energy_j)


def _write(
    directory: Path, document: dict[str, Any], problem: Problem, plans: list[Plan], chosen: Plan, baseline: Plan
) -> None:
    """Write ``frontier.json``, Zeus's plan files and the plots."""
    from perseus_ds.frontier.zeus import write_zeus_plans
    from perseus_ds.report.plots import plot_frontier, plot_timeline

    try:
        directory.mkdir(parents=True, exist_ok=True)
        content = {**document, "plans": [plan.to_json() for plan in plans], "chosen_plan": chosen.to_json()}
        (directory / "frontier.json").write_text(json.dumps(content), encoding="utf-8")
        write_zeus_plans(plans, directory)
        for suffix in ("png", "svg"):
            plot_frontier(plans, chosen, baseline, directory / f"frontier.{suffix}")
            plot_timeline(problem, baseline, chosen, directory / f"timeline.{suffix}")
    except OSError as error:
        raise PerseusError("plan-output", path=directory, detail=error.strerror) from error


def _print_table(document: dict[str, Any], objective: Objective, frontier: Frontier) -> None:
    from rich.console import Console
    from rich.table import Table

    baseline, chosen, seconds = document["baseline"], document["chosen"], document["seconds"]
    table = Table(title=f"{document['planner']}, {document['schedule']}, {document['instructions']} instructions")
    for name in ("", "iteration s", "energy J", "lower bound J", "average W", "saving %"):
        table.add_column(name, justify="right")
    rows = [("baseline: highest clocks", baseline), *(("", row) for row in document["frontier"])]
    rows.append((f"chosen: {objective}", chosen))
    for name, row in rows:
        bound = f"{row['lower_bound_j']:.1f}" if "lower_bound_j" in row else ""
        watts = row["energy_j"] / row["time_s"]
        saving = 100 * (1 - row["energy_j"] / baseline["energy_j"]) if baseline["energy_j"] > 0 else 0.0
        table.add_row(
            name,
            f"{row['time_s']:.4f}",
            f"{row['energy_j']:.1f}",
            bound,
            f"{watts:.0f}",
            f"{saving:.2f}",
            end_section=row is baseline or row is document["frontier"][-1],
        )
    console = Console()
    console.print(table)
    console.print(
        f"T_min {document['t_min_s']:.4f} s, T* {document['t_star_s']:.4f} s, {frontier.breakpoints} breakpoints. "
        f"Chosen plan: at most {100 * chosen['gap']:.3f} % above the least possible energy, "
        f"{chosen['switches']} clock switches per iteration. "
        f"Solved in {seconds['frontier']:.2f} s, rounded in {seconds['rounding']:.2f} s."
    )
