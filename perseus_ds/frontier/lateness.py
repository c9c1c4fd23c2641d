"""What clocks that come a little early or late make of a plan.

Every clock is asked for ahead, so that it is there when its instruction begins. What is left is jitter: the clock
comes at the begin plus a normal deviation. Late: the instruction begins at the clock before. Early: the instruction
before ends at the new clock. The instruction before also stands still for a moment: a request may cost that. Expected
time and energy are means over drawn deviations, the same draws for every plan.
Time O(samples * (nodes + edges)).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.csr import Csr

__all__ = ["Blame", "Neighbours", "deviations", "evaluate_late", "neighbours_of", "no_blame", "run_late"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_JUDGING = 64  # draws that a plan's figures come from


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


class Blame(NamedTuple):
    """Whose time the iteration time is: means over the draws, shape (instructions,).

    Attributes:
        critical: How often an instruction lies on the critical path.
        late_s: How late its clock then is.
        early_s: How early the clock after it then is.
    """

    critical: FloatArray
    late_s: FloatArray
    early_s: FloatArray


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
    before, after = np.empty((2, len(dag.instructions)), dtype=np.int64)
    for order in dag.program_order:
        before[order], after[order] = np.roll(order, 1), np.roll(order, -1)
    return Neighbours(
        dag.topological_order, dag.predecessors, dag.constant_times_s, before, after, problem.curve_of,
        clocks_mhz, option_s, option_j, allowed, problem.profile.request_stall_s,
    )  # fmt: skip


def deviations(count: int, jitter_s: float, samples: int, seed: int) -> FloatArray:
    """Draw how late clocks come, shape (samples, count); each draw comes with its opposite.

    Args:
        count: Number of instructions.
        jitter_s: Standard deviation.
        samples: Number of draws, even.
        seed: Of the draws.

    Raises:
        PerseusError: The jitter is no time.
    """
    if not (np.isfinite(jitter_s) and jitter_s >= 0):
        raise PerseusError("plan-bad-value", name="switch jitter", value=jitter_s, allowed="seconds, 0 or more")
    half = np.random.default_rng(seed).normal(0.0, jitter_s, (samples // 2, count))
    return np.concatenate((half, -half))


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
    late_s = deviations(frequency_mhz.size, jitter_s, _JUDGING, seed=0)
    if not (jitter_s or problem.profile.request_stall_s):
        return plan
    nodes = neighbours_of(problem)
    clock = np.searchsorted(nodes.clocks_mhz, frequency_mhz)
    time_s, effective_j = run_late(nodes, clock, late_s, no_blame(clock.size))
    return replace(plan, time_s=time_s, energy_j=problem.energy_j(effective_j, time_s), switch_jitter_s=jitter_s)


@njit(cache=True, nogil=True)
def no_blame(count: int) -> Blame:
    """Return arrays for ``run_late`` to write into."""
    return Blame(np.zeros(count), np.zeros(count), np.zeros(count))


@njit(cache=True, nogil=True)
def run_late(nodes, clock, late_s, blame):
    """Run an iteration with every draw of deviations.

    Args:
        nodes: A ``Neighbours``.
        clock: Index of each instruction's clock.
        late_s: How late each instruction's clock comes, shape (samples, instructions).
        blame: A ``Blame``, overwritten.

    Returns:
        Mean iteration time in seconds, and mean effective energy in joules.
    """
    samples, count = late_s.shape
    blame.critical[:], blame.late_s[:], blame.early_s[:] = 0.0, 0.0, 0.0
    indptr, members = nodes.predecessors
    ends = np.zeros(nodes.order.size)
    time_s = effective_j = 0.0
    for sample in range(samples):
        deviation, last = late_s[sample], nodes.order[0]
        for node in nodes.order:
            start = 0.0
            for edge in range(indptr[node], indptr[node + 1]):
                start = max(start, ends[members[edge]])
            if node < count:
                duration, energy_j = _late(nodes, clock, deviation, node)
                effective_j += energy_j
            else:
                duration = nodes.constant_s[node - count]
            ends[node] = start + duration
            if ends[node] > ends[last]:
                last = node
        time_s += ends[last]
        while last >= 0:
            if last < count:
                blame.critical[last] += 1.0 / samples
                blame.late_s[last] += max(0.0, deviation[last]) / samples
                blame.early_s[last] += max(0.0, -deviation[nodes.after[last]]) / samples
            node, last = last, -1
            for edge in range(indptr[node], indptr[node + 1]):
                if last < 0 or ends[members[edge]] > ends[last]:
                    last = members[edge]
    return time_s / samples, effective_j / samples


@njit(cache=True, nogil=True)
def _late(nodes, clock, deviation, node):
    """Return duration and effective energy of an instruction between the clocks before and after it."""
    times, energies = nodes.option_s[nodes.row[node]], nodes.option_j[nodes.row[node]]
    own, old, new = clock[node], clock[nodes.before[node]], clock[nodes.after[node]]
    at_old = min(1.0, max(0.0, deviation[node]) / times[old])
    at_new = min(1.0 - at_old, max(0.0, -deviation[nodes.after[node]]) / times[own])
    at_own = 1.0 - at_old - at_new
    # Standing still costs what waiting does: no effective energy.
    stall_s = nodes.stall_s if own != new else 0.0
    return (
        at_old * times[old] + at_own * times[own] + at_new * times[new] + stall_s,
        at_old * energies[old] + at_own * energies[own] + at_new * energies[new],
    )
