"""Longest paths over a DAG in arrays. Time O(nodes + edges)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.pipeline.csr import Csr

__all__ = ["longest_from", "longest_to", "path_to"]


@njit(cache=True, nogil=True)
def longest_to(order: NDArray[np.int64], predecessors: Csr, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the longest path to each node without its own time: its earliest start.

    Args:
        order: Topological order of the nodes.
        predecessors: Of each node.
        times: Time of each node.
    """
    starts = np.zeros(times.size)
    for node in order:
        start = 0.0
        for edge in range(predecessors.indptr[node], predecessors.indptr[node + 1]):
            tail = predecessors.members[edge]
            start = max(start, starts[tail] + times[tail])
        starts[node] = start
    return starts


@njit(cache=True, nogil=True)
def longest_from(order: NDArray[np.int64], successors: Csr, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the longest path from each node's end to the DAG's end: iteration time minus latest end.

    Args:
        order: Topological order of the nodes.
        successors: Of each node.
        times: Time of each node.
    """
    rests = np.zeros(times.size)
    for index in range(order.size - 1, -1, -1):
        node = order[index]
        rest = 0.0
        for edge in range(successors.indptr[node], successors.indptr[node + 1]):
            head = successors.members[edge]
            rest = max(rest, rests[head] + times[head])
        rests[node] = rest
    return rests


@njit(cache=True, nogil=True)
def path_to(last: int, predecessors: Csr, ends: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the nodes of the longest path to a node, last to first.

    Args:
        last: The node.
        predecessors: Of each node.
        ends: Earliest end of each node.
    """
    path, size = np.empty(ends.size, dtype=np.int64), 1
    path[0] = last
    while predecessors.indptr[last] < predecessors.indptr[last + 1]:
        before = predecessors.members[predecessors.indptr[last] : predecessors.indptr[last + 1]]
        last = before[np.argmax(ends[before])]
        path[size] = last
        size += 1
    return path[:size]
