"""``emulate``: estimate the saving of a large job with stragglers, under every planner."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from perseus_ds.commands.plan import add_problem_arguments, jitter_of, problem_of, solve_with_progress
from perseus_ds.commands.signal_cost import run_signal
from perseus_ds.frontier.emulation import emulate
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.messages import PerseusError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the ``emulate`` command."""
    parser = subparsers.add_parser("emulate", help="estimate the saving of a large job", description=__doc__)
    add_problem_arguments(parser)
    parser.add_argument("--pipelines", type=int, default=1, metavar="D", help="data-parallel pipelines (default: 1)")
    parser.add_argument(
        "--straggler",
        type=float,
        action="append",
        default=[],
        metavar="FACTOR",
        help="a pipeline that takes FACTOR times as long; repeat the option for several",
    )
    parser.add_argument(
        "--strong-scaling",
        action="store_true",
        help="the same global batch on fewer and more pipelines: M halved and D doubled, and so on",
    )
    parser.add_argument(
        "--signal",
        metavar="FILE",
        help="what following a power costs: CSV with the columns iterations,power, such as 20,75%% or 20,12kW",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        PerseusError: Wrong input.
    """
    begin = time.perf_counter()
    if not arguments.pipelines >= 1:
        raise PerseusError("plan-bad-value", name="--pipelines", value=arguments.pipelines, allowed="from 1")
    if arguments.signal:
        return run_signal(arguments)
    if len(arguments.straggler) > arguments.pipelines:
        allowed = f"at most {arguments.pipelines}, the number of pipelines"
        raise PerseusError(
            "plan-bad-value", name="--straggler", value=f"{len(arguments.straggler)} times", allowed=allowed
        )
    for factor in arguments.straggler:
        if not 1 <= factor <= 100:
            raise PerseusError("plan-bad-value", name="--straggler", value=factor, allowed="1 to 100")
    sizes = [(arguments.microbatches, arguments.pipelines)]
    if arguments.strong_scaling:
        sizes = _scalings(arguments.microbatches, arguments.pipelines, arguments.schedule, len(arguments.straggler))
    rows = [_emulate(arguments, microbatches, pipelines) for microbatches, pipelines in sizes]
    main = next(row for row in rows if row["pipelines"] == arguments.pipelines)
    document = {**main, "seconds": time.perf_counter() - begin}
    if arguments.strong_scaling:
        document["strong_scaling"] = rows
    if arguments.json:
        print(json.dumps(document))
    else:
        _print_table(rows, document["seconds"])
    return 0


def _scalings(microbatches: int, pipelines: int, schedule: str, stragglers: int) -> list[tuple[int, int]]:
    """Yield halved and doubled jobs, up to 16 times the pipelines, while counts stay whole and every straggler fits."""
    sizes = [(microbatches, pipelines)]
    while sizes[0][1] % 2 == 0 and sizes[0][1] // 2 >= stragglers and len(sizes) < 3:
        sizes.insert(0, (sizes[0][0] * 2, sizes[0][1] // 2))
    while sizes[-1][0] % 2 == 0 and sizes[-1][0] > 2 and sizes[-1][1] < 16 * pipelines and schedule != "interleaved":
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] * 2))
    return sizes


def _emulate(arguments: argparse.Namespace, microbatches: int, pipelines: int) -> dict[str, Any]:
    problem = problem_of(argparse.Namespace(**{**vars(arguments), "microbatches": microbatches}))
    frontier = solve_with_progress(problem, arguments.tolerance)
    jitter_s = jitter_of(arguments)
    plan_at = frontier.plan if jitter_s is None else partial(on_time_plan, frontier, jitter_s=jitter_s)
    found = asdict(emulate(frontier, pipelines, arguments.straggler, plan_at))
    if jitter_s:
        punctual = emulate(frontier, pipelines, arguments.straggler)
        found["saving_lost_to_jitter"] = punctual.saving_total - found["saving_total"]
        found["slowdown_by_jitter"] = plan_at(frontier.t_min_s).time_s / frontier.t_min_s - 1
    return {
        "schedule": arguments.schedule,
        "stages": problem.dag.stages,
        "microbatches": microbatches,
        "pipelines": pipelines,
        "gpus": problem.dag.stages * problem.gpus_per_stage * pipelines,
        "stragglers": arguments.straggler,
        "t_min_s": frontier.t_min_s,
        "t_star_s": frontier.t_star_s,
        **found,
    }


def _print_table(rows: list[dict[str, Any]], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    stragglers = ", ".join(f"{factor:g}" for factor in rows[0]["stragglers"])
    table = Table(title=f"Saving in % of the energy at the highest clocks; stragglers: {stragglers or 'none'}")
    for name in ("micro-batches", "pipelines", "GPUs", "planner", "no straggler", "with", "T_opt s", "T' s"):
        table.add_column(name, justify="right")
    for row in rows:
        size = (str(row["microbatches"]), str(row["pipelines"]), str(row["gpus"]))
        own = (_percent(row, "saving_intrinsic"), _percent(row, "saving_total"))
        table.add_row(*size, "perseus", *own, f"{row['t_opt_s']:.4f}", f"{row['t_straggler_s']:.4f}")
        for planner, savings in row["planners"].items():
            other = (_percent(savings, "saving_intrinsic"), _percent(savings, "saving_total"))
            table.add_row("", "", "", planner, *other, "", "", end_section=planner == "max")
    console = Console()
    console.print(table)
    for row in rows:
        if "saving_lost_to_jitter" in row:
            console.print(
                f"{row['pipelines']} pipelines: jittering clocks cost {_percent(row, 'saving_lost_to_jitter')} points "
                f"of the saving, and {_percent(row, 'slowdown_by_jitter')} % of the time at T_min."
            )
    console.print(f"Answered in {seconds:.1f} s. T': the slowest pipeline's iteration time.")


def _percent(row: dict[str, Any], key: str) -> str:
    return f"{100 * row[key]:.2f}"
