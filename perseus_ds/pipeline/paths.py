"""Longest paths over a DAG in arrays. Time O(nodes + edges)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["longest_from", "longest_to"]


@njit(cache=True, nogil=True)
def longest_to(
    order: NDArray[np.int64], begin: NDArray[np.int64], tails: NDArray[np.int64], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the longest path to each node, its own time left out: its earliest start.

    Args:
        order: Topological order of the nodes.
        begin: Node n's predecessors are ``tails[begin[n]:begin[n + 1]]``.
        tails: The predecessors.
        times: Time of each node.
    """
    starts = np.zeros(times.size)
    for node in order:
        start = 0.0
        for edge in range(begin[node], begin[node + 1]):
            tail = tails[edge]
            end = starts[tail] + times[tail]
            start = max(start, end)
        starts[node] = start
    return starts


@njit(cache=True, nogil=True)
def longest_from(
    order: NDArray[np.int64], begin: NDArray[np.int64], heads: NDArray[np.int64], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the longest path from each node's end to the DAG's end: iteration time minus latest end.

    Args:
        order: Topological order of the nodes.
        begin: Node n's successors are ``heads[begin[n]:begin[n + 1]]``.
        heads: The successors.
        times: Time of each node.
    """
    tails = np.zeros(times.size)
    for index in range(order.size - 1, -1, -1):
        node = order[index]
        rest = 0.0
        for edge in range(begin[node], begin[node + 1]):
            head = heads[edge]
            rest = max(rest, tails[head] + times[head])
        tails[node] = rest
    return tails
