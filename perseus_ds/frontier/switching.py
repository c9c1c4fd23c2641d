"""Plans with few clock switches: each switch costs, and a stage may have no more than some.

1. A shortest path over (position, switches so far, clock) chooses a stage's clocks. Its cost is the energy, the price
   of time at each instruction, and the penalty of each switch (Viterbi's algorithm, IEEE Trans. Inf. Theory 13(2)).
2. The prices begin with the LP's. With few switches other paths are critical. So prices move to the critical path, and
   rise or fall with the iteration time (subgradients of the Lagrangian relaxation; Fisher, Management Science 27(1),
   1981).
3. Random moves on the DAG (``switch_moves``) make the best of the paths that are fast enough.

Time O(rounds * instructions * switches * clocks²) per stage, and half a second for the moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier
from perseus_ds.frontier.switch_moves import StageTable, count_changes, frequencies_along, move_clocks
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import PipelineDag

__all__ = ["SwitchCost", "has_common_clocks", "switch_aware_plan"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDS = 20
_STEP = 0.15  # part of the prices that moves in the first round; later less
_GAIN = 5.0  # how much the prices' sum follows the iteration time


@dataclass(frozen=True)
class SwitchCost:
    """The cost of a clock switch.

    Attributes:
        penalty_j: Energy charged for each switch, for planning only.
        max_switches: Most switches per stage and iteration, including the one back to the start; None: any number.

    Raises:
        PerseusError: A value is negative or not finite.
    """

    penalty_j: float = 0.0
    max_switches: int | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.penalty_j) and self.penalty_j >= 0):
            raise PerseusError("plan-bad-value", name="switch penalty", value=self.penalty_j, allowed="0 or more")
        if self.max_switches is not None and self.max_switches < 0:
            raise PerseusError("plan-bad-value", name="max_switches", value=self.max_switches, allowed="0 or more")


def switch_aware_plan(frontier: Frontier, t_s: float, cost: SwitchCost, *, thorough: bool = True) -> Plan:
    """Return a plan whose iteration time is at most ``t_s``, and whose switches are worth what they cost.

    Args:
        frontier: The pipeline's.
        t_s: Iteration time allowed, in seconds.
        cost: The cost of switches.
        thorough: False takes the best paths without random moves: in a tenth of the time, as a start for other moves.

    Raises:
        PerseusError: ``t_s`` is below T_min, or needs more switches; the message names the nearest time.
    """
    problem = frontier.problem
    limit_s = max(t_s, frontier.t_min_s) * (1 + 1e-12)
    tables = [_choices(problem, order) for order in problem.dag.program_order]
    paths = _priced_paths(frontier, tables, t_s, limit_s, cost)
    if not thorough:
        return evaluate(problem, frequencies_along(problem.dag, tables, paths), frontier.lower_bound_j(t_s))
    price_w = frontier.price_w(t_s) / problem.gpus_per_stage + float(problem.stage_power_w.sum())
    moved = move_clocks(problem.dag, tables, paths, limit_s, price_w, cost.penalty_j, cost.max_switches)
    plans = [evaluate(problem, moved)]
    ordinary = frontier.plan(t_s)
    if cost.max_switches is None or _most_switches(problem.dag, ordinary) <= cost.max_switches:
        plans.append(ordinary)
    within = [plan for plan in plans if plan.time_s <= limit_s]
    if not within:
        nearest = min(plan.time_s for plan in plans)
        raise PerseusError(
            "plan-infeasible",
            objective=f"deadline={t_s:.6g} with {cost}",
            detail="it needs more switches",
            closest=f"deadline={nearest:.6g}",
        )
    best = min(within, key=lambda plan: plan.energy_j + cost.penalty_j * plan.switches)
    return replace(best, lower_bound_j=frontier.lower_bound_j(best.time_s))


def has_common_clocks(problem: Problem) -> bool:
    """Whether every stage has a clock that all of its curves have; without one, no plan has few switches."""
    return all(_common_clocks_mhz(problem, order) for order in problem.dag.program_order)


def _common_clocks_mhz(problem: Problem, order: IntArray) -> list[int]:
    """Return the clocks that all curves of some instructions have, by rising clock."""
    curves = [problem.curves[kind] for kind in np.unique(problem.curve_of[order])]
    return sorted(set.intersection(*({point.frequency_mhz for point in curve} for curve in curves)))


def _most_switches(dag: PipelineDag, plan: Plan) -> int:
    """Return the clock changes per iteration of the stage with the most."""
    mhz = plan.clocks_of(dag.instructions)
    return max(count_changes(mhz[order]) for order in dag.program_order)


def _choices(problem: Problem, order: IntArray) -> StageTable:
    """Return a stage's table of the clocks that all of its curves have: any of its instructions may take any."""
    kinds, row = np.unique(problem.curve_of[order], return_inverse=True)
    curves = [{point.frequency_mhz: point for point in problem.curves[kind]} for kind in kinds]
    clocks_mhz = _common_clocks_mhz(problem, order)
    stage = problem.dag.instructions[order[0]].stage
    if not clocks_mhz:
        allowed = f"profiles whose curves of stage {stage} share a frequency"
        raise PerseusError("plan-bad-value", name="profile", value=problem.profile.source, allowed=allowed)
    option_s = np.array([[curve[mhz].time_s for mhz in clocks_mhz] for curve in curves])
    option_j = np.array([[curve[mhz].energy_j for mhz in clocks_mhz] for curve in curves])
    option_j -= problem.stage_power_w[stage] * option_s
    return StageTable(np.array(clocks_mhz), option_s, option_j, row.astype(np.int64))


def _priced_paths(
    frontier: Frontier, tables: Sequence[StageTable], t_s: float, limit_s: float, cost: SwitchCost
) -> list[IntArray]:
    """Return the paths of all stages: the cheapest found that are fast enough, else those at the highest clocks."""
    dag, (_, prices) = frontier.problem.dag, frontier.solution(t_s)
    least_w = float(frontier.problem.stage_power_w.sum())
    most = -1 if cost.max_switches is None else cost.max_switches
    best = [np.full(table.row.size, table.clocks_mhz.size - 1, dtype=np.int64) for table in tables]
    best_j = np.inf
    for number in range(_ROUNDS):
        times, paid_j, paths = np.empty(prices.size), 0.0, []
        for table, order in zip(tables, dag.program_order, strict=True):
            path = _cheapest_path(*table[1:], prices[order], cost.penalty_j, most)
            times[order] = table.option_s[table.row, path]
            paid_j += float(table.option_j[table.row, path].sum()) + cost.penalty_j * count_changes(path)
            paths.append(path)
        time_s = dag.makespan(times)
        if time_s <= limit_s and paid_j < best_j:
            best, best_j = paths, paid_j
        critical = np.zeros(prices.size)
        critical[[node for node in dag.critical_path(times) if node < prices.size]] = 1.0
        step = _STEP / np.sqrt(1 + number)
        prices = (1 - step) * prices + step * max(prices.sum(), least_w) * critical / critical.sum()
        prices *= np.exp(np.clip(_GAIN * (time_s / limit_s - 1), -_STEP, _STEP))
    return best


@njit(cache=True, nogil=True)
def _cheapest_path(
    option_s: FloatArray, option_j: FloatArray, row: IntArray, prices: FloatArray, penalty_j: float, most: int
) -> IntArray:
    """Return the clocks, as indices, with the least energy, price of time and penalty altogether.

    The iteration repeats: from the last instruction to the first there may be a switch too. ``most`` is the most
    switches; below 0 there is no limit, and they need not be counted. First clocks are tried by what they cost at
    least, until no other can win.
    """
    count, clocks = row.size, option_s.shape[1]
    counts, layers = int(most >= 0), max(most, 0) + 1
    cost = np.empty((count, clocks))
    for position in range(count):
        cost[position] = option_j[row[position]] + prices[position] * option_s[row[position]]
    least_from = np.zeros(clocks)  # without the switch back, and with any number of others
    for position in range(count - 1, -1, -1):
        least_from = cost[position] + np.minimum(least_from, least_from.min() + penalty_j)
    came = np.empty((count, layers, clocks), dtype=np.int64)
    path, least = np.empty(count, dtype=np.int64), np.inf
    before, total = np.empty((2, layers, clocks))
    for first in np.argsort(least_from, kind="mergesort"):
        if least_from[first] >= least:
            break
        total[:] = np.inf
        total[0, first] = cost[0, first]
        for position in range(1, count):
            before, total = total, before
            for layer in range(layers):
                cheapest, switched = 0, np.inf
                if layer >= counts:
                    cheapest = np.argmin(before[layer - counts])
                    switched = before[layer - counts, cheapest] + penalty_j
                for now in range(clocks):
                    # Where the cheapest is the clock itself, fewer switches are cheaper: another layer has that.
                    stays = cheapest == now or before[layer, now] <= switched
                    came[position, layer, now] = now if stays else cheapest
                    total[layer, now] = (before[layer, now] if stays else switched) + cost[position, now]
        for layer in range(layers):
            for last in range(clocks):
                back = int(last != first)
                value = total[layer, last] + back * penalty_j
                if value < least and layer + back * counts < layers:
                    least, at, now = value, layer, last
                    for position in range(count - 1, -1, -1):
                        path[position] = now
                        if position > 0 and came[position, at, now] != now:
                            now = came[position, at, now]
                            at -= counts
    return path
