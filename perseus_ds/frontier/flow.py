"""The exact frontier by a parametric primal-dual flow.

Minimising the instructions' energies with a makespan of at most T is a linear program whose dual is a flow:
at an optimum every arc carries the marginal power of its instruction (between the slopes left and right of
its duration), and the total flow is the marginal power -dE/dT of the iteration. As T falls the flow only
grows. So: search the shortest way, in slack, to the iteration's end (Dijkstra); its length is the exact step
to the next breakpoint of T; shift the start times by the distances; augment along it; repeat until a path of
fastest instructions, of unbounded capacity, is found. All in integers, so that ties are exact.

What makes it fast: the arcs that block a path lie near the iteration's begin or near its end (warm-up and
cool-down), hardly ever in between. So one search runs from each side in turn, and each remembers the way that
led on from a node last time: as soon as a search reaches a node whose remembered way is still without slack,
it is through. The long middle of the pipeline is walked along, not searched.

References: Phillips & Dessouky, Management Science 24(4), 1977; Fulkerson, Management Science 7(2), 1961 (the
project-crashing dual); Ahuja, Magnanti & Orlin, Network Flows, 1993, sections 9.7-9.8 (successive shortest
paths, primal-dual). Complexity: O(breakpoints * arcs * log(nodes)); memory O(arcs).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.network import UNBOUNDED, Network

__all__ = ["FlowState", "advance", "restored_state"]

IntArray = NDArray[np.int64]

_NEVER = UNBOUNDED >> 1
_GOAL = -2


class FlowState(NamedTuple):
    """Where a sweep stands. ``advance`` changes the arrays in place.

    Half-edges: each arc appears at its tail, forwards, and at its head, backwards, sorted by node and then by
    the other node. One can take flow when its slack ``potential[to] - potential[from] - length`` is 0.

    Attributes:
        potential: Start times in ticks, shape (nodes,).
        flow: Quanta on each arc, shape (arcs,).
        level: Vertex each arc's flow stands at, shape (arcs,).
        begin: Node n's half-edges are ``begin[n]:begin[n + 1]``.
        to: Node a half-edge leads to.
        twin: The same arc's other half-edge.
        arc: Arc of a half-edge.
        forward: Whether a half-edge runs along its arc.
        length: Ticks at which a half-edge can take flow, backwards negative.
        room: Quanta it can take at that length.
        toward: Half-edge that led from a node to the iteration's end, and to its begin, last time, shape
            (2, nodes); ``_GOAL`` there, -1 where none has.
        vertex_time: The network's.
        vertex_power: The network's.
    """

    potential: IntArray
    flow: IntArray
    level: IntArray
    begin: IntArray
    to: IntArray
    twin: IntArray
    arc: IntArray
    forward: NDArray[np.bool_]
    length: IntArray
    room: IntArray
    toward: IntArray
    vertex_time: IntArray
    vertex_power: IntArray


def restored_state(network: Network, potential: IntArray, flow: IntArray) -> FlowState:
    """Return a state to go on from, given optimal start times and flow.

    Args:
        network: What is solved.
        potential: Start times in ticks, shape (nodes,).
        flow: Quanta on each arc, shape (arcs,).
    """
    arcs = network.tail.size
    ends = np.concatenate((network.tail, network.head))
    order = np.lexsort((np.concatenate((network.head, network.tail)), ends))
    position = np.empty(2 * arcs, dtype=np.int64)
    position[order] = np.arange(2 * arcs)
    begin = np.zeros(network.nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=network.nodes), out=begin[1:])
    forward = order < arcs
    toward = np.full((2, network.nodes), -1, dtype=np.int64)
    toward[0, -1] = toward[1, 0] = _GOAL
    state = FlowState(
        potential.copy(),
        flow.copy(),
        network.last.copy(),
        begin,
        np.concatenate((network.head, network.tail))[order],
        position[np.where(forward, order + arcs, order - arcs)],
        np.where(forward, order, order - arcs),
        forward,
        np.empty((2, 2 * arcs), dtype=np.int64),
        np.empty(2 * arcs, dtype=np.int64),
        toward,
        network.vertex_time,
        network.vertex_power,
    )
    _place_all(state)
    return state


@njit(cache=True, nogil=True)
def advance(state: FlowState, stop: int, times: IntArray, powers: IntArray) -> tuple[int, bool]:
    """Shorten the iteration breakpoint by breakpoint, until ``stop`` ticks, the fast end, or full buffers.

    Args:
        state: Changed in place.
        stop: Iteration time in ticks not to go below.
        times: Buffer: iteration time of each breakpoint reached.
        powers: Buffer: marginal power between this breakpoint and the one before.

    Returns:
        How many breakpoints were written, and whether the frontier goes on.
    """
    potential, begin, to, length, toward = state.potential, state.begin, state.to, state.length, state.toward
    nodes = potential.size
    total = np.int64(0)
    for half in range(state.begin[0], state.begin[1]):
        total += state.flow[state.arc[half]] if state.forward[half] else -state.flow[state.arc[half]]
    # Per direction: 0 searches forwards from the iteration's begin, 1 backwards from its end.
    stamps = np.zeros((2, nodes), dtype=np.int64)
    distance = np.empty((2, nodes), dtype=np.int64)
    parent = np.empty((2, nodes), dtype=np.int64)
    settled = np.empty((2, nodes), dtype=np.int64)
    heap = np.empty((2, state.to.size + 1, 2), dtype=np.int64)
    progress = np.empty((2, 4), dtype=np.int64)
    dead = np.zeros((2, nodes), dtype=np.int64)
    path = np.empty(nodes, dtype=np.int64)
    written, stamp = 0, np.int64(0)
    while written < times.size:
        stamp += 1
        for side in range(2):
            root = 0 if side == 0 else nodes - 1
            stamps[side, root], distance[side, root], settled[side, 0] = stamp, 0, root
            progress[side, _SETTLED], progress[side, _SCANNED], progress[side, _HEAP], progress[side, _NOW] = 1, 0, 0, 0
        side, meeting = 1, -1
        while meeting < 0:
            side = 1 - side
            meeting = _explore(
                begin, to, potential, length[side], toward[side], 1 - 2 * side, stamp, stamps[side], distance[side],
                parent[side], settled[side], heap[side], progress[side], dead[side],
            )  # fmt: skip
        step = progress[side, _NOW]
        rest = potential[nodes - 1] - potential[0] - stop
        _shift(potential, side, distance[side], settled[side], progress[side, _SETTLED], min(step, rest))
        if step > rest:
            return written, True
        if step > 0:
            times[written] = potential[nodes - 1] - potential[0]
            powers[written] = total
            written += 1
        pushed = _augment(state, side, meeting, parent[side], path)
        if pushed == 0:
            return written, False
        total += pushed
    return written, True


_SETTLED, _SCANNED, _HEAP, _NOW = 0, 1, 2, 3
_TURN = 64  # nodes that one direction looks at before it is the other's turn


@njit(cache=True, nogil=True)
def _explore(
    begin: IntArray,
    to: IntArray,
    potential: IntArray,
    length: IntArray,
    toward: IntArray,
    sign: int,
    stamp: int,
    stamps: IntArray,
    distance: IntArray,
    parent: IntArray,
    settled: IntArray,
    heap: IntArray,
    progress: IntArray,
    dead: IntArray,
) -> int:
    """Go on with Dijkstra in one direction, for some nodes.

    Returns:
        A settled node from which a way without slack leads to the goal, along ``state.toward``; -1 while none
        is known.
    """
    count, scanned, size, now = progress[_SETTLED], progress[_SCANNED], progress[_HEAP], progress[_NOW]
    meeting = -1
    if count == 1 and scanned == 0 and _leads(potential, to, length, toward, sign, settled[0], stamp, dead):
        return int(settled[0])
    for _ in range(_TURN):
        if scanned == count:
            while True:
                now, node = heap[0, 0], heap[0, 1]
                size = _heap_pop(heap, size)
                if distance[node] == now:
                    break
            settled[count] = node
            count += 1
            if _leads(potential, to, length, toward, sign, node, stamp, dead):
                meeting = int(node)
                break
        node = settled[scanned]
        scanned += 1
        base = now - sign * potential[node]
        for half in range(begin[node], begin[node + 1]):
            other = to[half]
            reach = base + sign * potential[other] - length[half]
            if stamps[other] != stamp:
                if reach >= _NEVER:
                    continue
                stamps[other] = stamp
            elif reach >= distance[other]:
                continue
            distance[other] = reach
            parent[other] = half
            if reach > now:
                size = _heap_push(heap, size, reach, other)
                continue
            settled[count] = other
            count += 1
            if dead[other] != stamp and _leads(potential, to, length, toward, sign, other, stamp, dead):
                meeting = int(other)
                break
        if meeting >= 0:
            break
    progress[_SETTLED], progress[_SCANNED], progress[_HEAP], progress[_NOW] = count, scanned, size, now
    return meeting


@njit(cache=True, nogil=True)
def _leads(
    potential: IntArray,
    to: IntArray,
    length: IntArray,
    toward: IntArray,
    sign: int,
    node: int,
    stamp: int,
    dead: IntArray,
) -> bool:
    """Follow the way that led to the goal last time; return whether it is still without slack.

    ``dead`` remembers, for this search, the nodes on ways that are not.
    """
    while dead[node] != stamp:
        dead[node] = stamp
        half = toward[node]
        if half < 0:
            return half == _GOAL
        other = to[half]
        if sign * (potential[other] - potential[node]) != length[half]:
            return False
        node = int(other)
    return False


@njit(cache=True, nogil=True)
def _shift(potential: IntArray, side: int, distance: IntArray, settled: IntArray, count: int, step: int) -> None:
    """Move all that is nearer than ``step`` towards the goal, so that the iteration is ``step`` ticks shorter."""
    sign = 1 - 2 * side
    for index in range(count):
        node = settled[index]
        if distance[node] >= step:
            break
        potential[node] += sign * (step - distance[node])


@njit(cache=True, nogil=True)
def _augment(state: FlowState, side: int, meeting: int, parent: IntArray, path: IntArray) -> int:
    """Send as much flow as fits through ``meeting``; return it, or 0 when nothing bounds it."""
    to, twin, toward, flow, level = state.to, state.twin, state.toward, state.flow, state.level
    length, room, times, powers = state.length, state.room, state.vertex_time, state.vertex_power
    size = 0
    node = np.int64(meeting)
    root = 0 if side == 0 else state.potential.size - 1
    while node != root:
        path[size] = parent[node]
        node = to[twin[path[size]]]
        size += 1
    node = np.int64(meeting)
    while toward[side, node] != _GOAL:
        path[size] = toward[side, node]
        node = to[path[size]]
        size += 1
    most = np.int64(UNBOUNDED)
    for index in range(size):
        half = path[index] if side == 0 else twin[path[index]]
        most = min(most, room[half])
    if most >= UNBOUNDED >> 1:
        return 0
    for index in range(size):
        # The next search tries this way first, from either end.
        half, other = int(path[index]), int(twin[path[index]])
        toward[side, to[other]] = half
        toward[1 - side, to[half]] = other
        half, other = (half, other) if side == 0 else (other, half)
        arc = int(state.arc[half])
        if state.forward[half]:
            flow[arc] += most
            _place(arc, half, other, flow, level, length, room, times, powers)
        else:
            flow[arc] -= most
            _place(arc, other, half, flow, level, length, room, times, powers)
    return int(most)


@njit(cache=True, nogil=True)
def _place_all(state: FlowState) -> None:
    """Work out where every arc stands."""
    for half in range(state.to.size):
        if state.forward[half]:
            _place(
                int(state.arc[half]), half, int(state.twin[half]), state.flow, state.level, state.length, state.room,
                state.vertex_time, state.vertex_power,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _place(
    arc: int,
    ahead: int,
    back: int,
    flow: IntArray,
    level: IntArray,
    length: IntArray,
    room: IntArray,
    times: IntArray,
    powers: IntArray,
) -> None:
    """Work out where an arc, of two half-edges, stands on its staircase, from its flow."""
    now, at = flow[arc], level[arc]
    while now >= powers[at]:
        at -= 1
    while now < powers[at + 1]:
        at += 1
    level[arc] = at
    below = at + 1 if now == powers[at + 1] else at
    length[0, ahead] = length[1, back] = times[at]
    length[0, back] = length[1, ahead] = -times[below]
    room[ahead] = powers[at] - now
    room[back] = 0 if times[below] == UNBOUNDED else now - powers[below + 1]


@njit(cache=True, nogil=True)
def _heap_push(heap: IntArray, size: int, key: int, node: int) -> int:
    """Put (key, node) into a binary heap; return its new size."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above, 0] <= key:
            break
        heap[at, 0], heap[at, 1] = heap[above, 0], heap[above, 1]
        at = above
    heap[at, 0], heap[at, 1] = key, node
    return size + 1


@njit(cache=True, nogil=True)
def _heap_pop(heap: IntArray, size: int) -> int:
    """Take the least entry out of a binary heap; return its new size."""
    size -= 1
    key, node = heap[size, 0], heap[size, 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= key:
            break
        heap[at, 0], heap[at, 1] = heap[child, 0], heap[child, 1]
        at = child
    heap[at, 0], heap[at, 1] = key, node
    return size
