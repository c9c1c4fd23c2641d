"""Plans with few clock switches: each one takes time to show, and costs.

A switch asked for as an instruction begins shows ``latency_s`` later; until then the instruction runs at the
clock before. Two steps. First a shortest path over (position, frequency) chooses each stage's frequencies:
energy, plus the LP's price of time, plus the penalty of each switch (Viterbi's algorithm, IEEE Trans. Inf.
Theory 13(2), 1967; O(instructions * frequencies²)). Then, on the DAG and with the delays that follow: moves of
one instruction, or of a run of equal clocks, to another clock; the cheapest per second while the iteration is
too long, and then any that saves. Each move costs O(nodes * frequencies).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.solver import Frontier
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.paths import longest_from, longest_to

__all__ = ["SwitchCost", "delayed_points", "evaluate_delayed", "switch_aware_plan", "switch_curve"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BISECTIONS = 24


@dataclass(frozen=True)
class SwitchCost:
    """What a clock switch costs.

    Attributes:
        latency_s: From the request, at an instruction's begin, to the new clock.
        penalty_j: Energy charged for each switch, for planning only.
        max_switches: Most switches per stage and iteration, the one back to the start included.
    """

    latency_s: float = 0.0
    penalty_j: float = 0.0
    max_switches: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("switch latency", self.latency_s), ("switch penalty", self.penalty_j)):
            if not (np.isfinite(value) and value >= 0):
                raise PerseusError("plan-bad-value", name=name, value=value, allowed="0 or more")
        if self.max_switches is not None and self.max_switches < 0:
            raise PerseusError("plan-bad-value", name="max_switches", value=self.max_switches, allowed="0 or more")


def switch_aware_plan(frontier: Frontier, t_s: float, cost: SwitchCost) -> Plan:
    """Return a plan whose iteration time, switch latencies included, is at most ``t_s``.

    Args:
        frontier: The pipeline's.
        t_s: Iteration time allowed.
        cost: What switches cost.

    Raises:
        PerseusError: ``t_s`` is below T_min.
    """
    problem = frontier.problem
    _, prices = frontier.solution(t_s)
    limit_s = max(t_s, frontier.t_min_s) * (1 + 1e-12)
    tables = [_choices(problem, order) for order in problem.dag.program_order]
    starts = [
        [
            _path_within(table, prices[order], cost)
            for table, order in zip(tables, problem.dag.program_order, strict=True)
        ],
        [np.full(table.row.size, table.clocks_mhz.size - 1, dtype=np.int64) for table in tables],
    ]
    tuned = [_tuned(problem, tables, paths, limit_s, cost) for paths in starts]
    plans = [evaluate_delayed(problem, frequency_mhz, cost.latency_s) for frequency_mhz in tuned]
    within = [plan for plan in plans if plan.time_s <= limit_s]
    if not within:
        nearest = min(plan.time_s for plan in plans)
        raise PerseusError(
            "plan-infeasible",
            objective=f"deadline={t_s:.6g} with {cost}",
            detail="switches take too long",
            closest=f"deadline={nearest:.6g}",
        )
    best = min(within, key=lambda plan: plan.energy_j + cost.penalty_j * plan.switches)
    return replace(best, lower_bound_j=frontier.lower_bound_j(best.time_s))


def switch_curve(frontier: Frontier, t_s: float, latency_s: float, penalties_j: Sequence[float]) -> list[Plan]:
    """Return the trade-off of energy against switches: one plan per penalty."""
    return [switch_aware_plan(frontier, t_s, SwitchCost(latency_s, penalty)) for penalty in penalties_j]


def delayed_points(problem: Problem, frequency_mhz: IntArray, latency_s: float) -> tuple[FloatArray, FloatArray]:
    """Return each instruction's duration and effective energy when switches show ``latency_s`` late.

    The iteration repeats: its first instruction comes after its last. At a clock of the one before that its own
    curve lacks, an instruction runs as between the neighbouring ones.
    """
    times, effective = np.empty(frequency_mhz.size), np.empty(frequency_mhz.size)
    for order in problem.dag.program_order:
        table = _stage_table(problem, order, _clocks(problem, order, set.union))
        now = np.searchsorted(table.clocks_mhz, frequency_mhz[order])
        times[order], effective[order] = _walk(table, now, latency_s)
    return times, effective


def evaluate_delayed(problem: Problem, frequency_mhz: IntArray, latency_s: float, lower_bound_j: float = 0.0) -> Plan:
    """Make a plan of frequencies as ``evaluate`` does, with switches that show ``latency_s`` late.

    Args:
        problem: What is planned.
        frequency_mhz: Of each instruction, shape (instructions,).
        latency_s: From the request, at an instruction's begin, to the new clock.
        lower_bound_j: Resumable bound for the plan's iteration time; 0 when none is known.

    Raises:
        PerseusError: A frequency was not measured.
    """
    plan = evaluate(problem, frequency_mhz, lower_bound_j)
    times, effective = delayed_points(problem, frequency_mhz, latency_s)
    time_s = problem.dag.makespan(times)
    energy_j = problem.energy_j(float(effective.sum()), time_s)
    return replace(plan, time_s=time_s, energy_j=energy_j, switch_latency_s=latency_s)


class _StageTable(NamedTuple):
    """One stage's choices: its clocks, and duration and effective energy per curve and clock.

    Attributes:
        clocks_mhz: Ascending, shape (clocks,).
        option_s: Shape (curves, clocks).
        option_j: Shape (curves, clocks).
        row: Curve of each instruction in program order.
    """

    clocks_mhz: IntArray
    option_s: FloatArray
    option_j: FloatArray
    row: IntArray


def _choices(problem: Problem, order: IntArray) -> _StageTable:
    """Return a stage's table of the clocks that all of its curves have: any of its instructions may take any."""
    clocks = _clocks(problem, order, set.intersection)
    if not clocks.size:
        stage = problem.dag.instructions[order[0]].stage
        allowed = f"profiles whose curves of stage {stage} share a frequency"
        raise PerseusError("plan-bad-value", name="profile", value=problem.profile.source, allowed=allowed)
    return _stage_table(problem, order, clocks)


def _clocks(problem: Problem, order: IntArray, joined: Callable[..., set[int]]) -> IntArray:
    kinds = np.unique(problem.curve_of[order])
    curves = [{p.frequency_mhz for p in problem.profile.curve(problem.keys[kind])} for kind in kinds]
    return np.array(sorted(joined(*curves)), dtype=np.int64)


def _stage_table(problem: Problem, order: IntArray, clocks_mhz: IntArray) -> _StageTable:
    """Return a stage's table; a clock that a curve lacks lies between its neighbours."""
    kinds, row = np.unique(problem.curve_of[order], return_inverse=True)
    option_s = np.empty((kinds.size, clocks_mhz.size))
    option_j = np.empty((kinds.size, clocks_mhz.size))
    for index, kind in enumerate(kinds):
        key = problem.keys[kind]
        mhz, time_s, energy_j = np.array([p[:3] for p in problem.profile.curve(key)[::-1]]).T
        option_s[index] = np.interp(clocks_mhz, mhz, time_s)
        option_j[index] = np.interp(clocks_mhz, mhz, energy_j) - problem.stage_power_w[key.stage] * option_s[index]
    return _StageTable(clocks_mhz, option_s, option_j, row.astype(np.int64))


def _path_within(table: _StageTable, prices: FloatArray, cost: SwitchCost) -> IntArray:
    """Return the best path with at most ``max_switches``: the penalty grows until it holds."""
    penalty_j = cost.penalty_j
    path = _cheapest_path(*table[1:], prices, cost.latency_s, penalty_j)
    if cost.max_switches is None or _switches(path) <= cost.max_switches:
        return path
    low, high = penalty_j, penalty_j + 1e-3
    while _switches(_cheapest_path(*table[1:], prices, cost.latency_s, high)) > cost.max_switches:
        low, high = high, 4 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _switches(_cheapest_path(*table[1:], prices, cost.latency_s, middle)) > cost.max_switches:
            low = middle
        else:
            high = middle
    return _cheapest_path(*table[1:], prices, cost.latency_s, high)


def _switches(path: IntArray) -> int:
    return int(np.count_nonzero(path != np.roll(path, 1)))


def _walk(table: _StageTable, path: IntArray, latency_s: float) -> tuple[FloatArray, FloatArray]:
    """Return duration and effective energy of each instruction along a path of clocks."""
    before = np.roll(path, 1)
    rows = table.row
    old_s, old_j = table.option_s[rows, before], table.option_j[rows, before]
    new_s, new_j = table.option_s[rows, path], table.option_j[rows, path]
    share = np.where(before == path, 0.0, np.minimum(1.0, latency_s / old_s))
    return share * old_s + (1 - share) * new_s, share * old_j + (1 - share) * new_j


@njit(cache=True, nogil=True)
def _cheapest_path(
    option_s: FloatArray, option_j: FloatArray, row: IntArray, prices: FloatArray, latency_s: float, penalty_j: float
) -> IntArray:
    """Return the clocks, as indices, with the least energy, price of time and penalty altogether.

    The way back from the last to the first instruction is not looked at.
    """
    count, clocks = row.size, option_s.shape[1]
    total = option_j[row[0]] + prices[0] * option_s[row[0]]
    came = np.empty((count, clocks), dtype=np.int64)
    for position in range(1, count):
        times, energies = option_s[row[position]], option_j[row[position]]
        after = np.empty(clocks)
        for now in range(clocks):
            own = energies[now] + prices[position] * times[now]
            best, best_cost = now, total[now] + own
            for before in range(clocks):
                share = min(1.0, latency_s / times[before])
                old = energies[before] + prices[position] * times[before]
                cost = total[before] + penalty_j + share * old + (1 - share) * own
                if cost < best_cost:
                    best, best_cost = before, cost
            came[position, now] = best
            after[now] = best_cost
        total = after
    path = np.empty(count, dtype=np.int64)
    path[count - 1] = np.argmin(total)
    for position in range(count - 1, 0, -1):
        path[position - 1] = came[position, path[position]]
    return path


def _tuned(
    problem: Problem, tables: list[_StageTable], paths: list[IntArray], limit_s: float, cost: SwitchCost
) -> IntArray:
    """Return each instruction's frequency after moves on the DAG."""
    dag, count = problem.dag, len(problem.dag.instructions)
    clock, row = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    previous, following = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    leads = np.zeros(count, dtype=np.bool_)
    stage = np.zeros(count, dtype=np.int64)
    widest = max(table.clocks_mhz.size for table in tables)
    rows = sum(table.option_s.shape[0] for table in tables)
    option_s, option_j = np.full((rows, widest), np.inf), np.full((rows, widest), np.inf)
    clocks = np.zeros(rows, dtype=np.int64)
    done = 0
    for number, (table, path, order) in enumerate(zip(tables, paths, dag.program_order, strict=True)):
        here = slice(done, done + table.option_s.shape[0])
        option_s[here, : table.clocks_mhz.size] = table.option_s
        option_j[here, : table.clocks_mhz.size] = table.option_j
        clocks[here] = table.clocks_mhz.size
        clock[order], row[order], stage[order] = path, table.row + done, number
        previous[order], following[order] = np.roll(order, 1), np.roll(order, -1)
        leads[order[0]] = True
        done = here.stop
    stage_switches = np.array([_switches(path) for path in paths], dtype=np.int64)
    most = np.iinfo(np.int64).max if cost.max_switches is None else cost.max_switches
    _tune(
        dag.topological_order, *dag.predecessors, *dag.successors, dag.node_times_s(np.zeros(count)),
        previous, following, leads, row, stage, clocks, option_s, option_j,
        clock, stage_switches, limit_s, cost.latency_s, cost.penalty_j, most,
    )  # fmt: skip
    frequencies = np.zeros(count, dtype=np.int64)
    for table, order in zip(tables, dag.program_order, strict=True):
        frequencies[order] = table.clocks_mhz[clock[order]]
    return frequencies


@njit(cache=True, nogil=True)
def _blend(old: float, new: float, share: float) -> float:
    return share * old + (1 - share) * new


@njit(cache=True, nogil=True)
def _tune(
    order, before, tails, after, heads, times, previous, following, leads, row, stage, clocks, option_s, option_j,
    clock, stage_switches, limit_s, latency_s, penalty_j, most,
):  # fmt: skip
    """Move instructions, or runs of them, to other clocks, until the limit holds and nothing saves any more."""
    count = clock.size
    joules = np.zeros(count)
    for node in range(count):
        times[node], joules[node] = _delayed(
            row[node], clock[previous[node]], clock[node], option_s, option_j, latency_s
        )
    for _ in range(2 * count):
        starts = longest_to(order, before, tails, times)
        rest = longest_from(order, after, heads, times)
        late = np.max(starts + times) > limit_s
        best, best_clock, best_length, best_value = -1, -1, 0, 0.0
        for node in range(count):
            over = starts[node] + times[node] + rest[node] - limit_s
            if late and over <= 0:
                continue
            run = _run_length(node, leads, previous, following, clock)
            for length in range(1, run + 1, max(1, run - 1)):
                for other in range(clocks[row[node]]):
                    if other == clock[node]:
                        continue
                    change_j, change_s, switches, fits = _try(
                        node, length, other, previous, following, row, clock, option_s, option_j, latency_s,
                        times, joules, starts, rest, limit_s,
                    )  # fmt: skip
                    if switches > 0 and stage_switches[stage[node]] + switches > most:
                        continue
                    change_j += penalty_j * switches
                    if late:
                        if change_s >= -1e-12:
                            continue
                        value = 1 / (1e-6 + max(0.0, change_j) / min(-change_s, over))
                    else:
                        value = -change_j if fits else 0.0
                    if value > best_value + 1e-9:
                        best, best_clock, best_length, best_value = node, other, length, value
        if best < 0:
            return
        node = best
        for _ in range(best_length):
            clock[node] = best_clock
            node = following[node]
        switches = 0
        for member in range(count):
            if stage[member] == stage[best]:
                old = clock[previous[member]]
                switches += clock[member] != old
                times[member], joules[member] = _delayed(row[member], old, clock[member], option_s, option_j, latency_s)
        stage_switches[stage[best]] = switches


@njit(cache=True, nogil=True)
def _delayed(row, old, new, option_s, option_j, latency_s):
    """Return duration and effective energy of an instruction that finds clock ``old`` and asks for ``new``."""
    share = 0.0 if old == new else min(1.0, latency_s / option_s[row, old])
    return (
        _blend(option_s[row, old], option_s[row, new], share),
        _blend(option_j[row, old], option_j[row, new], share),
    )


@njit(cache=True, nogil=True)
def _run_length(node, leads, previous, following, clock):
    """Return how many instructions, from ``node`` on, have its clock if it is the first of them, else 1.

    Where a whole stage has one clock, the one that leads the stage counts as the first.
    """
    alone = clock[previous[node]] == clock[node]
    if alone and not leads[node]:
        return 1
    length, member = 1, following[node]
    while member != node and clock[member] == clock[node]:
        length += 1
        member = following[member]
    return 1 if alone and member != node else length


@njit(cache=True, nogil=True)
def _try(
    first, length, other, previous, following, row, clock, option_s, option_j, latency_s,
    times, joules, starts, rest, limit_s,
):  # fmt: skip
    """Return what a move would do: energy, time along the stage, switches, and whether the limit holds."""
    change_j = change_s = ready = 0.0
    fits, switches = True, 0
    node, old, was = first, clock[previous[first]], clock[previous[first]]
    if length > 1 and was == clock[first]:
        old = other  # the whole stage: its first instruction comes after its last
    for member in range(length + 1):
        if member == length and node == first:
            break
        now = other if member < length else clock[node]
        time, energy = _delayed(row[node], old, now, option_s, option_j, latency_s)
        # Cautious for runs: who comes later counts with the starts of before and the stage's own delay.
        begin = max(starts[node], ready)
        fits = fits and begin + time + rest[node] <= limit_s
        ready = begin + time
        change_j += energy - joules[node]
        change_s += time - times[node]
        switches += (now != old) - (clock[node] != was)
        old, was, node = now, clock[node], following[node]
    return change_j, change_s, switches, fits
