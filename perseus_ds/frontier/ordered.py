"""A problem's nodes by start time, with what each may choose: what rounding works on.

Neighbours in time are neighbours in memory, and a range of nodes is a window of time: the longest ways to and
from its nodes can be worked out from those just before and behind it. Time O(nodes + edges).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.problem import Problem
from perseus_ds.pipeline.dag import compressed

__all__ = ["Ordered", "chosen_times", "heads", "longest", "order_nodes", "tails", "total_j"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Ordered(NamedTuple):
    """Nodes numbered by start time. Constants have no options and choice -1.

    Attributes:
        before: Node p's predecessors are ``tails[before[p]:before[p + 1]]``; all have lower numbers.
        tails: See ``before``.
        after: Node p's successors are ``heads[after[p]:after[p + 1]]``; all have higher numbers.
        heads: See ``after``.
        first: First option of each node, -1 of constants.
        end: One past its last option.
        option_s: Duration of each option, ascending within a node's.
        option_j: Effective energy of each option, descending within a node's.
    """

    before: IntArray
    tails: IntArray
    after: IntArray
    heads: IntArray
    first: IntArray
    end: IntArray
    option_s: FloatArray
    option_j: FloatArray

    def reversed(self) -> Ordered:
        """Return the same DAG with time running backwards."""
        last = self.first.size - 1

        def flip(begin: IntArray, nodes: IntArray) -> tuple[IntArray, IntArray]:
            return np.concatenate(([0], np.cumsum(np.diff(begin)[::-1]))), last - nodes[::-1]

        return self._replace(
            **dict(zip(("before", "tails"), flip(self.after, self.heads), strict=True)),
            **dict(zip(("after", "heads"), flip(self.before, self.tails), strict=True)),
            first=self.first[::-1].copy(),
            end=self.end[::-1].copy(),
        )


def order_nodes(problem: Problem, durations_s: FloatArray) -> tuple[Ordered, IntArray]:
    """Number a problem's nodes by their earliest starts.

    Args:
        problem: What is planned.
        durations_s: Of each instruction, shape (instructions,).

    Returns:
        The nodes, and the new number of each DAG node, shape (nodes,).
    """
    dag, count = problem.dag, len(problem.dag.instructions)
    position = np.empty(dag.nodes, dtype=np.int64)
    position[dag.topological_order] = np.arange(dag.nodes)
    rank = np.empty(dag.nodes, dtype=np.int64)
    rank[np.lexsort((position, dag.starts_s(durations_s)))] = np.arange(dag.nodes)
    offset = np.cumsum([0] + [curve.time_s.size for curve in problem.options])
    first, end = np.full(dag.nodes, -1, dtype=np.int64), np.full(dag.nodes, -1, dtype=np.int64)
    first[rank[:count]] = offset[problem.curve_of]
    end[rank[:count]] = offset[problem.curve_of + 1]
    tail, head = rank[dag.edges].T
    nodes = Ordered(
        *compressed(head, tail, dag.nodes),
        *compressed(tail, head, dag.nodes),
        first,
        end,
        np.concatenate([curve.time_s for curve in problem.options]),
        np.concatenate([curve.effective_j for curve in problem.options]),
    )
    return nodes, rank


def total_j(nodes: Ordered, choice: IntArray) -> float:
    """Return the effective energy of all chosen options."""
    return float(nodes.option_j[choice[nodes.first >= 0]].sum())


@njit(cache=True, nogil=True)
def chosen_times(nodes, choice, times):
    """Return every node's time: its chosen option's, or its own in ``times`` if it has no choice."""
    chosen = times.copy()
    for node in range(times.size):
        if choice[node] >= 0:
            chosen[node] = nodes.option_s[choice[node]]
    return chosen


@njit(cache=True, nogil=True)
def heads(nodes, begin, end, times, starts):
    """Work out earliest starts of the nodes from ``begin`` to ``end``."""
    for node in range(begin, end):
        start = 0.0
        for edge in range(nodes.before[node], nodes.before[node + 1]):
            tail = nodes.tails[edge]
            start = max(start, starts[tail] + times[tail])
        starts[node] = start


@njit(cache=True, nogil=True)
def tails(nodes, begin, end, times, rest):
    """Work out the longest ways from the ends of the nodes from ``begin`` to ``end``."""
    for node in range(end - 1, begin - 1, -1):
        way = 0.0
        for edge in range(nodes.after[node], nodes.after[node + 1]):
            head = nodes.heads[edge]
            way = max(way, rest[head] + times[head])
        rest[node] = way


@njit(cache=True, nogil=True)
def longest(begin, end, times, starts, rest):
    """Return the longest way through any node from ``begin`` to ``end``."""
    way = 0.0
    for node in range(begin, end):
        way = max(way, starts[node] + times[node] + rest[node])
    return way
