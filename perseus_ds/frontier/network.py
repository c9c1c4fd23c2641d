"""The flow network of a pipeline: one arc per instruction, constant and real dependency.

Every node of the DAG is an arc from its begin to its end; a dependency joins an end with a begin. If the end has no
other successor or the begin no other predecessor, both become one network node. An instruction may last until then,
because its energy is flat beyond its slowest option. Other dependencies are arcs of length 0. ``flow`` solves the
network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.hull import Options
from perseus_ds.pipeline.dag import PipelineDag

__all__ = ["UNBOUNDED", "Network", "build_network"]

IntArray = NDArray[np.int64]

UNBOUNDED = 1 << 58  # more than any length or flow
_STEEPEST_W = 1e8  # two measured times that differ by less than noise must not cost all others their precision
_FINE = 1e15  # whole numbers up to here: rounding never shows, float64 is exact, sums stay below UNBOUNDED


@dataclass(frozen=True)
class Network:
    """Arcs between the begins and ends of a DAG's nodes. Times in ticks, flows and powers in quanta.

    An arc's staircase is a run of breakpoints, times ascending. ``breakpoint_time[b]`` is a length, and
    ``breakpoint_power[b]`` the largest flow at that length. The first breakpoint carries any flow. A sentinel of
    infinite length and no flow ends the run.

    Attributes:
        tick_s: Seconds per tick.
        quantum_w: Watts per quantum.
        nodes: Number of network nodes; 0 is the iteration's begin, ``nodes - 1`` its end.
        tail: Arc begins, shape (arcs,); the first arcs are the DAG's nodes in their order.
        head: Arc ends, shape (arcs,).
        last: Each arc's last breakpoint before the sentinel, shape (arcs,).
        breakpoint_time: Shape (breakpoints,).
        breakpoint_power: Shape (breakpoints,).
        slowest: Potentials (start times) with every instruction at its slowest option, shape (nodes,).
    """

    tick_s: float
    quantum_w: float
    nodes: int
    tail: IntArray
    head: IntArray
    last: IntArray
    breakpoint_time: IntArray
    breakpoint_power: IntArray
    slowest: IntArray


def build_network(dag: PipelineDag, curves: Sequence[Options], curve_of: IntArray) -> Network:
    """Build the network of a DAG.

    Args:
        dag: The pipeline.
        curves: The different curves.
        curve_of: Index into ``curves`` of each instruction, shape (instructions,).
    """
    slowest_s = np.array([curve.time_s[-1] for curve in curves])[curve_of]
    tick_s = _power_of_ten(dag.makespan(slowest_s) / _FINE)
    steepest_w = max(float(np.max(-np.diff(c.effective_j) / np.diff(c.time_s), initial=1.0)) for c in curves)
    quantum_w = _power_of_ten(min(steepest_w, _STEEPEST_W) * dag.nodes / _FINE)
    # Durations are rounded down, so that the solution is a lower bound.
    fixed = [int(constant.duration_s / tick_s) for constant in dag.constants]
    runs = [_staircase(curve, tick_s, quantum_w) for curve in curves]
    runs += [([ticks], [UNBOUNDED]) for ticks in (*fixed, 0)]
    last_of_run = np.cumsum([len(times) + 1 for times, _ in runs]) - 2
    breakpoint_time = np.array([t for times, _ in runs for t in (*times, UNBOUNDED)], dtype=np.int64)
    breakpoint_power = np.array([p for _, powers in runs for p in (*powers, 0)], dtype=np.int64)

    begins, ends, free = _network_nodes(dag)
    run_of_node = np.concatenate((curve_of, np.arange(len(curves), len(runs) - 1)))
    last = last_of_run[np.concatenate((run_of_node, np.full(len(free), len(runs) - 1)))]
    potential = _potentials(dag, begins, ends, breakpoint_time[last[: dag.nodes]])

    # Numbered by start time: neighbours in time are neighbours in memory.
    present = np.unique(np.concatenate((begins, ends, [2 * dag.nodes, 2 * dag.nodes + 1])))
    present = present[np.lexsort((present == 2 * dag.nodes + 1, present != 2 * dag.nodes, potential[present]))]
    rank = np.zeros(2 * dag.nodes + 2, dtype=np.int64)
    rank[present] = np.arange(present.size)
    return Network(
        tick_s,
        quantum_w,
        present.size,
        rank[np.concatenate((begins, ends[free[:, 0]]))],
        rank[np.concatenate((ends, begins[free[:, 1]]))],
        last,
        breakpoint_time,
        breakpoint_power,
        potential[present],
    )


def _power_of_ten(value: float) -> float:
    """The next power of ten."""
    return float(10.0 ** np.ceil(np.log10(value)))


def _staircase(curve: Options, tick_s: float, quantum_w: float) -> tuple[list[int], list[int]]:
    """Breakpoints of one curve: lengths in ticks ascending, and the most flow in quanta at each."""
    times = np.floor(curve.time_s[curve.hull] / tick_s).astype(np.int64).tolist()
    energies = (curve.effective_j[curve.hull] / (tick_s * quantum_w)).tolist()
    steepest = int(_STEEPEST_W / quantum_w)
    kept, powers = [0], [UNBOUNDED]
    for i in range(1, len(times)):
        while kept:
            before = kept[-1]
            # Rounded down, as times are.
            power = min(int((energies[before] - energies[i]) / max(1, times[i] - times[before])), steepest)
            if times[i] > times[before] and power < powers[-1]:
                break
            kept.pop()
            powers.pop()
        else:
            power = UNBOUNDED
        if power > 0:
            kept.append(i)
            powers.append(power)
    return [times[i] for i in kept], powers


def _network_nodes(dag: PipelineDag) -> tuple[IntArray, IntArray, IntArray]:
    """Join begins and ends.

    Returns:
        The network node of every DAG node's begin, that of its end, and the dependencies that stay arcs.
        Begins are numbered from 0, ends from ``dag.nodes``; the last two are the iteration's begin and end.
    """
    nodes, (a, b) = dag.nodes, dag.edges.T
    after = np.bincount(a, minlength=nodes)
    before = np.bincount(b, minlength=nodes)
    begins = np.where(before == 0, 2 * nodes, np.arange(nodes))
    ends = np.where(after == 0, 2 * nodes + 1, nodes + np.arange(nodes))
    into = after[a] == 1
    ends[a[into]] = begins[b[into]]
    out_of = ~into & (before[b] == 1)
    begins[b[out_of]] = ends[a[out_of]]
    return begins, ends, dag.edges[~into & ~out_of]


def _potentials(dag: PipelineDag, begins: IntArray, ends: IntArray, slowest: IntArray) -> IntArray:
    """Earliest start times in ticks when every instruction is at its slowest."""
    # Whole numbers up to 1e15 are exact in float64.
    starts = dag.heads_s(slowest.astype(np.float64)).astype(np.int64)
    potential = np.zeros(2 * dag.nodes + 2, dtype=np.int64)
    potential[ends] = starts + slowest
    potential[begins] = starts
    potential[2 * dag.nodes] = 0
    potential[2 * dag.nodes + 1] = np.max(starts + slowest, initial=0)
    return potential
