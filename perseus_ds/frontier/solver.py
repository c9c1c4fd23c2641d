"""Solves a problem once; its frontier answers with bounds, start times and plans at any iteration time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.network import Network, build_network
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError

__all__ = ["Frontier", "solve"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_STEP = 1e-3  # of the iteration time: to see how steep the frontier is
_BUFFER = 256
_CHECKPOINTS = 32


@dataclass(frozen=True)
class Frontier:
    """The exact time-energy frontier of a pipeline, a convex piecewise linear function.

    Attributes:
        problem: The solved problem.
        t_min_s: Iteration time with every instruction at its fastest: no plan is faster.
        t_star_s: Iteration time with every instruction at its least effective energy: slower saves nothing.
        times_s: Breakpoints of the iteration time, descending from T*, shape (breakpoints,).
        effective_j: Least effective energy of one GPU per stage at each, shape (breakpoints,).
    """

    problem: Problem
    t_min_s: float
    t_star_s: float
    times_s: FloatArray
    effective_j: FloatArray
    _network: Network = field(repr=False)
    _checkpoints: tuple[tuple[IntArray, IntArray], ...] = field(repr=False)

    @property
    def breakpoints(self) -> int:
        """Number of breakpoints, both ends included."""
        return self.times_s.size

    def clamp(self, t_s: float) -> float:
        """Return ``min(T*, max(t_s, T_min))``: the best iteration time if others need ``t_s``."""
        return min(self.t_star_s, max(t_s, self.t_min_s))

    def lower_bound_j(self, t_s: float) -> float:
        """Return the LP's energy at an iteration time: no plan within it uses less."""
        effective = np.interp(t_s, self.times_s[::-1], self.effective_j[::-1])
        return self.problem.energy_j(float(effective), t_s)

    def to_json(self) -> dict[str, Any]:
        """Return the curve of lower bounds at all breakpoints, from T_min to T*, as plain lists."""
        times = self.times_s[::-1].tolist()
        return {
            "t_min_s": self.t_min_s,
            "t_star_s": self.t_star_s,
            "times_s": times,
            "lower_bound_j": [self.lower_bound_j(time) for time in times],
        }

    def start_times(self, t_s: float) -> FloatArray:
        """Return LP-optimal start times of all DAG nodes in seconds, shape (nodes,).

        Raises:
            PerseusError: ``t_s`` is below T_min.
        """
        potential, _ = self._solution(t_s)
        starts = potential[self._network.tail[: self.problem.dag.nodes]]
        return np.asarray(starts * self._network.tick_s, dtype=np.float64)

    def durations(self, t_s: float) -> FloatArray:
        """Return LP-optimal durations of the instructions in seconds, shape (instructions,).

        Raises:
            PerseusError: ``t_s`` is below T_min.
        """
        return self.solution(t_s)[0]

    def solution(self, t_s: float) -> tuple[FloatArray, FloatArray]:
        """Return LP-optimal durations in seconds and the price of each in watts, shape (instructions,) each.

        Raises:
            PerseusError: ``t_s`` is below T_min.
        """
        potential, flow = self._solution(t_s)
        prices = flow[: len(self.problem.dag.instructions)] * self._network.quantum_w
        return self._durations(potential), np.asarray(prices, dtype=np.float64)

    def price_w(self, t_s: float) -> float:
        """Return what a second is worth: the least energy of a slightly faster iteration less that of a slower one."""
        faster_s = max(self.t_min_s, t_s * (1 - _STEP))
        slower_s = faster_s + t_s * _STEP
        return max(0.0, (self.lower_bound_j(faster_s) - self.lower_bound_j(slower_s)) / (slower_s - faster_s))

    def effective_w(self, t_s: float) -> float:
        """Return what a second saves one GPU of each stage while all of them wait anyway: 0 at T*."""
        faster_s = max(self.t_min_s, t_s * (1 - _STEP))
        faster_j, slower_j = np.interp([faster_s, faster_s + t_s * _STEP], self.times_s[::-1], self.effective_j[::-1])
        return float(faster_j - slower_j) / (t_s * _STEP)

    def plan(self, t_s: float) -> Plan:
        """Return a plan for real GPU clocks with an iteration time of at most ``t_s``.

        Raises:
            PerseusError: ``t_s`` is below T_min.
        """
        from perseus_ds.frontier.rounding import round_durations

        frequencies = round_durations(self.problem, *self.solution(t_s), max(t_s, self.t_min_s))
        plan = evaluate(self.problem, frequencies)
        # Where plan and bound meet, sums in another order may differ in the last digit.
        return replace(plan, lower_bound_j=min(plan.energy_j, self.lower_bound_j(plan.time_s)))

    def _durations(self, potential: IntArray) -> FloatArray:
        count = len(self.problem.dag.instructions)
        window = potential[self._network.head[:count]] - potential[self._network.tail[:count]]
        ends = np.array([(curve.time_s[0], curve.time_s[-1]) for curve in self.problem.options])
        fastest, slowest = ends[self.problem.curve_of].T
        return np.asarray(np.clip(window * self._network.tick_s, fastest, slowest), dtype=np.float64)

    def _solution(self, t_s: float) -> tuple[IntArray, IntArray]:
        """Return LP-optimal potentials and flows: continue the sweep from the nearest checkpoint above."""
        from perseus_ds.frontier.flow import advance
        from perseus_ds.frontier.flow_state import restored_state

        if t_s < self.t_min_s * (1 - 1e-9):
            raise PerseusError(
                "plan-bad-value", name="iteration time", value=f"{t_s:.6g} s", allowed=f"from {self.t_min_s:.6g} s"
            )
        stop = int(t_s / self._network.tick_s)
        above = [checkpoint for checkpoint in self._checkpoints if checkpoint[0][-1] >= stop]
        if not above:
            return self._checkpoints[0]
        state = restored_state(self._network, *above[-1])
        buffer = np.empty((2, _BUFFER), dtype=np.int64)
        while advance(state, stop, *buffer)[0] == _BUFFER:
            pass
        return state.potential - state.potential[0], state.flow


def solve(problem: Problem, tolerance: float = 0.0, on_progress: Callable[[float], object] | None = None) -> Frontier:
    """Compute the whole exact frontier of a problem.

    It holds the GIL only between kernel calls, so it may run on a background thread.

    Args:
        problem: The problem.
        tolerance: Allowed relative error of the lower bound. Above 0 the solver thins the hulls, which is faster. The
            bound remains a true bound.
        on_progress: Called every few hundred breakpoints with the completed part of the way from T* to T_min, 0 to 1.

    Raises:
        PerseusError: The profile lacks a curve, or the DAG has a cycle.
    """
    from perseus_ds.frontier.flow import advance
    from perseus_ds.frontier.flow_state import restored_state

    curves = problem.thinned(tolerance) if tolerance > 0 else problem.options
    network = build_network(problem.dag, curves, problem.curve_of)
    state = restored_state(network, network.slowest.copy(), np.zeros(network.tail.size, dtype=np.int64))
    checkpoints = [(state.potential.copy(), state.flow.copy())]
    fastest, slowest = (np.array([curve.time_s[end] for curve in problem.options])[problem.curve_of] for end in (0, -1))
    t_min_s, t_star_s = problem.dag.makespan(fastest), problem.dag.makespan(slowest)
    every, since, more = 1, 0, True
    times: list[IntArray] = [network.slowest[-1:]]
    powers: list[IntArray] = [np.zeros(1, dtype=np.int64)]
    while more:
        buffer = np.empty((2, _BUFFER), dtype=np.int64)
        written, more = advance(state, -1, *buffer)
        times.append(buffer[0, :written])
        powers.append(buffer[1, :written])
        if on_progress is not None and more:
            on_progress((t_star_s - float(buffer[0, written - 1]) * network.tick_s) / (t_star_s - t_min_s))
        since += 1
        if since == every:
            since = 0
            checkpoints.append((state.potential - state.potential[0], state.flow.copy()))
            if len(checkpoints) > _CHECKPOINTS:
                checkpoints, every = checkpoints[::2], 2 * every

    ticks = np.concatenate(times)
    watts = np.concatenate(powers)[1:] * network.quantum_w
    slowest_j, error_j = np.array([(curve.effective_j[-1], curve.error_j) for curve in curves])[problem.curve_of].sum(0)
    spent = np.concatenate(([0.0], np.cumsum(watts * -np.diff(ticks) * network.tick_s)))
    return Frontier(
        problem,
        t_min_s,
        t_star_s,
        np.asarray(ticks * network.tick_s, dtype=np.float64),
        slowest_j - error_j + spent,
        network,
        tuple(checkpoints),
    )
