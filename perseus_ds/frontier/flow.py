"""The exact frontier by a parametric primal-dual flow.

Minimising the instructions' energies with a makespan of at most T is a linear program whose dual is a flow. At an
optimum every arc carries the marginal power of its instruction, between the slopes left and right of its duration.
The total flow is the marginal power -dE/dT of the iteration. As T falls the flow only grows. The algorithm repeats:

1. Search the shortest path, in slack, to the iteration's end (Dijkstra). Its length is the exact step to the next
   breakpoint of T.
2. Shift the start times by the distances, and augment along the path.

It ends at a path of fastest instructions, which has unbounded capacity. All quantities are integers, so ties are
exact.

Speed comes from two searches that run in turn, one from each side. A search ends as soon as it reaches a node whose
remembered path is still without slack (``flow_search``).

References: Phillips & Dessouky, Management Science 24(4), 1977; Fulkerson, Management Science 7(2), 1961 (the
project-crashing dual); Ahuja, Magnanti & Orlin, Network Flows, 1993, sections 9.7-9.8 (successive shortest paths,
primal-dual). Complexity: O(breakpoints * arcs * log(nodes)); memory O(arcs).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.flow_search import NOW, SETTLED, Search, explore, new_search, restart
from perseus_ds.frontier.flow_state import GOAL, FlowState, place
from perseus_ds.frontier.network import UNBOUNDED

__all__ = ["advance"]

IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True)
def advance(state: FlowState, stop: int, times: IntArray, powers: IntArray) -> tuple[int, bool]:
    """Shorten the iteration breakpoint by breakpoint, until ``stop`` ticks, the fast end, or full buffers.

    Args:
        state: Changed in place.
        stop: Least iteration time in ticks.
        times: Buffer: iteration time of each breakpoint reached.
        powers: Buffer: marginal power between this breakpoint and the one before.

    Returns:
        The number of breakpoints written, and whether the frontier continues.
    """
    potential = state.potential
    total = _outflow(state)
    searches = (new_search(state, 0), new_search(state, 1))
    path = np.empty(potential.size, dtype=np.int64)
    written, stamp = 0, 0
    while written < times.size:
        stamp += 1
        for search in searches:
            restart(search, stamp)
        side, meeting = 1, -1
        while meeting < 0:
            side = 1 - side
            meeting = explore(state, searches[side], stamp)
        search = searches[side]
        step = search.progress[NOW]
        rest = potential[-1] - potential[0] - stop
        _shift(potential, search, min(step, rest))
        if step > rest:
            return written, True
        if step > 0:
            times[written] = potential[-1] - potential[0]
            powers[written] = total
            written += 1
        pushed = _augment(state, search, meeting, path)
        if pushed == 0:
            return written, False
        total += pushed
    return written, True


@njit(cache=True, nogil=True)
def _outflow(state: FlowState) -> int:
    """Return the quanta that leave the begin of the iteration."""
    total = np.int64(0)
    for half in range(state.indptr[0], state.indptr[1]):
        total += state.flow[state.arc[half]] if state.forward[half] else -state.flow[state.arc[half]]
    return int(total)


@njit(cache=True, nogil=True)
def _shift(potential: IntArray, search: Search, step: int) -> None:
    """Move every node nearer than ``step`` towards the goal, so that the iteration becomes ``step`` ticks shorter."""
    sign = 1 - 2 * search.side
    for index in range(search.progress[SETTLED]):
        node = search.settled[index]
        if search.distance[node] >= step:
            break
        potential[node] += sign * (step - search.distance[node])


@njit(cache=True, nogil=True)
def _augment(state: FlowState, search: Search, meeting: int, path: IntArray) -> int:
    """Send as much flow as possible through ``meeting``; return it, or 0 if it is unbounded."""
    side, opposite = search.side, state.opposite
    size = _trace_path(state, search, meeting, path)
    most = np.int64(UNBOUNDED)
    for index in range(size):
        half = path[index] if side == 0 else opposite[path[index]]
        most = min(most, state.residual[half])
    if most >= UNBOUNDED >> 1:
        return 0
    for index in range(size):
        # The next search tries this way first, from either end.
        half, other = int(path[index]), int(opposite[path[index]])
        state.toward[side, state.to[other]] = half
        state.toward[1 - side, state.to[half]] = other
        half, other = (half, other) if side == 0 else (other, half)
        if state.forward[half]:
            state.flow[state.arc[half]] += most
            place(state, half, other)
        else:
            state.flow[state.arc[half]] -= most
            place(state, other, half)
    return int(most)


@njit(cache=True, nogil=True)
def _trace_path(state: FlowState, search: Search, meeting: int, path: IntArray) -> int:
    """Write the half-edges of the path through ``meeting``, in the search's direction; return their number."""
    size = 0
    root = 0 if search.side == 0 else state.potential.size - 1
    node = np.int64(meeting)
    while node != root:
        path[size] = search.parent[node]
        node = state.to[state.opposite[path[size]]]
        size += 1
    node = np.int64(meeting)
    while state.toward[search.side, node] != GOAL:
        path[size] = state.toward[search.side, node]
        node = state.to[path[size]]
        size += 1
    return size
