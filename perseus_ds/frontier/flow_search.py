"""One direction of the search for a path without slack: Dijkstra with remembered paths.

The blocking arcs of a path lie near the iteration's begin or its end, hardly ever in between. From every node, the
search therefore first tries the last successful path to the goal. It follows the pipeline's long middle instead of
searching it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.binary_heap import heap_pop, heap_push
from perseus_ds.frontier.flow_state import GOAL, FlowState
from perseus_ds.frontier.network import UNBOUNDED

__all__ = ["NOW", "SETTLED", "Search", "explore", "new_search", "restart"]

IntArray = NDArray[np.int64]

SETTLED, _SCANNED, _HEAP, NOW = 0, 1, 2, 3
_NEVER = UNBOUNDED >> 1
_TURN = 64  # nodes that one direction looks at before it is the other's turn


class Search(NamedTuple):
    """A search. A node's entries are valid if its stamp is the search's, so the next search need not clear them.

    Attributes:
        side: 0 searches forwards from the iteration's begin, 1 backwards from its end.
        stamps: Latest search that reached a node, shape (nodes,).
        distance: Slack on the path to a node in ticks, shape (nodes,).
        parent: Half-edge that led to a node, shape (nodes,).
        settled: Nodes in the order of settling, shape (nodes,).
        heap: Nodes still to settle, with their distances, shape (half-edges + 1, 2).
        dead: Latest search that found a node's remembered path blocked, shape (nodes,).
        progress: Number of nodes settled (``SETTLED``), scanned and in the heap; the distance reached (``NOW``).
    """

    side: int
    stamps: IntArray
    distance: IntArray
    parent: IntArray
    settled: IntArray
    heap: IntArray
    dead: IntArray
    progress: IntArray


@njit(cache=True, nogil=True)
def new_search(state: FlowState, side: int) -> Search:
    """Return arrays for the searches of one direction."""
    nodes = state.potential.size
    return Search(
        side,
        np.zeros(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty((state.to.size + 1, 2), dtype=np.int64),
        np.zeros(nodes, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def restart(search: Search, stamp: int) -> None:
    """Begin a search at its direction's root, with a stamp larger than all before."""
    root = 0 if search.side == 0 else search.stamps.size - 1
    search.stamps[root], search.distance[root], search.settled[0] = stamp, 0, root
    search.progress[:] = 0
    search.progress[SETTLED] = 1


@njit(cache=True, nogil=True)
def explore(state: FlowState, search: Search, stamp: int) -> int:
    """Continue Dijkstra in one direction, for some nodes.

    Returns:
        A settled node from which a path without slack leads to the goal, along ``state.toward``; -1 while none is
            known.
    """
    count, scanned, size, now = search.progress
    sign, meeting = 1 - 2 * search.side, -1
    if count == 1 and scanned == 0 and _leads(state, search, search.settled[0], stamp):
        return int(search.settled[0])
    for _ in range(_TURN):
        if scanned == count:
            while True:
                now, node = search.heap[0, 0], search.heap[0, 1]
                size = heap_pop(search.heap, size)
                if search.distance[node] == now:
                    break
            search.settled[count] = node
            count += 1
            if _leads(state, search, node, stamp):
                meeting = int(node)
                break
        node = search.settled[scanned]
        scanned += 1
        base = now - sign * state.potential[node]
        for half in range(state.indptr[node], state.indptr[node + 1]):
            other = state.to[half]
            reach = base + sign * state.potential[other] - state.length[search.side, half]
            if search.stamps[other] != stamp:
                if reach >= _NEVER:
                    continue
                search.stamps[other] = stamp
            elif reach >= search.distance[other]:
                continue
            search.distance[other] = reach
            search.parent[other] = half
            if reach > now:
                size = heap_push(search.heap, size, reach, other)
                continue
            search.settled[count] = other
            count += 1
            if search.dead[other] != stamp and _leads(state, search, other, stamp):
                meeting = int(other)
                break
        if meeting >= 0:
            break
    search.progress[:] = count, scanned, size, now
    return meeting


@njit(cache=True, nogil=True)
def _leads(state: FlowState, search: Search, node: int, stamp: int) -> bool:
    """Follow the last successful path to the goal; return whether it is still without slack."""
    sign = 1 - 2 * search.side
    while search.dead[node] != stamp:
        search.dead[node] = stamp
        half = state.toward[search.side, node]
        if half < 0:
            return half == GOAL
        other = state.to[half]
        if sign * (state.potential[other] - state.potential[node]) != state.length[search.side, half]:
            return False
        node = int(other)
    return False
