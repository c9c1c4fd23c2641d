"""What clocks that come a little early or late make of a plan.

Every clock is asked for ahead by its latency, so that it is there when its instruction begins. Requests keep their
order, and none precedes the iteration: a clock that takes long comes late after one that takes little. What is left is
jitter: the clock comes at the begin plus a normal deviation. Some clocks come far later: latencies have a tail. Late:
the instruction begins at the clock before; clocks asked for meanwhile come no sooner. Early: the instruction before
ends at the new clock. It also stands still for a moment: a request may cost that. Expected time and energy are means
over drawn deviations, the same draws for every plan.
Time O(samples * (nodes + edges)).
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.csr import Csr

__all__ = [
    "Blame",
    "Draws",
    "Neighbours",
    "drawn",
    "evaluate_late",
    "is_certain",
    "neighbours_of",
    "no_blame",
    "run_late",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_JUDGING = 64  # draws that a plan's figures come from
_JUDGING_UNEVEN = 512  # the same where micro-batches differ: whole iterations do


class Draws(NamedTuple):
    """Iterations that may be, each array of shape (samples, instructions).

    Attributes:
        late_s: How late the clock of each instruction comes.
        size: Each instruction's work, as a multiple of its curve's.
    """

    late_s: FloatArray
    size: FloatArray


class Neighbours(NamedTuple):
    """A pipeline whose instructions may run at clocks of their neighbours.

    Attributes:
        order: Topological order of all nodes.
        predecessors: Of all nodes.
        constant_s: Times of the nodes after the instructions.
        before: The instruction before each on its stage; before the first comes the last, shape (instructions,).
        after: The instruction after each.
        row: Curve of each.
        clocks_mhz: All clocks of the profile, ascending, shape (clocks,).
        option_s: Duration by curve and clock; a clock that a curve lacks lies between its neighbours.
        option_j: Effective energy by curve and clock.
        allowed: Whether a clock is one of a curve's useful options.
        stall_s: For how long a request lets the GPU stand still.
        latency_s: How long each clock takes to come, shape (clocks,); 0 if not known of any.
        doubled_s: Part of the constants that the draws' sizes bring once more.
    """

    order: IntArray
    predecessors: Csr
    constant_s: FloatArray
    before: IntArray
    after: IntArray
    row: IntArray
    clocks_mhz: IntArray
    option_s: FloatArray
    option_j: FloatArray
    allowed: NDArray[np.bool_]
    stall_s: float
    latency_s: FloatArray
    doubled_s: float


class Blame(NamedTuple):
    """Whose time the iteration time is: means over the draws, shape (instructions,).

    Attributes:
        critical: How often an instruction lies on the critical path, each time with its size.
        late_s: How late its clock then is, beyond what latencies make of it.
        early_s: How early the clock after it then is.
        ahead_s: On the critical path or not: how long before its begin its clock can be asked for.
    """

    critical: FloatArray
    late_s: FloatArray
    early_s: FloatArray
    ahead_s: FloatArray


def neighbours_of(problem: Problem) -> Neighbours:
    """Return a problem's instructions with the curves that their neighbours' clocks need."""
    dag, curves = problem.dag, [problem.profile.curve(key) for key in problem.keys]
    clocks_mhz = np.array(sorted({point.frequency_mhz for curve in curves for point in curve}), dtype=np.int64)
    shape = (len(curves), clocks_mhz.size)
    option_s, option_j, allowed = np.empty(shape), np.empty(shape), np.zeros(shape, dtype=np.bool_)
    for index, (key, curve) in enumerate(zip(problem.keys, curves, strict=True)):
        mhz, time_s, energy_j = np.array([point[:3] for point in curve[::-1]]).T
        option_s[index] = np.interp(clocks_mhz, mhz, time_s)
        option_j[index] = np.interp(clocks_mhz, mhz, energy_j) - problem.stage_power_w[key.stage] * option_s[index]
        allowed[index] = np.isin(clocks_mhz, problem.options[index].frequency_mhz)
    known_s = problem.profile.switch_latency_s
    usual_s = median(known_s.values()) if known_s else 0.0
    before, after = np.empty((2, len(dag.instructions)), dtype=np.int64)
    for order in dag.program_order:
        before[order], after[order] = np.roll(order, 1), np.roll(order, -1)
    return Neighbours(
        dag.topological_order, dag.predecessors, dag.constant_times_s, before, after, problem.curve_of,
        clocks_mhz, option_s, option_j, allowed, problem.profile.request_stall_s,
        np.array([known_s.get(mhz, usual_s) for mhz in clocks_mhz.tolist()]),
        problem.uneven.tail_s if problem.uneven is not None else 0.0,
    )  # fmt: skip


class _Stuck(NamedTuple):
    """What an iteration's clocks that come late leave to the instructions after theirs, shape (instructions,).

    Attributes:
        until_s: When the clock comes that an instruction ended without; 0 where it did not.
        clock: What it ran at instead.
        asked_s: When the latest request so far was due; below 0 where none can be yet.
    """

    until_s: FloatArray
    clock: IntArray
    asked_s: FloatArray


def drawn(problem: Problem, jitter_s: float, samples: int, seed: int) -> Draws:
    """Draw how late clocks come, each jitter with its opposite, and how micro-batches differ.

    Args:
        problem: What is planned. Its profile knows the tail of latencies.
        jitter_s: Standard deviation.
        samples: Number of draws, even.
        seed: Of the draws.

    Raises:
        PerseusError: The jitter is no time.
    """
    if not (np.isfinite(jitter_s) and jitter_s >= 0):
        raise PerseusError("plan-bad-value", name="switch jitter", value=jitter_s, allowed="seconds, 0 or more")
    draw, count = np.random.default_rng(seed), len(problem.dag.instructions)
    half = draw.normal(0.0, jitter_s, (samples // 2, count))
    tail_s = draw.exponential(problem.profile.switch_tail_s, (samples, count))
    tail_s[draw.random(tail_s.shape) >= problem.profile.switch_tail_share] = 0.0
    late_s = np.concatenate((half, -half)) + tail_s
    if problem.uneven is None:
        return Draws(late_s, np.ones_like(late_s))
    return Draws(late_s, problem.uneven.drawn(problem.dag.instructions, problem.curve_of, draw, samples))


def is_certain(problem: Problem, jitter_s: float) -> bool:
    """Return whether all micro-batches are alike, all clocks come just in time, and requests cost none."""
    profile = problem.profile
    delayed = jitter_s or profile.request_stall_s or profile.switch_tail_share or profile.switch_latency_s
    return not delayed and problem.uneven is None


def evaluate_late(problem: Problem, frequency_mhz: IntArray, jitter_s: float, lower_bound_j: float = 0.0) -> Plan:
    """Make a plan of frequencies as ``evaluate`` does, with the time and energy to expect of jittering clocks.

    Args:
        problem: What is planned.
        frequency_mhz: Of each instruction, shape (instructions,).
        jitter_s: Standard deviation of a clock from the begin of its instruction.
        lower_bound_j: Known bound for the plan; 0 without one.

    Raises:
        PerseusError: A frequency was not measured, or the jitter is no time.
    """
    plan = evaluate(problem, frequency_mhz, lower_bound_j)
    draws = drawn(problem, jitter_s, _JUDGING if problem.uneven is None else _JUDGING_UNEVEN, seed=0)
    if is_certain(problem, jitter_s):
        return plan
    nodes = neighbours_of(problem)
    clock = np.searchsorted(nodes.clocks_mhz, frequency_mhz)
    time_s, effective_j, deviation_s = run_late(nodes, clock, draws, no_blame(clock.size))
    return replace(
        plan,
        time_s=time_s,
        energy_j=problem.energy_j(effective_j, time_s),
        switch_jitter_s=jitter_s,
        deviation_s=deviation_s if problem.uneven is not None else 0.0,
    )


@njit(cache=True, nogil=True)
def no_blame(count: int) -> Blame:
    """Return arrays for ``run_late`` to write into."""
    return Blame(np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(count))


@njit(cache=True, nogil=True)
def run_late(nodes, clock, draws, blame):
    """Run an iteration with every draw.

    Args:
        nodes: A ``Neighbours``.
        clock: Index of each instruction's clock.
        draws: A ``Draws``.
        blame: A ``Blame``, overwritten.

    Returns:
        Mean iteration time in seconds, mean effective energy in joules, and the times' standard deviation.
    """
    samples, count = draws.size.shape
    blame.critical[:], blame.late_s[:], blame.early_s[:], blame.ahead_s[:] = 0.0, 0.0, 0.0, 0.0
    indptr, members = nodes.predecessors
    ends = np.zeros(nodes.order.size)
    stuck = _Stuck(np.zeros(count), np.zeros(count, dtype=np.int64), np.zeros(count))
    time_s = squared = effective_j = 0.0
    for sample in range(samples):
        deviation, size, last = draws.late_s[sample], draws.size[sample], nodes.order[0]
        stuck.until_s[:], stuck.asked_s[:] = 0.0, -1.0
        for node in nodes.order:
            start = 0.0
            for edge in range(indptr[node], indptr[node + 1]):
                start = max(start, ends[members[edge]])
            if node < count:
                duration, energy_j = _late(nodes, clock, deviation, size[node], stuck, node, start)
                effective_j += energy_j
                asked_s = stuck.asked_s[nodes.before[node]]
                blame.ahead_s[node] += (start - asked_s if asked_s >= 0.0 else np.inf) / samples
            else:
                duration = nodes.constant_s[node - count]
            ends[node] = start + duration
            if ends[node] > ends[last]:
                last = node
        time_s += ends[last]
        squared += ends[last] ** 2
        while last >= 0:
            if last < count:
                blame.critical[last] += size[last] / samples
                before_s = size[last] * nodes.option_s[nodes.row[last], clock[nodes.before[last]]]
                blame.late_s[last] += min(max(0.0, deviation[last]), before_s) / samples
                blame.early_s[last] += max(0.0, -deviation[nodes.after[last]]) / samples
            node, last = last, -1
            for edge in range(indptr[node], indptr[node + 1]):
                if last < 0 or ends[members[edge]] > ends[last]:
                    last = members[edge]
    time_s /= samples
    return time_s - nodes.doubled_s, effective_j / samples, np.sqrt(max(0.0, squared / samples - time_s**2))


@njit(cache=True, nogil=True)
def _late(nodes, clock, deviation, size, stuck, node, start_s):
    """Return duration and effective energy of an instruction between the clocks before and after it."""
    times, energies = size * nodes.option_s[nodes.row[node]], size * nodes.option_j[nodes.row[node]]
    before = nodes.before[node]
    own, old, new = clock[node], clock[before], clock[nodes.after[node]]
    jitter_s = max(0.0, deviation[node])
    asked_s, late_s = stuck.asked_s[before], jitter_s
    if asked_s < 0.0:
        asked_s = 0.0  # the iteration's first clock is asked for as the one before ends
    elif own != old:
        asked_s = max(asked_s, start_s - nodes.latency_s[own])
        late_s = max(0.0, asked_s + nodes.latency_s[own] + deviation[node] - start_s)
    stuck.asked_s[node] = asked_s
    wait_s = stuck.until_s[before] - start_s
    if wait_s > 0.0:
        late_s = max(late_s, wait_s) if own != old else wait_s  # a clock that stays is not asked for
        old = stuck.clock[before]
    at_old = min(1.0, late_s / times[old])
    if at_old == 1.0 and own != old:
        stuck.until_s[node], stuck.clock[node] = start_s + late_s, old
    at_new = min(1.0 - at_old, max(0.0, -deviation[nodes.after[node]]) / times[own])
    at_own = 1.0 - at_old - at_new
    # Standing still costs what waiting does: no effective energy.
    stall_s = nodes.stall_s if own != new else 0.0
    return (
        at_old * times[old] + at_own * times[own] + at_new * times[new] + stall_s,
        at_old * energies[old] + at_own * energies[own] + at_new * energies[new],
    )
