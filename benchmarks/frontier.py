"""The frontier solver beside lowtime and HiGHS, and as pipelines grow.

    python benchmarks/frontier.py [--lowtime-large] [--large]

``--lowtime-large`` lets lowtime solve 8 x 32 too (10 to 15 minutes); ``--large`` adds 16 x 512 and 65,536
instructions. lowtime comes from requirements/bench.txt; without it its rows are left out. Where a target is missed
it says where the time goes.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.network import build_network
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import Profile, read_profile, split_chunks

PROFILES = Path(__file__).parent / "profiles"
BLOCKING_POWER_W = 75.0
LOWTIME_UNIT_S = 0.001
HIGHS_POINTS = 5
LEAST_FACTOR = {(4, 8): 500, (8, 32): 1_000}  # than lowtime, by stages and micro-batches
MOST_SECONDS = {(8, 128, 1, 0.0): 2.0, (16, 512, 1, 5e-4): 20.0, (16, 512, 4, 5e-4): 90.0}


def problem(stages: int, microbatches: int, chunks: int = 1) -> Problem:
    profile = split_chunks(read_profile(PROFILES / f"bench-{stages}-stages.csv"), chunks)
    schedule = "interleaved" if chunks > 1 else "1f1b"
    return Problem(schedule_dag(schedule, stages, microbatches, chunks), profile, BLOCKING_POWER_W)


def timed(run: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Return the median wall time and the last result."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), result


def ours(stages: int, microbatches: int, chunks: int, tolerance: float, repeats: int) -> tuple[float, Frontier]:
    """Time building the problem and solving it; reading the CSV is left out, as for the others."""
    profile = split_chunks(read_profile(PROFILES / f"bench-{stages}-stages.csv"), chunks)
    schedule = "interleaved" if chunks > 1 else "1f1b"

    def run() -> Frontier:
        dag = schedule_dag(schedule, stages, microbatches, chunks)
        return solve(Problem(dag, profile, BLOCKING_POWER_W), tolerance)

    seconds, frontier = timed(run, repeats)
    assert isinstance(frontier, Frontier)
    return seconds, frontier


def highs_second_per_point(frontier: Frontier) -> tuple[float, float]:
    """Solve the same linear program at some iteration times.

    Returns:
        Mean seconds per point, building the matrix excluded, and the largest relative difference.
    """
    one = frontier.problem
    dag, count = one.dag, len(one.dag.instructions)
    edges = dag.edges
    rows, columns, values, limits = [], [], [], []

    def add(entries: list[tuple[int, float]], limit: float) -> None:
        for column, value in entries:
            rows.append(len(limits))
            columns.append(column)
            values.append(value)
        limits.append(limit)

    for a, b in edges.tolist():
        add([(a, 1), (dag.nodes + a, 1), (b, -1)], 0.0)
    ends = [(len(limits) + node, node) for node in range(dag.nodes)]
    for _, node in ends:
        add([(node, 1), (dag.nodes + node, 1)], 0.0)
    bounds: list[tuple[float | None, float | None]] = [(0, None)] * dag.nodes
    curves = [one.options[index] for index in one.curve_of]
    bounds += [(curve.time_s[0], curve.time_s[-1]) for curve in curves]
    bounds += [(None, None)] * count
    for node, curve in enumerate(curves):
        times, energies = curve.time_s[curve.hull], curve.effective_j[curve.hull]
        for slope, start, energy in zip(np.diff(energies) / np.diff(times), times, energies, strict=False):
            add([(dag.nodes + node, slope), (2 * dag.nodes + node, -1)], slope * start - energy)
    matrix = coo_matrix((values, (rows, columns)), shape=(len(limits), len(bounds))).tocsr()
    cost = np.concatenate((np.zeros(2 * dag.nodes), np.ones(count)))
    seconds, worst = [], 0.0
    for limit_s in np.linspace(frontier.t_min_s * 1.001, frontier.t_star_s, HIGHS_POINTS):
        bound = np.array(limits)
        bound[[row for row, _ in ends]] = limit_s
        begin = time.perf_counter()
        result = linprog(cost, matrix, bound, bounds=bounds, method="highs")
        seconds.append(time.perf_counter() - begin)
        exact_j = one.energy_j(float(result.fun), float(limit_s))
        worst = max(worst, abs(frontier.lower_bound_j(float(limit_s)) / exact_j - 1))
    return float(np.mean(seconds)), worst


def lowtime_seconds(stages: int, microbatches: int, profile: Profile) -> tuple[float, int]:
    """Run lowtime's solver to its end as its example does; its curve fits are left out of the time.

    Returns:
        Seconds for graph and solver, and how many points it came to: to its end, or until its own check of
        floating-point flows failed (seen on 8 x 32 after 18 minutes).
    """
    import networkx as nx
    from lowtime.cost_model import ExponentialModel
    from lowtime.graph_utils import add_sink_node, add_source_node
    from lowtime.operation import CandidateExecutionOptions, ExecutionOption, OperationSpec
    from lowtime.perseus.instruction import Backward, Forward
    from lowtime.solver import PhillipsDessouky

    logging.getLogger("lowtime").setLevel(logging.ERROR)
    specs = {}
    for key, points in profile.curves.items():
        options = [ExecutionOption[int](p.time_s, LOWTIME_UNIT_S, p.energy_j, p.frequency_mhz) for p in points]
        for option in options:
            option.cost -= BLOCKING_POWER_W * option.quant_time * LOWTIME_UNIT_S
        candidates = CandidateExecutionOptions[int](options=options)
        specs[key] = OperationSpec[int](candidates, ExponentialModel(candidates, search_strategy="best"))

    begin = time.perf_counter()
    pipeline = schedule_dag("1f1b", stages, microbatches)
    graph = nx.DiGraph()
    for node, one in enumerate(pipeline.instructions, start=2):
        kind = Forward if one.kind is Kind.FORWARD else Backward
        spec = specs[one.stage, one.kind, 0]
        graph.add_node(node, op=kind(spec=spec, stage_id=one.stage, micro_batch_id=one.microbatch))
    graph.add_edges_from((pipeline.edges + 2).tolist())
    add_source_node(graph, 0)
    add_sink_node(graph, 1)
    graph.graph.update(source_node=0, sink_node=1)
    points = 0
    try:
        for _ in PhillipsDessouky(graph).run():
            points += 1
    except BaseException as error:
        # A panic in its Rust part is no Exception, and its type is not exported.
        if type(error).__name__ != "PanicException":
            raise
    return time.perf_counter() - begin, points


def compare(console: Console, lowtime_large: bool) -> None:
    table = Table(title="One frontier: 81 frequencies, blocking power 75 W, problem building included")
    for name in ("pipeline", "solver", "seconds", "points", "perseus_ds is faster by", "difference"):
        table.add_column(name, justify="right")
    missed: list[tuple[str, int, int, int, float]] = []
    for stages, microbatches in ((4, 8), (8, 32)):
        seconds, frontier = ours(stages, microbatches, 1, 0.0, 5)
        name = f"{stages} x {microbatches}"
        table.add_row(name, "perseus_ds, exact, all breakpoints", f"{seconds:.4f}", str(frontier.breakpoints), "", "")
        per_point, difference = highs_second_per_point(frontier)
        whole = per_point * frontier.breakpoints
        table.add_row(
            "", "HiGHS, one point", f"{per_point:.3f}", "1", f"{per_point / seconds:.1f} x", f"{difference:.0e}"
        )
        table.add_row(
            "",
            "HiGHS, as many points (reckoned)",
            f"{whole:.0f}",
            str(frontier.breakpoints),
            f"{whole / seconds:.0f} x",
            "",
        )
        if stages == 8 and not lowtime_large:
            table.add_row("", "lowtime 0.3.0 (with --lowtime-large)", "", "", "", "", end_section=True)
            continue
        try:
            slow, points = lowtime_seconds(stages, microbatches, frontier.problem.profile)
        except ImportError:
            table.add_row("", "lowtime (pip install -r requirements/bench.txt)", "", "", "", "", end_section=True)
            continue
        except Exception as error:  # another project's code: its row says what happened, ours still come
            table.add_row("", f"lowtime 0.3.0: {type(error).__name__}", "", "", "", "", end_section=True)
            continue
        table.add_row(
            "", "lowtime 0.3.0, 1 ms steps", f"{slow:.1f}", str(points), f"{slow / seconds:.0f} x", "", end_section=True
        )
        if slow < LEAST_FACTOR[stages, microbatches] * seconds:
            missed.append((f"{LEAST_FACTOR[stages, microbatches]} x lowtime", stages, microbatches, 1, 0.0))
    console.print(table)
    for target in missed:
        where_the_time_goes(console, *target)


def growth(console: Console, large: bool) -> None:
    cases = [(8, 8, 1, 0.0), (8, 32, 1, 0.0), (8, 128, 1, 0.0), (8, 128, 1, 5e-4), (16, 128, 1, 5e-4)]
    if large:
        cases += [(16, 512, 1, 5e-4), (16, 512, 4, 5e-4)]
    table = Table(title="As pipelines grow")
    for name in (
        "stages",
        "micro-batches",
        "chunks",
        "instructions",
        "tolerance",
        "seconds",
        "breakpoints",
        "ms per instruction",
    ):
        table.add_column(name, justify="right")
    missed: list[tuple[str, int, int, int, float]] = []
    for stages, microbatches, chunks, tolerance in cases:
        seconds, frontier = ours(stages, microbatches, chunks, tolerance, 1)
        count = len(frontier.problem.dag.instructions)
        table.add_row(
            str(stages), str(microbatches), str(chunks), str(count), f"{tolerance:g}", f"{seconds:.3f}",
            str(frontier.breakpoints), f"{1e3 * seconds / count:.3f}",
        )  # fmt: skip
        most = MOST_SECONDS.get((stages, microbatches, chunks, tolerance), np.inf)
        if seconds > most:
            missed.append((f"{most:g} s", stages, microbatches, chunks, tolerance))
    console.print(table)
    for target in missed:
        where_the_time_goes(console, *target)


def where_the_time_goes(
    console: Console, target: str, stages: int, microbatches: int, chunks: int, tolerance: float
) -> None:
    """Print the seconds of each step of a solve that missed its target."""
    marks = [time.perf_counter()]
    one = problem(stages, microbatches, chunks)
    marks.append(time.perf_counter())
    curves = one.thinned(tolerance)
    marks.append(time.perf_counter())
    build_network(one.dag, curves, one.curve_of)
    marks.append(time.perf_counter())
    solve(one, tolerance)
    marks.append(time.perf_counter())
    dag, hulls, network, whole = np.diff(marks)
    console.print(
        f"Missed: {target} on {stages} x {microbatches} x {chunks}. Where the time goes: profile and DAG {dag:.3f} s, "
        f"hulls {hulls:.3f} s, network {network:.3f} s, sweep {max(0.0, whole - hulls - network):.3f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowtime-large", action="store_true", help="let lowtime solve 8 x 32 too")
    parser.add_argument("--large", action="store_true", help="add 16 x 512 and 65,536 instructions")
    arguments = parser.parse_args()
    console = Console(width=140)
    begin = time.perf_counter()
    solve(problem(4, 4)).plan(1e9)
    console.print(
        f"First solve and plan in this process, kernels compiled or loaded: {time.perf_counter() - begin:.2f} s"
    )
    compare(console, arguments.lowtime_large)
    growth(console, arguments.large)


if __name__ == "__main__":
    main()
