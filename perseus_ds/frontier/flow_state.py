"""The flow on a network: the position of each arc on its staircase, and its residual capacity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.network import UNBOUNDED, Network

__all__ = ["GOAL", "FlowState", "place", "restored_state"]

IntArray = NDArray[np.int64]

GOAL = -2


class FlowState(NamedTuple):
    """The state of a sweep. The kernels change the arrays in place.

    Half-edges: each arc appears at its tail, forwards, and at its head, backwards, sorted by node and then by the
    other node. A half-edge can take flow when its slack ``potential[to] - potential[from] - length`` is 0.

    Attributes:
        potential: Start times in ticks, shape (nodes,).
        flow: Quanta on each arc, shape (arcs,).
        level: Breakpoint of each arc's flow, shape (arcs,).
        indptr: Node n's half-edges are ``indptr[n]:indptr[n + 1]``.
        to: Target node of a half-edge.
        opposite: The same arc's other half-edge.
        arc: Arc of a half-edge.
        forward: Whether a half-edge runs along its arc.
        length: Ticks at which a half-edge can take flow, backwards negative; for a forward and a backward search,
            shape (2, half-edges).
        residual: Its remaining quanta at that length.
        toward: Half-edge of the last path from a node to the iteration's end, and to its begin, shape (2, nodes);
            ``GOAL`` there, -1 without one.
        breakpoint_time: The network's.
        breakpoint_power: The network's.
    """

    potential: IntArray
    flow: IntArray
    level: IntArray
    indptr: IntArray
    to: IntArray
    opposite: IntArray
    arc: IntArray
    forward: NDArray[np.bool_]
    length: IntArray
    residual: IntArray
    toward: IntArray
    breakpoint_time: IntArray
    breakpoint_power: IntArray


def restored_state(network: Network, potential: IntArray, flow: IntArray) -> FlowState:
    """Return a state that continues from optimal start times and flow.

    Args:
        network: The network.
        potential: Start times in ticks, shape (nodes,).
        flow: Quanta on each arc, shape (arcs,).
    """
    arcs = network.tail.size
    ends = np.concatenate((network.tail, network.head))
    order = np.lexsort((np.concatenate((network.head, network.tail)), ends))
    position = np.empty(2 * arcs, dtype=np.int64)
    position[order] = np.arange(2 * arcs)
    indptr = np.zeros(network.nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=network.nodes), out=indptr[1:])
    forward = order < arcs
    toward = np.full((2, network.nodes), -1, dtype=np.int64)
    toward[0, -1] = toward[1, 0] = GOAL
    state = FlowState(
        potential.copy(),
        flow.copy(),
        network.last.copy(),
        indptr,
        np.concatenate((network.head, network.tail))[order],
        position[np.where(forward, order + arcs, order - arcs)],
        np.where(forward, order, order - arcs),
        forward,
        np.empty((2, 2 * arcs), dtype=np.int64),
        np.empty(2 * arcs, dtype=np.int64),
        toward,
        network.breakpoint_time,
        network.breakpoint_power,
    )
    _place_all(state)
    return state


@njit(cache=True, nogil=True)
def place(state: FlowState, ahead: int, back: int) -> None:
    """Compute an arc's position on its staircase from its flow.

    Args:
        state: Changed in place.
        ahead: The arc's half-edge forwards.
        back: The one backwards.
    """
    arc = state.arc[ahead]
    now, at = state.flow[arc], state.level[arc]
    while now >= state.breakpoint_power[at]:
        at -= 1
    while now < state.breakpoint_power[at + 1]:
        at += 1
    state.level[arc] = at
    below = at + 1 if now == state.breakpoint_power[at + 1] else at
    state.length[0, ahead] = state.length[1, back] = state.breakpoint_time[at]
    state.length[0, back] = state.length[1, ahead] = -state.breakpoint_time[below]
    state.residual[ahead] = state.breakpoint_power[at] - now
    unbounded = state.breakpoint_time[below] == UNBOUNDED
    state.residual[back] = 0 if unbounded else now - state.breakpoint_power[below + 1]


@njit(cache=True, nogil=True)
def _place_all(state: FlowState) -> None:
    for half in range(state.to.size):
        if state.forward[half]:
            place(state, half, state.opposite[half])
