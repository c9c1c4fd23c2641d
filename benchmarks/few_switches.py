"""Plans with few clock switches beside the best that HiGHS finds for the same problem.

    python benchmarks/few_switches.py [--most 2 4 8] [--stages 4] [--microbatches 8] [--minutes 10]

The judge is a mixed-integer program over the same clocks: one clock per instruction, one switch wherever two
neighbours of a stage differ, the last and the first included. HiGHS stops after the given time: then the best plan
known is the better one of both, and the bound tells how much better any could be.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_matrix

import perseus_ds.simulator
from perseus_ds.frontier import Problem, evaluate, solve
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import read_profile

PROFILE = Path(perseus_ds.simulator.__file__).parent / "profiles" / "gpt3-175b-a100-sxm.csv"
BLOCKING_W = 83.64
CLOSE = 0.005  # to the best plan known


class Program:
    """The mixed-integer program of one problem.

    Its variables are, in this order: one clock out of all for each instruction (binary), the start of each node, a
    switch after each instruction, and the makespan.

    Args:
        problem: What is planned.
        limit_s: Iteration time allowed.
        most: Switches allowed per stage.
    """

    def __init__(self, problem: Problem, limit_s: float, most: int) -> None:
        dag, self.problem = problem.dag, problem
        curves = [{p.frequency_mhz: p for p in problem.profile.curve(key)} for key in problem.keys]
        self.clocks_mhz = sorted(set.intersection(*map(set, curves)))
        self.count, self.clocks = len(dag.instructions), len(self.clocks_mhz)
        self.time_s = np.array([[curves[c][mhz].time_s for mhz in self.clocks_mhz] for c in problem.curve_of])
        energy_j = np.array([[curves[c][mhz].energy_j for mhz in self.clocks_mhz] for c in problem.curve_of])
        waiting_w = np.array([problem.stage_power_w[one.stage] for one in dag.instructions])
        self.start, self.switch = self.count * self.clocks, self.count * self.clocks + dag.nodes
        self.makespan = self.switch + self.count
        self.rows: list[dict[int, float]] = []
        self.least: list[float] = []
        self.greatest: list[float] = []
        for node in range(self.count):
            self._require({self._clock(node, one): 1.0 for one in range(self.clocks)}, 1.0, 1.0)
        for before, after in dag.edges.tolist():
            self._require(
                {self.start + after: 1.0, self.start + before: -1.0, **self._minus_time(before)}, *self._since(before)
            )
        for node in range(dag.nodes):
            self._require({self.makespan: 1.0, self.start + node: -1.0, **self._minus_time(node)}, *self._since(node))
        for order in dag.program_order:
            for node, after in zip(order.tolist(), np.roll(order, -1).tolist(), strict=True):
                for one in range(self.clocks):
                    self._require(
                        {self.switch + node: 1.0, self._clock(node, one): -1.0, self._clock(after, one): 1.0},
                        0.0,
                        np.inf,
                    )
            self._require({self.switch + node: 1.0 for node in order.tolist()}, 0.0, most)
        effective_j = energy_j - waiting_w[:, None] * self.time_s
        self.cost = np.zeros(self.makespan + 1)
        self.cost[: self.start] = effective_j.ravel()
        self.cost[self.makespan] = float(problem.stage_power_w.sum())
        self.upper = np.full(self.makespan + 1, limit_s)
        self.upper[: self.start] = 1.0
        self.upper[self.switch : self.makespan] = 1.0

    def solve(self, seconds: float) -> tuple[float | None, float]:
        """Return the energy of the best plan that HiGHS finds, None without one, and its bound on any plan's."""
        entries = [(value, number, column) for number, row in enumerate(self.rows) for column, value in row.items()]
        values, numbers, columns = zip(*entries, strict=True)
        matrix = csr_matrix((values, (numbers, columns)), (len(self.rows), self.cost.size))
        whole = np.zeros(self.cost.size)
        whole[: self.start] = 1.0
        found = milp(
            self.cost,
            constraints=LinearConstraint(matrix, self.least, self.greatest),
            integrality=whole,
            bounds=(0.0, self.upper),
            options={"time_limit": seconds, "mip_rel_gap": 1e-4},
        )
        if found.x is None:
            return None, found.mip_dual_bound
        chosen = found.x[: self.start].reshape(self.count, self.clocks).argmax(axis=1)
        plan = evaluate(self.problem, np.array(self.clocks_mhz)[chosen])
        return plan.energy_j, found.mip_dual_bound

    def _clock(self, node: int, clock: int) -> int:
        return node * self.clocks + clock

    def _minus_time(self, node: int) -> dict[int, float]:
        if node >= self.count:
            return {}
        return {self._clock(node, one): -self.time_s[node, one] for one in range(self.clocks)}

    def _since(self, node: int) -> tuple[float, float]:
        """Return the bounds of a node's row: the time of a constant, and no most."""
        constants = self.problem.dag.constants
        return (constants[node - self.count].duration_s if node >= self.count else 0.0), np.inf

    def _require(self, row: dict[int, float], least: float, most: float) -> None:
        self.rows.append(row)
        self.least.append(least)
        self.greatest.append(most)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, nargs="+", default=[2, 4, 8], help="switches allowed per stage")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--slower", type=float, default=0.01, help="iteration time over T_min")
    parser.add_argument("--minutes", type=float, default=10.0, help="for HiGHS, per row")
    arguments = parser.parse_args()
    profile = read_profile(PROFILE)
    dag = schedule_dag("1f1b", arguments.stages, arguments.microbatches)
    problem = Problem(dag, profile, BLOCKING_W)
    frontier = solve(problem)
    limit_s = (1.0 + arguments.slower) * frontier.t_min_s
    table = Table(
        "at most", "ours", "seconds", "HiGHS", "its bound", "over the best known", "over the bound", "within 0.5 %"
    )
    for most in arguments.most:
        begin_s = time.perf_counter()
        ours = switch_aware_plan(frontier, limit_s, SwitchCost(max_switches=most))
        took_s = time.perf_counter() - begin_s
        theirs_j, bound_j = Program(problem, limit_s, most).solve(60.0 * arguments.minutes)
        best_j = min(ours.energy_j, theirs_j if theirs_j is not None else np.inf)
        over = ours.energy_j / best_j - 1.0
        cells = [f"{ours.energy_j:.1f} J", f"{took_s:.2f}", "none" if theirs_j is None else f"{theirs_j:.1f} J"]
        cells += [f"{bound_j:.1f} J", f"{100 * over:+.2f} %", f"{100 * (ours.energy_j / bound_j - 1.0):+.2f} %"]
        table.add_row(f"{most} per stage", *cells, "yes" if over <= CLOSE else "no")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
