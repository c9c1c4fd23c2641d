"""Runs an iteration with every draw of late clocks and sizes, side by side, and says whose time it is.

Time O(samples * (nodes + edges)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.aims import aims_s

__all__ = ["Blame", "no_blame", "run_late"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Blame(NamedTuple):
    """Whose time the iteration time is: means over the draws, shape (instructions,).

    Attributes:
        critical: How often an instruction lies on the critical path, each time with its size.
        late_s: How late its clock then is, beyond what latencies make of it.
        early_s: How early the clock after it then is.
        ahead_s: On the critical path or not: how long before its begin its clock can be asked for.
        held: On the critical path or not: the share of its time at another clock, as its own has not come yet.
    """

    critical: FloatArray
    late_s: FloatArray
    early_s: FloatArray
    ahead_s: FloatArray
    held: FloatArray


class _Runs(NamedTuple):
    """All draws of an iteration side by side. What clocks that come late leave to the instructions after theirs.

    Iterations repeat: what comes late in one may still be missing at the begin of the next, and clocks are asked for by
    when instructions usually begin. So each draw is run twice where latencies are known.

    Attributes:
        late_s: How late the clock of each instruction comes, beyond its latency and its aim; negative: early. Shape
            (instructions, samples).
        aims_s: How long after each instruction's begin its clock is to come, shape (instructions,).
        ends_s: End of each node, shape (nodes, samples).
        until_s: When the clock comes that an instruction ended without; 0 where it did not, shape (instructions,
            samples).
        clock: What it ran at instead, like ``until_s``.
        asked_s: When the latest request so far was due; below 0 where none can be yet, like ``until_s``.
        busy_s: Duration of the instruction at hand, shape (samples,).
        spent_j: Effective energy of all instructions so far, shape (samples,).
        stalls: How many requests come upon each instruction, shape (instructions,).
        starts_s: When each begins, like ``until_s``.
        begins_s: When each usually begins: means over the draws, shape (instructions,).
        before_s: The same of the run before; below 0 where there was none.
        stops_s: The same for their ends.
    """

    late_s: FloatArray
    aims_s: FloatArray
    ends_s: FloatArray
    until_s: FloatArray
    clock: IntArray
    asked_s: FloatArray
    busy_s: FloatArray
    spent_j: FloatArray
    stalls: FloatArray
    starts_s: FloatArray
    begins_s: FloatArray
    before_s: FloatArray
    stops_s: FloatArray


@njit(cache=True, nogil=True)
def no_blame(count: int) -> Blame:
    """Return arrays for ``run_late`` to write into."""
    return Blame(np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count))


@njit(cache=True, nogil=True)
def run_late(nodes, clock, draws, blame):
    """Run an iteration with every draw, after one whose clocks may still be missing.

    Args:
        nodes: A ``Neighbours``.
        clock: Index of each instruction's clock.
        draws: A ``Draws``.
        blame: A ``Blame``, overwritten.

    Returns:
        Mean iteration time in seconds, mean effective energy in joules, and the times' standard deviation.
    """
    count, samples = draws.size.shape
    ahead = nodes.latency_s.any()
    runs = _Runs(
        draws.tail_s + nodes.spread[clock].reshape(-1, 1) * draws.jitter_s,
        aims_s(nodes, clock, draws.deviation_s),
        np.zeros((nodes.order.size, samples)),
        np.zeros((count, samples)),
        np.zeros((count, samples), dtype=np.int64),
        np.full((count, samples), -1.0),
        np.zeros(samples),
        np.zeros(samples),
        (clock != clock[nodes.after]).astype(np.float64),
        np.zeros((count if ahead else 0, samples)),
        np.zeros(count),
        np.full(count, -1.0),
        np.zeros(count),
    )
    _run_all(nodes, clock, draws.size, runs, blame)
    if ahead:
        runs.before_s[:] = runs.begins_s
        _move_stalls(nodes, clock, runs)
    if ahead or _is_missing(runs):
        _begin_again(runs)
        _run_all(nodes, clock, draws.size, runs, blame)
    time_s, deviation_s = _blame(nodes, clock, draws.size, runs, blame)
    return time_s - nodes.doubled_s, runs.spent_j.mean(), deviation_s


@njit(cache=True, nogil=True)
def _run_all(nodes, clock, size, runs, blame):
    """Run all nodes in every draw."""
    count, samples = size.shape
    indptr, members = nodes.predecessors
    ahead = nodes.latency_s.any()
    for node in nodes.order:
        ends_s = runs.ends_s[node]
        for edge in range(indptr[node], indptr[node + 1]):
            tail_s = runs.ends_s[members[edge]]
            for sample in range(samples):
                ends_s[sample] = tail_s[sample] if tail_s[sample] > ends_s[sample] else ends_s[sample]
        if node >= count:
            ends_s += nodes.constant_s[node - count]
            continue
        if ahead:
            runs.starts_s[node] = ends_s
            runs.begins_s[node] = ends_s.mean()
        blame.ahead_s[node], blame.held[node] = _run_one(nodes, clock, size[node], runs, node)
        ends_s += runs.busy_s
        if ahead:
            runs.stops_s[node] = ends_s.mean()


@njit(cache=True, nogil=True)
def _move_stalls(nodes, clock, runs):
    """Let a GPU stand still where a request comes, not where its clock does; in a wait that costs nothing."""
    asked_s = np.zeros(clock.size)
    for node in nodes.order:
        if node >= clock.size:
            continue
        before, own = nodes.before[node], clock[node]
        if runs.begins_s[before] >= runs.begins_s[node]:
            continue  # the stage's first one is asked for as its last one ends
        asked_s[node] = asked_s[before]
        if own == clock[before] or nodes.latency_s[own] <= 0.0:
            continue
        asked_s[node] = max(asked_s[before], runs.begins_s[node] + runs.aims_s[node] - nodes.latency_s[own])
        at_hand = _at_hand(nodes, runs, before, asked_s[node])
        works = at_hand >= 0 and asked_s[node] < runs.stops_s[at_hand]
        runs.stalls[before] -= 1.0
        runs.stalls[at_hand] += 1.0 if works else 0.0


@njit(cache=True, nogil=True)
def _is_missing(runs):
    """Return whether any clock comes after the end of its iteration."""
    missing = False
    for sample in range(runs.busy_s.size):
        missing |= runs.until_s[:, sample].max() > runs.ends_s[:, sample].max()
    return missing


@njit(cache=True, nogil=True)
def _begin_again(runs):
    """Begin the next iteration, with the clocks that come after the end of this one."""
    for sample in range(runs.busy_s.size):
        runs.until_s[:, sample] -= runs.ends_s[:, sample].max()
    runs.ends_s[:] = 0.0
    runs.asked_s[:] = -1.0
    runs.spent_j[:] = 0.0


@njit(cache=True, nogil=True)
def _at_hand(nodes, runs, last, due_s):
    """Return the latest of a stage's instructions up to ``last`` that usually has begun at a time; -1: none has."""
    while runs.begins_s[last] > due_s:
        before = nodes.before[last]
        if runs.before_s[before] >= runs.before_s[last]:
            return -1  # it is the stage's last one
        last = before
    return last


@njit(cache=True, nogil=True)
def _shift_s(runs, at_hand, sample):
    """Return how much later than usual everything is, as far as the instruction at hand tells."""
    return runs.starts_s[at_hand, sample] - runs.begins_s[at_hand] if at_hand >= 0 else 0.0


@njit(cache=True, nogil=True)
def _run_one(nodes, clock, sizes, runs, node):
    """Run one instruction between the clocks before and after it, in every draw.

    Returns:
        How long before its begin its clock can be asked for, and for what share of its time it has not come: means.
    """
    late_s, aims_s = runs.late_s, runs.aims_s
    times, energies = nodes.option_s[nodes.row[node]], nodes.option_j[nodes.row[node]]
    before, after, own, new = nodes.before[node], nodes.after[node], clock[node], clock[nodes.after[node]]
    # Standing still costs what waiting does: no effective energy.
    stall_s, samples, ahead_s, held = nodes.stall_s * runs.stalls[node], sizes.size, 0.0, 0.0
    usually_s, latency_s, new_latency_s = runs.begins_s[node], nodes.latency_s[own], nodes.latency_s[new]
    after_s = usually_s + runs.before_s[after] - runs.before_s[node]
    expects = runs.before_s[node] >= 0.0
    expects_own = expects and latency_s > 0.0
    expects_new = expects and own != new and new_latency_s > 0.0 and after_s > usually_s
    known_own = _at_hand(nodes, runs, node, usually_s + aims_s[node] - latency_s) if expects_own else -1
    known_new = _at_hand(nodes, runs, node, after_s + aims_s[after] - new_latency_s) if expects_new else -1
    for sample in range(samples):
        start_s, old = runs.ends_s[node, sample], clock[before]
        asked_s, wrong_s = runs.asked_s[before, sample], max(0.0, late_s[node, sample])
        ahead_s += start_s - asked_s if asked_s >= 0.0 else np.inf
        if asked_s < 0.0:
            asked_s = 0.0  # the iteration's first clock is asked for as the one before ends
        elif own != old:
            due_s = start_s + aims_s[node] - latency_s
            if expects_own:
                due_s = min(start_s, usually_s + aims_s[node] + _shift_s(runs, known_own, sample) - latency_s)
            asked_s = max(asked_s, due_s)
            wrong_s = max(0.0, asked_s + latency_s + late_s[node, sample] - start_s)
        runs.asked_s[node, sample] = asked_s
        wait_s = runs.until_s[before, sample] - start_s
        if wait_s > 0.0:
            wrong_s = max(wrong_s, wait_s) if own != old else wait_s  # a clock that stays is not asked for
            old = runs.clock[before, sample]
        at_old = min(1.0, wrong_s / (sizes[sample] * times[old]))
        has_come = at_old < 1.0 or own == old
        runs.until_s[node, sample], runs.clock[node, sample] = 0.0 if has_come else start_s + wrong_s, old
        held += at_old if own != old else 0.0
        early_s = -aims_s[after] - late_s[after, sample]
        if expects_new:
            will_s = after_s + aims_s[after] + _shift_s(runs, known_new, sample)
            comes_s = max(asked_s + new_latency_s, will_s) + late_s[after, sample]
            early_s = start_s + sizes[sample] * (at_old * times[old] + (1.0 - at_old) * times[own]) - comes_s
        at_new = min(1.0 - at_old, max(0.0, early_s) / (sizes[sample] * times[own]))
        at_own = 1.0 - at_old - at_new
        run_s = at_old * times[old] + at_own * times[own] + at_new * times[new]
        runs.busy_s[sample] = sizes[sample] * run_s + stall_s
        run_j = at_old * energies[old] + at_own * energies[own] + at_new * energies[new]
        runs.spent_j[sample] += sizes[sample] * run_j
    return ahead_s / samples, held / samples


@njit(cache=True, nogil=True)
def _blame(nodes, clock, size, runs, blame):
    """Follow each draw's critical path back; return mean and standard deviation of the iteration time."""
    late_s, aims_s, (count, samples) = runs.late_s, runs.aims_s, size.shape
    time_s = squared = 0.0
    indptr, members = nodes.predecessors
    blame.critical[:], blame.late_s[:], blame.early_s[:] = 0.0, 0.0, 0.0
    for sample in range(samples):
        last = nodes.order[0]
        for node in range(nodes.order.size):
            if runs.ends_s[node, sample] > runs.ends_s[last, sample]:
                last = node
        time_s += runs.ends_s[last, sample]
        squared += runs.ends_s[last, sample] ** 2
        while last >= 0:
            if last < count:
                blame.critical[last] += size[last, sample] / samples
                before_s = size[last, sample] * nodes.option_s[nodes.row[last], clock[nodes.before[last]]]
                after = nodes.after[last]
                blame.late_s[last] += min(max(0.0, aims_s[last] + late_s[last, sample]), before_s) / samples
                blame.early_s[last] += max(0.0, -aims_s[after] - late_s[after, sample]) / samples
            node, last = last, -1
            for edge in range(indptr[node], indptr[node + 1]):
                if last < 0 or runs.ends_s[members[edge], sample] > runs.ends_s[last, sample]:
                    last = members[edge]
    time_s /= samples
    return time_s, np.sqrt(max(0.0, squared / samples - time_s**2))
