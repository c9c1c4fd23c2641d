"""Plans that are on time although clocks jitter or take long to come, and requests let GPUs stand still.

1. The ordinary plan for a shorter iteration: shorter by the lateness to expect, which the LP's durations tell.
2. Where it is still late, some instructions take another clock: those that win most of the expected time per joule.
3. Where that leaves time, some take a clock that saves.
4. Requests keep their order, so where clocks take long to come, a plan with many switches is always late. Where each
   request lets the GPU stand still, it may be, too, as near T_min no clock makes up for that. Steps 2 and 3 then begin
   with plans of few switches, too (``switching``), and with what random moves make of the best (``late_search``). It
   asks for no clock that would come too late for its instruction.

Deterministic. Time O(rounds * (samples * nodes + instructions * clocks)) beside the other planners'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.late_moves import Terms, drop_late, expected_cost, hasten, save
from perseus_ds.frontier.late_runs import no_blame, run_late
from perseus_ds.frontier.late_search import searched
from perseus_ds.frontier.lateness import (
    Draws,
    Neighbours,
    drawn,
    evaluate_late,
    is_certain,
    neighbours_of,
)
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.rounding import round_durations
from perseus_ds.frontier.solver import Frontier
from perseus_ds.frontier.switching import SwitchCost, has_common_clocks, switch_aware_plan

__all__ = ["on_time_plan", "undominated"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# How late a plan may be expected, by how late the ordinary one is with all clocks between instructions; both as shares
# of the iteration time. The rest is paid for with energy.
_TOLERANCE = ((0.0, 0.0005, 0.001, 0.003, 0.0075), (0.0, 0.002, 0.0028, 0.0028, 0.0048))
# The same where GPUs stand still or few clocks come very late. Real iterations differ by such things, and at most a
# hundredth is to be lost in all.
_TOLERANCE_AT_MOST = 0.003
# How much of the lateness beyond that a plan for a shorter iteration makes up for, by what a second costs in mean
# powers: moves of single instructions are the better way where it is dear.
_PART = ((0.5, 1.0), (1.0, 0.4))
_DEAREST = 8.0  # times the frontier's slope, or the mean power: what a second of those moves may cost
_DRAWS = 32
_DRAWS_UNEVEN = 128  # where micro-batches differ: whole iterations do
# Where few clocks come very late. Each instruction needs draws of that, but many instructions tell together.
_DRAWS_TAIL, _ALL_DRAWS_TAIL = 512, 32768
_HELD = 0.01  # from this share on of the instructions' time at wrong clocks, few switches may be better
_NEAR = 1.06  # times T_min, up to which it may be for stalls
# Plans of few switches: the penalty for one, in mean energies of an instruction, and the share of the time beyond the
# one asked for that they may take: where it is more than all of it, ``hasten`` makes up for the rest.
_SELDOM = ((0.1, 0.0), (0.1, 0.5), (0.1, 1.0), (0.3, 2.0), (1.0, 1.0))


def on_time_plan(frontier: Frontier, t_s: float, jitter_s: float) -> Plan:
    """Return a plan that is expected to take ``t_s``; where all clocks are punctual it is ``frontier.plan``.

    Elsewhere the expected time may exceed ``t_s``: by a part of the ordinary plan's lateness, a few thousandths,
    where time is dear. The plan's time and energy are expected values, its bound is that of ``t_s``.

    Args:
        frontier: The pipeline's.
        t_s: Iteration time asked for.
        jitter_s: Standard deviation of a clock from the begin of its instruction.

    Raises:
        PerseusError: ``t_s`` is below T_min, or the jitter is no time.
    """
    problem = frontier.problem
    draws = drawn(problem, jitter_s, _samples(problem), seed=1)
    bound_j = _bound_j(frontier, t_s)
    if is_certain(problem, jitter_s):
        plan = frontier.plan(t_s)
        return replace(plan, lower_bound_j=min(plan.energy_j, bound_j))
    nodes = neighbours_of(problem)
    mean_w, slope_w = bound_j / t_s, frontier.price_w(t_s)
    clock, limit_s = _start(frontier, nodes, t_s, draws, slope_w / mean_w)
    mean_late_s = float(np.maximum(draws.jitter_s, 0.0).mean())  # without the tail, which has no opposite
    dearest_w = max(_DEAREST * slope_w, mean_w) / problem.gpus_per_stage
    terms = Terms(limit_s, mean_late_s, min(float(problem.stage_power_w.sum()), frontier.effective_w(t_s)), dearest_w)
    best = _improve(nodes, clock, draws, terms)
    delays = nodes.stall_s > 0.0 and (best.late or problem.profile.switch_tail_share > 0.0)
    if best.held_share > _HELD or (delays and t_s <= _NEAR * frontier.t_min_s):
        if has_common_clocks(problem):
            best = min(best, *_seldom(frontier, nodes, t_s, draws, terms), key=lambda one: one.cost_j)
        if (clock := searched(problem, nodes, best.clock, draws, jitter_s, terms)) is not None:
            best = min(best, _improve(nodes, clock, draws, terms), key=lambda one: one.cost_j)
        drop_late(nodes, best.clock, draws, terms)
    return evaluate_late(problem, nodes.clocks_mhz[best.clock], jitter_s, bound_j)


def _samples(problem: Problem) -> int:
    """Return how many draws tell which plan is good, an even number."""
    samples = _DRAWS if problem.uneven is None else _DRAWS_UNEVEN
    if not problem.profile.switch_tail_share:
        return samples
    return max(samples, min(_DRAWS_TAIL, _ALL_DRAWS_TAIL // len(problem.dag.instructions) // 2 * 2))


def _bound_j(frontier: Frontier, t_s: float) -> float:
    """Return what an iteration of ``t_s`` uses at least; the frontier's tail may hold what differing sizes add."""
    problem = frontier.problem
    doubled_s = 0.0 if problem.uneven is None else problem.uneven.tail_s
    return frontier.lower_bound_j(t_s + doubled_s) - problem.energy_j(0.0, doubled_s)


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


class _Improved(NamedTuple):
    """Clocks after all moves.

    Attributes:
        clock: Index of each instruction's clock.
        cost_j: Expected energy on one GPU of each stage, and what it would cost to be in time.
        late: Whether more time is expected than allowed.
        held_share: Share of the instructions' time at the clock before, as theirs could not be asked for sooner.
    """

    clock: IntArray
    cost_j: float
    late: bool
    held_share: float


def _seldom(frontier: Frontier, nodes: Neighbours, t_s: float, draws: Draws, terms: Terms) -> Iterator[_Improved]:
    """Yield what comes of plans of few switches."""
    problem = frontier.problem
    mean_j = frontier.lower_bound_j(t_s) / len(problem.dag.instructions)
    for penalty, beyond in _SELDOM:
        within_s = t_s + beyond * (terms.limit_s - t_s)
        plan = switch_aware_plan(frontier, within_s, SwitchCost(penalty * mean_j), thorough=False)
        clock = np.searchsorted(nodes.clocks_mhz, plan.clocks_of(problem.dag.instructions))
        yield _improve(nodes, clock, draws, terms)


def _improve(nodes: Neighbours, clock: IntArray, draws: Draws, terms: Terms) -> _Improved:
    """Make all moves; ``clock`` is changed."""
    hasten(nodes, clock, draws, terms)
    save(nodes, clock, draws, terms)
    blame, before = no_blame(clock.size), clock[nodes.before]
    cost_j, expected_s = expected_cost(nodes, clock, draws, terms, blame)
    at_s, before_s = nodes.option_s[nodes.row, clock], nodes.option_s[nodes.row, before]
    held_s = np.clip(nodes.latency_s[clock] - blame.ahead_s, 0.0, before_s)[clock != before].sum()
    return _Improved(clock, cost_j, expected_s > terms.limit_s, held_s / at_s.sum())


def _start(frontier: Frontier, nodes: Neighbours, t_s: float, draws: Draws, worth: float) -> tuple[IntArray, float]:
    """Return the clocks of the ordinary plan that is likely to be on time, and the time that counts as on time."""
    problem, solution = frontier.problem, frontier.solution(t_s)
    quick = round_durations(problem, *solution, t_s, thorough=False)
    clock = np.searchsorted(nodes.clocks_mhz, quick)
    makespan_s = problem.dag.makespan(nodes.option_s[nodes.row, clock])
    lateness_s, between_s = (
        run_late(nodes, clock, one, no_blame(clock.size))[0] - makespan_s
        for one in (draws, draws._replace(deviation_s=0.0))
    )
    tolerance = float(np.interp(between_s / t_s, *_TOLERANCE))
    if nodes.stall_s > 0.0 or problem.profile.switch_tail_share > 0.0:
        tolerance = min(tolerance, _TOLERANCE_AT_MOST)
    tolerance_s = t_s * tolerance * min(1.0, worth)
    part = 1.0 if tolerance_s >= lateness_s else float(np.interp(worth, *_PART))
    target_s = frontier.clamp(t_s + part * (tolerance_s - lateness_s))
    frequencies = round_durations(problem, *frontier.solution(target_s), target_s)
    return np.searchsorted(nodes.clocks_mhz, frequencies), t_s + tolerance_s
