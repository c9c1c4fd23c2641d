"""Realizable plans: one measured option per instruction, iteration time at most T.

There are three steps. Each improves on the one before on measured profiles (docs tell by how much):

1. Starts, of two kinds. The first goes through the instructions in topological order. Each takes the option with the
   least reduced cost (energy plus the LP's price of time) that ends by the LP's end. Its successors inherit the slack
   that it leaves. Starts differ in direction, in the price of slack, and in how much slack of its successors an
   instruction may use. The second kind goes stage by stage and takes the best options of the whole chain (``chains``).
   Stages that come later are a step faster than in the LP. Starts differ in the order of stages and in the price paid.
2. Chains. Each micro-batch, and then each stage, takes its best options while all other instructions keep theirs.
3. Search. Random changes in windows of time (``search``).

The result is deterministic. Time O(starts * (nodes * options + chains)), plus that of chains and search.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.chains import Pricing, choose_chains
from perseus_ds.frontier.ordered import Ordered, chosen_times, heads, order_nodes, tails, total_j
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.search import fill, search
from perseus_ds.pipeline.csr import Csr, grouped

__all__ = ["round_durations"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SLACK_PRICES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
_ADVANCES = (0.0, 0.5, 1.0)
_PAID = (0.8, 0.95)  # of the LP's price, what a stage pays for time that others could use
_EFFORT = 1_600  # divided by the nodes: how many starts go stage by stage, and how many are followed up
_LARGE = 10_000  # nodes from which on none does
_SPREAD = 0.07  # of an instruction's mean energy: how much worse a chain's label may be
_TRIALS = 1_500  # for each start that is followed up; twice as many for an only one
_TEMPERATURE = 1e-3  # of an instruction's mean energy: what a worse random change may cost
_MARGIN = 1e-12  # for sums of floats in another order


def round_durations(
    problem: Problem, durations_s: FloatArray, prices_w: FloatArray, limit_s: float, *, thorough: bool = True
) -> IntArray:
    """Return a frequency for every instruction with a makespan of at most ``limit_s``.

    Args:
        problem: What is planned.
        durations_s: LP-optimal durations, shape (instructions,).
        prices_w: The LP's marginal power of each instruction, shape (instructions,).
        limit_s: At least the makespan of the fastest options.
        thorough: False takes the best start as it is: in a tenth of the time, for a first impression.
    """
    task, rank = _prepare(problem, durations_s, prices_w)
    choice = task.nodes.first
    for margin in (_MARGIN, -_MARGIN):  # exactly tight choices first; if a float sum exceeds, without them
        choice = _rounded(task, limit_s * (1 + margin), thorough)
        if _makespan(task.nodes, choice, task.times_s) <= limit_s:
            break
    frequencies = np.concatenate([curve.frequency_mhz for curve in problem.options])
    return frequencies[choice[rank[: len(problem.dag.instructions)]]]


@dataclass(frozen=True)
class _Task:
    """The rounding task. Arrays of shape (nodes,) are by start time.

    Attributes:
        nodes: The nodes.
        times_s: LP-optimal times in seconds, shape (nodes,).
        faster_s: The same with every instruction at its last hull point that is not slower, shape (nodes,).
        fastest_s: The same with every instruction at the hull point before it, if any, shape (nodes,).
        prices_w: The LP's marginal powers in watts, 0 for constants, shape (nodes,).
        stages: Each stage's nodes.
        stage_orders: Orders of the stages' turns, each of shape (stages,).
        microbatches: Each micro-batch's nodes.
        mean_j: Mean energy of an instruction in joules.
    """

    nodes: Ordered
    times_s: FloatArray
    faster_s: FloatArray
    fastest_s: FloatArray
    prices_w: FloatArray
    stages: Csr
    stage_orders: list[IntArray]
    microbatches: Csr
    mean_j: float


def _prepare(problem: Problem, durations_s: FloatArray, prices_w: FloatArray) -> tuple[_Task, IntArray]:
    """Return the task, and each DAG node's number in it."""
    dag, count = problem.dag, len(problem.dag.instructions)
    nodes, rank = order_nodes(problem, durations_s)
    order = np.argsort(rank)
    prices = np.zeros(dag.nodes)
    prices[rank[:count]] = prices_w
    by_start = order[order < count]
    stage = np.array([one.stage for one in dag.instructions], dtype=np.int64)
    _, microbatch = np.unique([one.microbatch for one in dag.instructions], return_inverse=True)
    task = _Task(
        nodes,
        dag.node_times_s(durations_s)[order],
        dag.node_times_s(_hull_point(problem, durations_s, 1e-9))[order],
        dag.node_times_s(_hull_point(problem, durations_s, -1e-9))[order],
        prices,
        grouped(stage[by_start], rank[by_start], dag.stages),
        _stage_orders(np.bincount(stage, prices_w * durations_s, minlength=dag.stages).astype(np.float64)),
        grouped(microbatch[by_start], rank[by_start], int(microbatch.max(initial=-1)) + 1),
        float(np.mean([np.mean([point.energy_j for point in curve]) for curve in problem.curves])),
    )
    return task, rank


def _hull_point(problem: Problem, durations_s: FloatArray, tolerance: float) -> FloatArray:
    """Return the time of each instruction's last hull point that is at most its duration; its fastest if none is.

    Args:
        problem: The problem.
        durations_s: Duration of each instruction, shape (instructions,).
        tolerance: Relative error allowed in "at most"; below 0, the hull point must be strictly faster.
    """
    points = durations_s.copy()
    for index, curve in enumerate(problem.options):
        here = np.flatnonzero(problem.curve_of == index)
        times = curve.time_s[curve.hull]
        below = np.searchsorted(times, durations_s[here] * (1 + tolerance), side="right") - 1
        points[here] = times[np.maximum(0, below)]
    return points


def _stage_orders(worth: FloatArray) -> list[IntArray]:
    """Return two orders of the stages: by distance from the most valuable; the near half last, nearest at the end.

    Args:
        worth: Value of each stage's time in joules, shape (stages,).
    """
    distance = np.abs(np.arange(worth.size) - int(np.argmax(worth)))
    late = (distance > 0) & (distance < worth.size // 2)
    return [np.argsort(distance, kind="stable"), np.lexsort((np.where(late, -distance, distance), late))]


def _rounded(task: _Task, limit_s: float, thorough: bool) -> IntArray:
    """Return the choices found with a limit."""

    def energy_j(choice: IntArray) -> float:
        return total_j(task.nodes, choice)

    if not thorough:
        return min(_starts(task, limit_s, 0), key=energy_j)
    size = task.times_s.size
    effort = min(len(task.stage_orders) * len(_PAID), max(_EFFORT // size, int(size < _LARGE)))
    followed = heapq.nsmallest(max(1, effort), _starts(task, limit_s, effort), key=energy_j)
    trials = _TRIALS if len(followed) > 1 else 2 * _TRIALS
    for choice in followed:
        if effort:
            _polish(task, choice, limit_s)
        fill(task.nodes, choice, task.times_s, limit_s)
        search(task.nodes, choice, task.times_s, limit_s, _TEMPERATURE * task.mean_j, trials)
        if effort:
            _polish(task, choice, limit_s)
    return min(followed, key=energy_j)


def _starts(task: _Task, limit_s: float, effort: int) -> Iterator[IntArray]:
    nodes, times = task.nodes, task.times_s
    choice = nodes.first.copy()
    fill(nodes, choice, times, limit_s)
    yield choice
    backwards = nodes.reversed()
    flipped = times[::-1].copy(), task.faster_s[::-1].copy(), task.prices_w[::-1].copy()
    for slack_price in _SLACK_PRICES:
        for advance in _ADVANCES:
            for choice in (
                _construct(nodes, times, task.faster_s, task.prices_w, limit_s, advance, slack_price),
                _construct(backwards, *flipped, limit_s, advance, slack_price)[::-1].copy(),
            ):
                if _makespan(nodes, choice, times) <= limit_s:
                    fill(nodes, choice, times, limit_s)
                    yield choice
    nested = [(order, paid) for paid in _PAID for order in task.stage_orders]
    for order, paid in nested[:effort]:
        choice, chosen = nodes.first.copy(), task.fastest_s.copy()
        if _choose(task, task.stages, order, choice, chosen, limit_s, paid, replace=True) >= 0:
            _polish(task, choice, limit_s)
            yield choice


def _polish(task: _Task, choice: IntArray, limit_s: float) -> None:
    """Choose the options of each micro-batch, then of each stage, anew; ``choice`` changes in place."""
    times = chosen_times(task.nodes, choice, task.times_s)
    for chains in (task.microbatches, task.stages):
        order = np.arange(chains.indptr.size - 1)
        _choose(task, chains, order, choice, times, limit_s, 0.0, replace=False)


def _choose(
    task: _Task,
    chains: Csr,
    order: IntArray,
    choice: IntArray,
    times: FloatArray,
    limit_s: float,
    paid: float,
    *,
    replace: bool,
) -> int:
    pricing = Pricing(task.prices_w, paid, _SPREAD * task.mean_j)
    return choose_chains(task.nodes, chains, order, pricing, choice, times, limit_s, replace)


@njit(cache=True, nogil=True)
def _construct(nodes, times, floors, prices, limit_s, advance, slack_price):
    """Choose options in order of start, each by reduced cost, within the time that the LP leaves to the successors.

    Args:
        nodes: An ``Ordered``.
        times: LP-optimal time of each node in seconds, shape (nodes,).
        floors: Shorter times that the successors could have, shape (nodes,).
        prices: The LP's price of each node's time in watts, shape (nodes,).
        limit_s: The makespan allowed, in seconds.
        advance: Share of the successors' slack, up to ``floors``, that a node may use.
        slack_price: Price of unused time, as a share of the LP's price.

    Returns:
        The option of each node, -1 for constants, shape (nodes,).
    """
    size = times.size
    rest, least = np.zeros(size), np.zeros(size)
    tails(nodes, 0, size, times, rest)
    tails(nodes, 0, size, floors, least)
    choice, chosen, starts = np.full(size, -1, dtype=np.int64), times.copy(), np.zeros(size)
    for node in range(size):
        heads(nodes, node, node + 1, chosen, starts)
        if nodes.first[node] < 0:
            continue
        window = limit_s - starts[node] - (1 - advance) * rest[node] - advance * least[node]
        best, best_cost = nodes.first[node], np.inf
        for option in range(nodes.first[node], nodes.end[node]):
            time = nodes.option_s[option]
            if option > nodes.first[node] and time > window:
                break
            cost = nodes.option_j[option] + prices[node] * (time + slack_price * (window - time))
            if cost <= best_cost:
                best, best_cost = option, cost
        choice[node] = best
        chosen[node] = nodes.option_s[best]
    return choice


@njit(cache=True, nogil=True)
def _makespan(nodes, choice, times):
    chosen = chosen_times(nodes, choice, times)
    starts = np.zeros(times.size)
    heads(nodes, 0, times.size, chosen, starts)
    return np.max(starts + chosen)
