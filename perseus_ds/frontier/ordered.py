"""A problem's nodes by start time, with the options of each: rounding works on these.

Neighbours in time are neighbours in memory, so a range of nodes is a window of time. The longest paths to and from its
nodes follow from those of the nodes around it. All functions take O(nodes + edges).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.problem import Problem
from perseus_ds.pipeline.csr import Csr, grouped

__all__ = ["Ordered", "chosen_times", "heads", "longest", "order_nodes", "tails", "total_j"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Ordered(NamedTuple):
    """Nodes numbered by start time. A constant has no options, and its choice is -1.

    Attributes:
        predecessors: The nodes that each node waits for; all have lower numbers.
        successors: The nodes that wait for it; all have higher numbers.
        first: First option of each node, -1 for constants, shape (nodes,).
        end: One past its last option, -1 for constants, shape (nodes,).
        option_s: Duration of each option in seconds, ascending within a node, shape (options,).
        option_j: Effective energy of each option in joules, descending within a node, shape (options,).
    """

    predecessors: Csr
    successors: Csr
    first: IntArray
    end: IntArray
    option_s: FloatArray
    option_j: FloatArray

    def reversed(self) -> Ordered:
        """Return the same DAG with time running backwards."""
        last = self.first.size - 1

        def flip(edges: Csr) -> Csr:
            return Csr(np.concatenate(([0], np.cumsum(np.diff(edges.indptr)[::-1]))), last - edges.members[::-1])

        return self._replace(
            predecessors=flip(self.successors),
            successors=flip(self.predecessors),
            first=self.first[::-1].copy(),
            end=self.end[::-1].copy(),
        )


def order_nodes(problem: Problem, durations_s: FloatArray) -> tuple[Ordered, IntArray]:
    """Number a problem's nodes by their earliest starts.

    Args:
        problem: The problem.
        durations_s: Duration of each instruction, shape (instructions,).

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
        grouped(head, tail, dag.nodes),
        grouped(tail, head, dag.nodes),
        first,
        end,
        np.concatenate([curve.time_s for curve in problem.options]),
        np.concatenate([curve.effective_j for curve in problem.options]),
    )
    return nodes, rank


def total_j(nodes: Ordered, choice: IntArray) -> float:
    """Return the effective energy of all chosen options in joules.

    Args:
        nodes: The nodes.
        choice: Option of each node, shape (nodes,).
    """
    return float(nodes.option_j[choice[nodes.first >= 0]].sum())


@njit(cache=True, nogil=True)
def chosen_times(nodes, choice, times):
    """Return the time of every node in seconds, shape (nodes,).

    Args:
        nodes: An ``Ordered``.
        choice: Option of each node, -1 for constants, shape (nodes,).
        times: Where constants have their times in seconds, shape (nodes,).
    """
    chosen = times.copy()
    for node in range(times.size):
        if choice[node] >= 0:
            chosen[node] = nodes.option_s[choice[node]]
    return chosen


@njit(cache=True, nogil=True)
def heads(nodes, begin, end, times, starts):
    """Compute the earliest starts of a range of nodes.

    Args:
        nodes: An ``Ordered``.
        begin: First node of the range.
        end: One past its last node.
        times: Time of each node in seconds, shape (nodes,).
        starts: Earliest start of each node in seconds, shape (nodes,). Those of the range are changed; those before it
            must be right.
    """
    for node in range(begin, end):
        start = 0.0
        for edge in range(nodes.predecessors.indptr[node], nodes.predecessors.indptr[node + 1]):
            tail = nodes.predecessors.members[edge]
            start = max(start, starts[tail] + times[tail])
        starts[node] = start


@njit(cache=True, nogil=True)
def tails(nodes, begin, end, times, rest):
    """Compute the longest paths from the ends of a range of nodes to the end of the iteration.

    Args:
        nodes: An ``Ordered``.
        begin: First node of the range.
        end: One past its last node.
        times: Time of each node in seconds, shape (nodes,).
        rest: Longest path from each node's end in seconds, shape (nodes,). Those of the range are changed; those after
            it must be right.
    """
    for node in range(end - 1, begin - 1, -1):
        way = 0.0
        for edge in range(nodes.successors.indptr[node], nodes.successors.indptr[node + 1]):
            head = nodes.successors.members[edge]
            way = max(way, rest[head] + times[head])
        rest[node] = way


@njit(cache=True, nogil=True)
def longest(begin, end, times, starts, rest):
    """Return the longest path through any node of a range, in seconds.

    Args:
        begin: First node of the range.
        end: One past its last node.
        times: Time of each node in seconds, shape (nodes,).
        starts: Earliest start of each node in seconds, shape (nodes,).
        rest: Longest path from each node's end in seconds, shape (nodes,).
    """
    way = 0.0
    for node in range(begin, end):
        way = max(way, starts[node] + times[node] + rest[node])
    return way
