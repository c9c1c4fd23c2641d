"""Random moves on the DAG that make the best of a plan with few clock switches.

A move takes a run of equal clocks, or a piece of one, to another clock; a piece at a run's end may join the next run.
So runs change their clocks, and their borders shift, while other stages make up for the time. A move that costs a
little is kept seldom (simulated annealing: Kirkpatrick et al., Science 220, 1983). A time above the limit has a price
on the way; the best plan within the limit counts. Deterministic. Time O(moves * nodes), which is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.pipeline.csr import Csr
from perseus_ds.pipeline.dag import PipelineDag

__all__ = ["Move", "StageTable", "count_changes", "draw_move", "frequencies_along", "move_clocks"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WORK = 40_000_000  # moves * nodes: half a second
_MOVES = 3000  # per instruction, at most
_HOT, _COLD = 0.2, 0.002  # of an instruction's energy: what a kept move may cost at first, and in the end
_DEAR = 3.0  # times the price of a second: what one above the limit costs


class StageTable(NamedTuple):
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


class _Pipeline(NamedTuple):
    """The choices of all stages, as the kernel takes them.

    Attributes:
        order: Topological order of all nodes.
        predecessors: Of all nodes.
        program: Instructions of each stage in program order.
        row: Curve of each instruction.
        clocks: Number of clocks of each stage.
        option_s: Duration by curve and clock.
        option_j: Effective energy by curve and clock.
    """

    order: IntArray
    predecessors: Csr
    program: Csr
    row: IntArray
    clocks: IntArray
    option_s: FloatArray
    option_j: FloatArray


class _Terms(NamedTuple):
    """What a plan is worth: the limit, a second above it, a switch, and the most switches of a stage; -1 for any."""

    limit_s: float
    price_w: float
    penalty_j: float
    most: int


class Move(NamedTuple):
    """A piece of a stage that takes another clock: where it begins, how many instructions it has, and the clock."""

    first: int
    length: int
    to: int


def count_changes(path: IntArray) -> int:
    """Return how often a stage's clock changes in an iteration that repeats."""
    return int(np.count_nonzero(path != np.roll(path, 1)))


def frequencies_along(dag: PipelineDag, tables: Sequence[StageTable], paths: Sequence[IntArray]) -> IntArray:
    """Return each instruction's frequency, shape (instructions,).

    Args:
        dag: The pipeline.
        tables: One per stage.
        paths: The clocks as indices into each stage's table, in program order.
    """
    frequencies = np.empty(len(dag.instructions), dtype=np.int64)
    for table, path, order in zip(tables, paths, dag.program_order, strict=True):
        frequencies[order] = table.clocks_mhz[path]
    return frequencies


def move_clocks(
    dag: PipelineDag,
    tables: Sequence[StageTable],
    paths: Sequence[IntArray],
    limit_s: float,
    price_w: float,
    penalty_j: float,
    max_switches: int | None,
) -> IntArray:
    """Return each instruction's frequency after moves on the DAG, or as it was where none within the limit is found.

    Args:
        dag: The pipeline.
        tables: One per stage.
        paths: The clocks to begin with, as indices into each stage's table, in program order.
        limit_s: Iteration time allowed.
        price_w: What a second of the iteration time is worth.
        penalty_j: Energy charged for each switch.
        max_switches: Most switches per stage; None: any number. ``paths`` have no more.
    """
    count, widest = len(dag.instructions), max(table.clocks_mhz.size for table in tables)
    shape = (sum(len(table.option_s) for table in tables), widest)
    option_s, option_j = np.full(shape, np.inf), np.full(shape, np.inf)
    clock, row = np.empty((2, count), dtype=np.int64)
    done = 0
    for table, path, order in zip(tables, paths, dag.program_order, strict=True):
        here = slice(done, done + len(table.option_s))
        option_s[here, : table.clocks_mhz.size], option_j[here, : table.clocks_mhz.size] = (
            table.option_s,
            table.option_j,
        )
        clock[order], row[order] = path, table.row + done
        done = here.stop
    clocks = np.array([table.clocks_mhz.size for table in tables])
    pipeline = _Pipeline(dag.topological_order, dag.predecessors, dag.program, row, clocks, option_s, option_j)
    terms = _Terms(limit_s, _DEAR * price_w, penalty_j, -1 if max_switches is None else max_switches)
    scale_j = float(np.abs(option_j[row, clock]).mean())
    moves = min(_WORK // dag.nodes, _MOVES * count)
    _anneal(pipeline, clock, dag.node_times_s(np.zeros(count)), terms, moves, scale_j)
    return frequencies_along(dag, tables, [clock[order] for order in dag.program_order])


@njit(cache=True, nogil=True)
def _anneal(pipeline, clock, times, terms, moves, scale_j):
    """Make random moves; ``clock`` becomes the best found within the limit, and stays where there is none."""
    np.random.seed(0)
    ends = np.zeros(times.size)
    times[: clock.size] = _of(pipeline.option_s, pipeline.row, clock)
    energy_j = _of(pipeline.option_j, pipeline.row, clock).sum()
    indptr, members = pipeline.program
    for stage in range(indptr.size - 1):
        energy_j += terms.penalty_j * _changes(clock, members[indptr[stage] : indptr[stage + 1]])
    span_s = _makespan(pipeline, times, ends)
    cost_j = energy_j + terms.price_w * max(0.0, span_s - terms.limit_s)
    best, best_j = clock.copy(), energy_j if span_s <= terms.limit_s else np.inf
    warm_j = _HOT * scale_j
    cooling = (_COLD / _HOT) ** (1.0 / moves)
    for _ in range(moves):
        warm_j *= cooling
        stage = np.random.randint(indptr.size - 1)
        nodes = members[indptr[stage] : indptr[stage + 1]]
        move = draw_move(clock, nodes)
        own = clock[nodes[move.first]]
        if move.to == own or not 0 <= move.to < pipeline.clocks[stage]:
            continue
        switches = _added(clock, nodes, move)
        if switches > 0 and 0 <= terms.most < _changes(clock, nodes) + switches:
            continue
        change_j = terms.penalty_j * switches + _take(pipeline, clock, times, nodes, move)
        span_s = _makespan(pipeline, times, ends)
        then_j = energy_j + change_j + terms.price_w * max(0.0, span_s - terms.limit_s)
        if then_j - cost_j > -warm_j * np.log(np.random.random()):
            _take(pipeline, clock, times, nodes, Move(move.first, move.length, own))
            continue
        cost_j, energy_j = then_j, energy_j + change_j
        if span_s <= terms.limit_s and energy_j < best_j - 1e-9:
            best[:], best_j = clock, energy_j
    clock[:] = best


@njit(cache=True, nogil=True)
def draw_move(clock, nodes):
    """Return a move of the run around a random instruction, or of a piece of it; its clock may be one too many."""
    size, first, length = nodes.size, np.random.randint(nodes.size), 1
    own = clock[nodes[first]]
    while length < size and clock[nodes[first - 1]] == own:
        first, length = (first - 1) % size, length + 1
    while length < size and clock[nodes[(first + length) % size]] == own:
        length += 1
    kind, sign = np.random.random(), 1 if np.random.random() < 0.5 else -1
    if kind < 0.4:
        return Move(first, length, own + sign * np.random.randint(1, 4))
    if kind < 0.85 and length < size:
        piece = min(length, 1 + int(np.random.exponential(2.0)))
        if sign < 0:
            return Move(first, piece, clock[nodes[first - 1]])
        return Move((first + length - piece) % size, piece, clock[nodes[(first + length) % size]])
    skipped = np.random.randint(length)
    piece = min(length - skipped, 1 + int(np.random.exponential(4.0)))
    return Move((first + skipped) % size, piece, own + sign * np.random.randint(1, 6))


@njit(cache=True, nogil=True)
def _take(pipeline, clock, times, nodes, move):
    """Make a move; return what it adds to the instructions' energy."""
    change_j = 0.0
    for position in range(move.first, move.first + move.length):
        node = nodes[position % nodes.size]
        option_j = pipeline.option_j[pipeline.row[node]]
        change_j += option_j[move.to] - option_j[clock[node]]
        clock[node], times[node] = move.to, pipeline.option_s[pipeline.row[node], move.to]
    return change_j


@njit(cache=True, nogil=True)
def _added(clock, nodes, move):
    """Return how many switches a move adds to its stage."""
    if move.length == nodes.size:
        return 0
    own = clock[nodes[move.first]]
    before, after = clock[nodes[move.first - 1]], clock[nodes[(move.first + move.length) % nodes.size]]
    return int(move.to != before) - int(own != before) + int(move.to != after) - int(own != after)


@njit(cache=True, nogil=True)
def _changes(clock, nodes):
    changes = 0
    for position in range(nodes.size):
        changes += clock[nodes[position]] != clock[nodes[position - 1]]
    return changes


@njit(cache=True, nogil=True)
def _of(option, row, clock):
    found = np.empty(clock.size)
    for node in range(clock.size):
        found[node] = option[row[node], clock[node]]
    return found


@njit(cache=True, nogil=True)
def _makespan(pipeline, times, ends):
    indptr, members = pipeline.predecessors
    span_s = 0.0
    for node in pipeline.order:
        start = 0.0
        for edge in range(indptr[node], indptr[node + 1]):
            start = max(start, ends[members[edge]])
        ends[node] = start + times[node]
        span_s = max(span_s, ends[node])
    return span_s
