"""What clocks that come a little early or late make of a plan.

Every clock is asked for ahead by its latency, so that it is there when its instruction begins, or a little earlier or
later (``aims``). Requests keep their order, and none precedes the iteration: a clock that takes long comes late after
one that takes little. What is left is jitter: the clock comes then plus a normal deviation. Some clocks come far
later: latencies have a tail. Late: the instruction begins at the clock before; clocks asked for meanwhile come no
sooner. Early: the instruction before ends at the new clock. A request may let the GPU stand still for a moment where it
comes. Expected time and energy are means over drawn deviations, the same draws for every plan.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.aims import aims_s, spread
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.csr import Csr

__all__ = ["Draws", "Neighbours", "drawn", "evaluate_late", "is_certain", "neighbours_of"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_DIGITS = 6  # of an aim
_JUDGING = 64  # draws that a plan's figures come from
_JUDGING_UNEVEN = 512  # the same where micro-batches differ, or few clocks come very late: whole iterations differ


class Draws(NamedTuple):
    """Iterations that may be, each array of shape (instructions, samples).

    Attributes:
        jitter_s: How late the clock of each instruction comes if its latency is the usual one; negative: early. It is
            in proportion to the latency.
        tail_s: How much later it comes.
        size: Each instruction's work, as a multiple of its curve's.
        deviation_s: Usual standard deviation of the jitter, by which clocks are asked for earlier or later.
    """

    jitter_s: FloatArray
    tail_s: FloatArray
    size: FloatArray
    deviation_s: float = 0.0


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
        spread: Its jitter as a multiple of the usual one, shape (clocks,); 1 if no latency is known.
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
    spread: FloatArray
    doubled_s: float


def neighbours_of(problem: Problem) -> Neighbours:
    """Return a problem's instructions with the curves that their neighbours' clocks need."""
    dag, curves = problem.dag, problem.curves
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
        np.array([spread(known_s, mhz) for mhz in clocks_mhz.tolist()]),
        problem.uneven.tail_s if problem.uneven is not None else 0.0,
    )  # fmt: skip


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
    half_s = draw.normal(0.0, jitter_s, (count, samples // 2))
    jitters_s = np.concatenate((half_s, -half_s), axis=1)
    tail_s = np.zeros_like(jitters_s)
    if problem.profile.switch_tail_share:
        tail_s = draw.exponential(problem.profile.switch_tail_s, tail_s.shape)
        tail_s[draw.random(tail_s.shape) >= problem.profile.switch_tail_share] = 0.0
    if problem.uneven is None:
        return Draws(jitters_s, tail_s, np.ones_like(jitters_s), jitter_s)
    sizes = problem.uneven.drawn(problem.dag.instructions, problem.curve_of, draw, samples)
    return Draws(jitters_s, tail_s, np.ascontiguousarray(sizes.T), jitter_s)


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
    alike = problem.uneven is None and not problem.profile.switch_tail_share
    draws = drawn(problem, jitter_s, _JUDGING if alike else _JUDGING_UNEVEN, seed=0)
    if is_certain(problem, jitter_s):
        return plan
    nodes = neighbours_of(problem)
    clock = np.searchsorted(nodes.clocks_mhz, frequency_mhz)
    time_s, effective_j, deviation_s = run_late(nodes, clock, draws, no_blame(clock.size))
    aims = zip(problem.dag.instructions, aims_s(nodes, clock, jitter_s).tolist(), strict=True)
    return replace(
        plan,
        time_s=time_s,
        energy_j=problem.energy_j(effective_j, time_s),
        switch_jitter_s=jitter_s,
        deviation_s=deviation_s if problem.uneven is not None else 0.0,
        aims_s={one: round(aim_s, _DIGITS) for one, aim_s in aims if aim_s},
    )
