"""``plan``: solve the frontier of a profile and choose a plan."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perseus_ds.console import ProgressLine
from perseus_ds.frontier.baselines import BASELINES, baseline_plans, max_frequencies
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.objective_forms import parse_objective
from perseus_ds.frontier.objectives import MinEnergy, Objective
from perseus_ds.frontier.on_time import on_time_plan, undominated
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier, solve
from perseus_ds.messages import PerseusError
from perseus_ds.objective_text import ALLOWED
from perseus_ds.pipeline.clocks import USUAL_JITTER
from perseus_ds.pipeline.schedules import SCHEDULES, schedule_dag
from perseus_ds.profiling.table import read_profile, split_chunks

__all__ = ["add_parser", "add_problem_arguments", "jitter_of", "problem_of", "rounded", "run", "solve_with_progress"]

_MANY_INSTRUCTIONS = 1000  # below, it is over before anybody looks
_LONGEST_S = 10.0


def add_problem_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``plan`` and ``emulate`` that describe a pipeline."""
    parser.add_argument("profile", help="CSV: stage,instruction,frequency,time,energy in MHz, seconds, joules")
    parser.add_argument("--microbatches", type=int, required=True, metavar="M", help="micro-batches per iteration")
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b")
    parser.add_argument("--chunks", type=int, default=1, metavar="V", help="model chunks per stage (interleaved)")
    parser.add_argument(
        "--blocking-power", type=float, default=75.0, metavar="W", help="watts of a waiting GPU (default: 75)"
    )
    parser.add_argument(
        "--gpus-per-stage", type=int, default=1, metavar="G", help="identical GPUs per stage (default: 1)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="X",
        help="allowed relative energy error, for speed (default: 0)",
    )
    parser.add_argument(
        "--switch-latency",
        type=float,
        metavar="SECONDS",
        help="a clock comes so long after it is asked for; it is asked for so long ahead",
    )
    parser.add_argument(
        "--switch-jitter",
        type=float,
        metavar="SECONDS",
        help="standard deviation of what is left (default: a tenth of the latency)",
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
        help=f"{ALLOWED}; default: min_time",
    )
    parser.add_argument("--planner", choices=["perseus", *BASELINES], default="perseus")
    parser.add_argument("-o", "--output", metavar="DIR", help="directory for frontier, plans for Zeus, and plots")


def problem_of(arguments: argparse.Namespace) -> Problem:
    """Build the problem from the shared arguments.

    Raises:
        PerseusError: One line that names the wrong value.
    """
    if not 0 <= arguments.tolerance <= 0.1:
        raise PerseusError("plan-bad-value", name="--tolerance", value=arguments.tolerance, allowed="0 to 0.1")
    profile = split_chunks(read_profile(arguments.profile), arguments.chunks)
    dag = schedule_dag(arguments.schedule, profile.stages, arguments.microbatches, arguments.chunks)
    return Problem(dag, profile, arguments.blocking_power, arguments.gpus_per_stage)


def jitter_of(arguments: argparse.Namespace) -> float | None:
    """Return how much clocks jitter, in seconds; None where nobody asks.

    Raises:
        PerseusError: One line that names the wrong value.
    """
    latency_s, jitter_s = arguments.switch_latency, arguments.switch_jitter
    for name, value in (("--switch-latency", latency_s), ("--switch-jitter", jitter_s)):
        if value is not None and not 0 <= value <= _LONGEST_S:
            raise PerseusError("plan-bad-value", name=name, value=value, allowed=f"0 to {_LONGEST_S:g} seconds")
    if latency_s is None and jitter_s is not None:
        raise PerseusError("plan-bad-value", name="--switch-jitter", value=jitter_s, allowed="with --switch-latency")
    return USUAL_JITTER * latency_s if jitter_s is None and latency_s is not None else jitter_s


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
    answers = _answers(frontier, objective, arguments)
    plans, chosen = [answer.plan for answer in answers[:-1]], answers[-1].plan
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
        "frontier": [_row(answer) for answer in answers[:-1]],
        "chosen": {
            **_row(answers[-1]),
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
    """Solve the frontier, with progress if it takes long."""
    if len(problem.dag.instructions) < _MANY_INSTRUCTIONS:
        return solve(problem, tolerance)
    with closing(ProgressLine("solving, percent", 100, every=20)) as line:
        frontier = solve(problem, tolerance, lambda share: line.to(round(100 * share)))
        line.to(100)
    return frontier


class _Answer(NamedTuple):
    """A plan, and the iteration time that it was asked for; None where nobody asks how late clocks come."""

    plan: Plan
    deadline_s: float | None


def rounded(frontier: Frontier, times: Sequence[float], plan_at: Callable[[float], Plan]) -> list[Plan]:
    """Return the plans at iteration times, with progress if it takes long.

    Args:
        frontier: What is planned for.
        times: Iteration times in seconds.
        plan_at: Makes the plan for an iteration time.
    """
    if len(frontier.problem.dag.instructions) < _MANY_INSTRUCTIONS:
        return [plan_at(time) for time in times]
    plans = []
    with closing(ProgressLine("rounding, plans", len(times))) as line:
        for time in times:
            plans.append(plan_at(time))
            line.step()
    return plans


def _row(answer: _Answer) -> dict[str, float]:
    plan, deadline_s = answer
    row = {"time_s": plan.time_s, "energy_j": plan.energy_j, "lower_bound_j": plan.lower_bound_j}
    return row if deadline_s is None else {"deadline_s": deadline_s, **row}


def _answers(frontier: Frontier, objective: Objective, arguments: argparse.Namespace) -> list[_Answer]:
    """Return the plans of a planner from fast to slow, and last the one for the objective."""
    jitter_s = jitter_of(arguments)
    if arguments.planner != "perseus":
        return _baseline_answers(frontier, objective, arguments.planner, jitter_s)
    times = np.linspace(frontier.t_min_s, frontier.t_star_s, arguments.points).tolist()
    if jitter_s is None:
        plans = rounded(frontier, times, frontier.plan)
        return [_Answer(plan, None) for plan in (*plans, objective.plan(frontier))]
    plan_at = partial(on_time_plan, frontier, jitter_s=jitter_s)
    plans = rounded(frontier, times, plan_at)
    if jitter_s:
        # Waiting longer than the least energy takes saves nothing: a faster plan is then the better answer.
        least_s = MinEnergy().target_time_s(frontier)
        bounds_j = [frontier.lower_bound_j(min(time, least_s)) for time in times]
        plans = [replace(plan, lower_bound_j=j) for plan, j in zip(undominated(plans), bounds_j, strict=True)]
    asked_s: list[float] = []
    chosen = objective.plan(frontier, lambda t_s: asked_s.append(t_s) or plan_at(t_s))
    return [*map(_Answer, plans, times), _Answer(chosen, asked_s[-1])]


def _baseline_answers(frontier: Frontier, objective: Objective, planner: str, jitter_s: float | None) -> list[_Answer]:
    """Return another planner's plans; each was asked for the time that it takes with clocks on time."""
    problem, plans = frontier.problem, {}
    for plan in baseline_plans(frontier.problem, planner):
        bound_j = frontier.lower_bound_j(plan.time_s)
        plans[plan.time_s] = replace(plan, lower_bound_j=bound_j)
        if jitter_s is not None:
            mhz = plan.clocks_of(problem.dag.instructions)
            plans[plan.time_s] = evaluate_late(problem, mhz, jitter_s, bound_j)
    chosen = objective.best_of(list(plans.values()), frontier, planner)
    answers = [*plans.items(), next(item for item in plans.items() if item[1] is chosen)]
    return [_Answer(plan, None if jitter_s is None else time_s) for time_s, plan in answers]


def _write(
    directory: Path, document: dict[str, Any], problem: Problem, plans: list[Plan], chosen: Plan, baseline: Plan
) -> None:
    """Write ``frontier.json``, the plan files for Zeus and the plots."""
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
    if "deadline_s" in chosen:
        rows = [*document["frontier"], chosen]
        late = max(row["time_s"] / row["deadline_s"] for row in rows) - 1
        above = max(row["energy_j"] / row["lower_bound_j"] for row in rows) - 1
        console.print(
            f"Times and energies are what jittering clocks make expect: at most {100 * late:.2f} % over the time "
            f"asked for, and {100 * above:.2f} % above the least possible energy."
        )
