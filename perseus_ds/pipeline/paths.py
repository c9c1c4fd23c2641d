"""Longest paths over a DAG in arrays. Time O(nodes + edges)."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.pipeline.csr import Csr

__all__ = ["longest_from", "longest_to"]


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
