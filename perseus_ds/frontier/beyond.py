"""Plans slower than T*: less power than the plan of least energy has, at the least slowdown.

Beyond T* every plan uses more energy, yet spread over more time: its power falls. For a price of power, the plan of
least energy minus price times iteration time is exact: as a longer iteration is welcome, only one path has to take
that long. Every instruction on it takes the clock that is best at the price, and the longest path by what it wins is
the best one. All others keep the clock of least effective energy. Time O(nodes + edges) per price.

GPUs that wait may draw more at a higher clock. So the plans are also tried with all clocks below a cap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.objectives import average_power_w
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.waiting import with_waiting

__all__ = ["plans_beyond", "uniform_caps"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PRICES = 10
_CAPS = 10
_PLANS = 12
_STEP = 0.005  # plans that draw less than this share below the one before are not worth a place


def plans_beyond(
    problem: Problem, fastest: Plan, jitter_s: float = 0.0, caps_only: bool = False, rest_mhz: int = 0
) -> list[Plan]:
    """Return plans with less power than a plan has, by increasing time and falling power, down to the least possible.

    Args:
        problem: The pipeline's.
        fastest: The plan at T*; its energy includes all waiting.
        jitter_s: Standard deviation of a clock from the begin of its instruction.
        caps_only: All instructions of a plan run at one clock, where that is measured: switches cost.
        rest_mhz: The clock to rest at; 0: no rest.

    Returns:
        At most 12; energies include all waiting.
    """
    caps = _caps(problem)
    candidates = list(caps)
    if not caps_only:
        for clocks_mhz in _path_plans(problem):
            candidates += [clocks_mhz, *(np.minimum(clocks_mhz, cap) for cap in caps)]
    plans = [_evaluated(problem, clocks_mhz, 0.0, rest_mhz) for clocks_mhz in np.unique(candidates, axis=0)]
    found = _falling(plans, fastest)
    if len(found) > _PLANS:
        powers_w = np.array([average_power_w(plan) for plan in found])
        wanted_w = np.linspace(powers_w[0], powers_w[-1], _PLANS)
        found = [found[index] for index in sorted({int(np.argmin(abs(powers_w - one))) for one in wanted_w})]
    late = [_evaluated(problem, plan.clocks_of(problem.dag.instructions), jitter_s, rest_mhz) for plan in found]
    return _falling(late, fastest)


def uniform_caps(problem: Problem) -> list[Plan]:
    """Return what one cap on the clocks of all GPUs makes of the pipeline, for every measured clock, fastest first."""
    return [_evaluated(problem, clocks_mhz, 0.0) for clocks_mhz in _caps(problem, every=True)]


def _evaluated(problem: Problem, clocks_mhz: IntArray, jitter_s: float, rest_mhz: int = 0) -> Plan:
    return with_waiting(problem, evaluate_late(problem, clocks_mhz, jitter_s), rest_mhz)


def _falling(plans: Sequence[Plan], fastest: Plan) -> list[Plan]:
    """Return the plans that draw less than every faster one."""
    found, least_w = [], average_power_w(fastest)
    for plan in sorted(plans, key=lambda plan: (plan.time_s, plan.energy_j)):
        if plan.time_s > fastest.time_s * (1 + _STEP) and average_power_w(plan) < least_w * (1 - _STEP):
            found.append(plan)
            least_w = average_power_w(plan)
    return found


def _caps(problem: Problem, every: bool = False) -> list[IntArray]:
    """Return the clocks under a cap, by falling cap: for every measured clock, or for some."""
    curves = [[point.frequency_mhz for point in curve] for curve in problem.curves]
    measured = np.array(sorted({mhz for curve in curves for mhz in curve}, reverse=True))
    if not every and measured.size > _CAPS:
        measured = measured[np.unique(np.linspace(0, measured.size - 1, _CAPS).round().astype(int))]
    under = [
        np.array([max((mhz for mhz in curve if mhz <= cap), default=curve[-1]) for curve in curves], dtype=np.int64)
        for cap in measured.tolist()
    ]
    return [one[problem.curve_of] for one in under]


def _path_plans(problem: Problem) -> list[IntArray]:
    """Return the clocks of the best plan for each of some prices of power."""
    curves = [np.array([point[:3] for point in curve]) for curve in problem.curves]
    effective_j = [
        rows[:, 2] - problem.stage_power_w[key.stage] * rows[:, 1]
        for key, rows in zip(problem.keys, curves, strict=True)
    ]
    best = [int(np.argmin(one)) for one in effective_j]
    prices_w = np.concatenate(
        [_marginal_w(rows[:, 1], one, at) for rows, one, at in zip(curves, effective_j, best, strict=True)]
    )
    if not prices_w.size:
        return []
    usual_mhz = np.array([rows[at, 0] for rows, at in zip(curves, best, strict=True)])[problem.curve_of]
    plans = []
    for price_w in np.quantile(prices_w, np.linspace(0.0, 1.0, _PRICES)) * (1 + 1e-9):
        gains_j = [price_w * rows[:, 1] - (one - one.min()) for rows, one in zip(curves, effective_j, strict=True)]
        choice = [int(np.argmax(gains)) for gains in gains_j]
        slow_mhz = np.array([rows[at, 0] for rows, at in zip(curves, choice, strict=True)])[problem.curve_of]
        path = _best_path(problem, np.array([gains.max() for gains in gains_j])[problem.curve_of], price_w)
        clocks_mhz = usual_mhz.copy()
        clocks_mhz[path] = slow_mhz[path]
        plans.append(clocks_mhz.astype(np.int64))
    return plans


def _marginal_w(times_s: FloatArray, effective_j: FloatArray, best: int) -> FloatArray:
    """Return what each further second below a curve's best clock costs."""
    slower = np.concatenate([[best], np.flatnonzero(times_s > times_s[best])])
    slower = slower[np.argsort(times_s[slower])]
    seconds = np.diff(times_s[slower])
    costs = np.diff(effective_j[slower])[seconds > 0] / seconds[seconds > 0]
    return costs[costs > 0]


def _best_path(problem: Problem, gains_j: FloatArray, price_w: float) -> IntArray:
    """Return the instructions on the path that wins most; constants win the price times their time."""
    dag = problem.dag
    weights = np.concatenate([gains_j, price_w * dag.constant_times_s])
    nodes = np.array(dag.longest_path(weights), dtype=np.int64)
    return nodes[nodes < len(dag.instructions)]
