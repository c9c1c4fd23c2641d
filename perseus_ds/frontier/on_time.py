"""Plans that are on time although their clocks jitter and requests let GPUs stand still.

1. The ordinary plan for a shorter iteration: shorter by the lateness to expect, which the LP's durations tell.
2. Where it is still late, some instructions take another clock: those that win most of the expected time per joule.
   The critical paths of all draws say whose time counts (the sampled gradient of a stochastic PERT network, Burt and
   Garman: Conditional Monte Carlo, Management Science 18(3), 1971), and what a neighbour's clock adds to it.
3. Where that leaves time, some take a clock that saves.

Deterministic. Time O(rounds * (samples * nodes + instructions * clocks)) beside the ordinary plan's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from perseus_ds.frontier.lateness import (
    Neighbours,
    deviations,
    evaluate_late,
    neighbours_of,
    no_blame,
    run_late,
)
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.rounding import round_durations
from perseus_ds.frontier.solver import Frontier

__all__ = ["on_time_plan", "undominated"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# How late a plan may be expected, by how late the ordinary one is; both as shares of the iteration time. The rest is
# paid for with energy.
_TOLERANCE = ((0.0, 0.0002, 0.0075), (0.0, 0.0013, 0.0044))
# How much of the lateness a plan for a shorter iteration makes up for, by what a second costs in mean powers: moves of
# single instructions are the better way where it is dear.
_PART = ((0.5, 1.0), (1.0, 0.4))
_DEAREST = 8.0  # times the frontier's slope, or the mean power: what a second of those moves may cost
_DRAWS = 32
_ROUNDS = 30
_SHARE = 0.5  # of the lateness, or of the time left, that one round may take


def on_time_plan(frontier: Frontier, t_s: float, jitter_s: float) -> Plan:
    """Return a plan that is expected to take ``t_s``; without jitter and stalls it is ``frontier.plan(t_s)``.

    With them the expected time may exceed ``t_s``: by a part of the ordinary plan's lateness, a few thousandths,
    where time is dear. The plan's time and energy are expected values, its bound is that of ``t_s``.

    Args:
        frontier: The pipeline's.
        t_s: Iteration time asked for.
        jitter_s: Standard deviation of a clock from the begin of its instruction.

    Raises:
        PerseusError: ``t_s`` is below T_min, or the jitter is no time.
    """
    problem = frontier.problem
    late_s = deviations(len(problem.dag.instructions), jitter_s, _DRAWS, seed=1)
    bound_j = frontier.lower_bound_j(t_s)
    if not (jitter_s or problem.profile.request_stall_s):
        plan = frontier.plan(t_s)
        return replace(plan, lower_bound_j=min(plan.energy_j, bound_j))
    nodes = neighbours_of(problem)
    mean_w, slope_w = bound_j / t_s, frontier.price_w(t_s)
    clock, limit_s = _start(frontier, nodes, t_s, late_s, slope_w / mean_w)
    mean_late_s = float(np.maximum(late_s, 0.0).mean())
    dearest_w = max(_DEAREST * slope_w, mean_w) / problem.gpus_per_stage
    terms = _Terms(limit_s, mean_late_s, float(problem.stage_power_w.sum()), dearest_w)
    _hasten(nodes, clock, late_s, terms)
    _save(nodes, clock, late_s, terms)
    return evaluate_late(problem, nodes.clocks_mhz[clock], jitter_s, bound_j)


class _Costed(Protocol):
    @property
    def time_s(self) -> float: ...
    @property
    def energy_j(self) -> float: ...


_Choice = TypeVar("_Choice", bound=_Costed)


def undominated(plans: Sequence[_Choice], waiting_w: float = 0.0) -> list[_Choice]:
    """Return for each plan the best of all that are no slower than it or one before it.

    So no plan of the result dominates another in time and energy, and energy never rises from one to the next.

    Args:
        plans: In the order of the times that they were asked for.
        waiting_w: Power of all GPUs' waiting, where something else sets the pace, such as a straggler: a plan that
            ends early then waits, and its energy is no argument against a slower one.
    """
    latest_s = np.maximum.accumulate([plan.time_s for plan in plans])

    def order(plan: _Choice) -> tuple[float, float]:
        return plan.energy_j - waiting_w * plan.time_s, plan.time_s

    return [min((plan for plan in plans if plan.time_s <= limit_s), key=order) for limit_s in latest_s]


class _Terms(NamedTuple):
    """What moves must keep to.

    Attributes:
        limit_s: Expected iteration time allowed.
        mean_late_s: Mean lateness of a clock, counting early ones as 0; the mean earliness is the same.
        waiting_w: Power of all stages' waiting, on one GPU of each.
        dearest_w: What a second may cost.
    """

    limit_s: float
    mean_late_s: float
    waiting_w: float
    dearest_w: float


def _start(
    frontier: Frontier, nodes: Neighbours, t_s: float, late_s: FloatArray, worth: float
) -> tuple[IntArray, float]:
    """Return the clocks of the ordinary plan that is likely to be on time, and the time that counts as on time."""
    problem, solution = frontier.problem, frontier.solution(t_s)
    quick = round_durations(problem, *solution, t_s, thorough=False)
    clock = np.searchsorted(nodes.clocks_mhz, quick)
    expected_s = run_late(nodes, clock, late_s, no_blame(clock.size))[0]
    lateness_s = expected_s - problem.dag.makespan(nodes.option_s[nodes.row, clock])
    tolerance_s = t_s * float(np.interp(lateness_s / t_s, *_TOLERANCE))
    tolerance_s *= min(1.0, worth)
    part = float(np.interp(worth, *_PART))
    target_s = frontier.clamp(t_s + part * (tolerance_s - lateness_s))
    frequencies = round_durations(problem, *frontier.solution(target_s), target_s)
    return np.searchsorted(nodes.clocks_mhz, frequencies), t_s + tolerance_s


@njit(cache=True, nogil=True)
def _hasten(nodes, clock, late_s, terms):
    """Change clocks until the expected time is within the limit, or a second is too dear; ``clock`` is changed."""
    blame, before = no_blame(clock.size), clock.copy()
    before_s, before_j = np.inf, -np.inf
    for _ in range(_ROUNDS):
        expected_s, effective_j = run_late(nodes, clock, late_s, blame)
        energy_j = effective_j + terms.waiting_w * expected_s
        if energy_j - before_j > terms.dearest_w * (before_s - expected_s):
            clock[:] = before
            return
        if expected_s <= terms.limit_s:
            return
        before[:], before_s, before_j = clock, expected_s, energy_j
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms, True)
        price_w = np.where(to >= 0, cost_j / np.maximum(-change_s, 1e-12), np.inf)
        price_w[price_w > terms.dearest_w] = np.inf
        if _take(nodes, clock, to, -change_s, price_w, _SHARE * (expected_s - terms.limit_s), False) == 0:
            return


@njit(cache=True, nogil=True)
def _save(nodes, clock, late_s, terms):
    """Change clocks while that saves within the limit; ``clock`` is changed."""
    blame, kept = no_blame(clock.size), clock.copy()
    least_j, share = np.inf, _SHARE
    for _ in range(_ROUNDS):
        expected_s, effective_j = run_late(nodes, clock, late_s, blame)
        energy_j = effective_j + terms.waiting_w * expected_s
        if energy_j >= least_j or (expected_s > terms.limit_s and np.isfinite(least_j)):
            clock[:] = kept
            share /= 4
            if share < 0.1 * _SHARE:
                return
            continue
        kept[:], least_j = clock, energy_j
        to, change_s, cost_j = _best_moves(nodes, clock, blame, terms, False)
        change_s = np.maximum(change_s, 1e-12)
        price_w = np.where(to >= 0, -change_s / np.minimum(cost_j, -1e-12), np.inf)
        if _take(nodes, clock, to, change_s, price_w, share * (terms.limit_s - expected_s), True) == 0:
            return


@njit(cache=True, nogil=True)
def _take(nodes, clock, to, size_s, price, most_s, fitting):
    """Make the cheapest moves up to a sum of sizes, never of two neighbours; return how many."""
    taken, sum_s = 0, 0.0
    busy = np.zeros(clock.size, dtype=np.bool_)
    for node in np.argsort(price, kind="mergesort"):
        if price[node] == np.inf or sum_s >= most_s:
            break
        if busy[node] or (fitting and sum_s + size_s[node] > most_s):
            continue
        clock[node] = to[node]
        busy[node] = busy[nodes.before[node]] = busy[nodes.after[node]] = True
        sum_s += size_s[node]
        taken += 1
    return taken


@njit(cache=True, nogil=True)
def _best_moves(nodes, clock, blame, terms, faster):
    """Return each instruction's best other clock, -1 for none, and what it changes in time and energy."""
    count = clock.size
    to = np.full(count, -1, dtype=np.int64)
    change_s, cost_j = np.zeros(count), np.zeros(count)
    for node in range(count):
        best = 0.0
        now_s, now_j = _around(nodes, clock, blame, terms, node, clock[node])
        for other in range(nodes.clocks_mhz.size):
            if other == clock[node] or not nodes.allowed[nodes.row[node], other]:
                continue
            # A lower clock like a neighbour's spares a stall, but makes other paths critical: no gradient tells.
            if faster and other < clock[node]:
                continue
            then_s, then_j = _around(nodes, clock, blame, terms, node, other)
            time_s = then_s - now_s
            energy_j = then_j - now_j + terms.waiting_w * time_s
            if faster:
                value = -time_s / max(energy_j, 1e-4) if time_s < -1e-9 else 0.0
            else:
                value = -energy_j / max(time_s, 1e-6) if energy_j < -1e-6 else 0.0
            if value > best:
                best, to[node] = value, other
                change_s[node], cost_j[node] = time_s, energy_j
    return to, change_s, cost_j


@njit(cache=True, nogil=True)
def _around(nodes, clock, blame, terms, node, own):
    """Return what an instruction's clock adds to expected time and energy, with its neighbours'."""
    before, after = nodes.before[node], nodes.after[node]
    old, new = clock[before], clock[after]
    times, energies = nodes.option_s[nodes.row[node]], nodes.option_j[nodes.row[node]]
    time_s = (
        blame.critical[node] * times[own]
        + blame.late_s[node] * (1 - times[own] / times[old])
        + blame.early_s[node] * (times[new] / times[own] - 1)
    )
    mean_j = (energies[old] - energies[own]) / times[old] + (energies[new] - energies[own]) / times[own]
    energy_j = energies[own] + terms.mean_late_s * mean_j
    times, energies = nodes.option_s[nodes.row[after]], nodes.option_j[nodes.row[after]]
    time_s += blame.late_s[after] * (1 - times[new] / times[own])
    energy_j += terms.mean_late_s * (energies[own] - energies[new]) / times[own]
    times, energies = nodes.option_s[nodes.row[before]], nodes.option_j[nodes.row[before]]
    time_s += blame.early_s[before] * (times[own] / times[old] - 1)
    time_s += nodes.stall_s * (blame.critical[node] * (own != new) + blame.critical[before] * (own != old))
    return time_s, energy_j + terms.mean_late_s * (energies[own] - energies[old]) / times[old]
