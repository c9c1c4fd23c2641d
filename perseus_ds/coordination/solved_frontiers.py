"""Frontiers that are solved but not yet rounded: the ranks share the rounding out among them.

A frontier is small (its broadcast is the size of a plan table) and its plans do not depend on each other, so every
rank rounds some, on its bulk channel's thread. Who has none loads no kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perseus_ds.coordination.plan_table import FrequencyPlan, PlanSet, StageSlowdowns, is_slow
from perseus_ds.frontier import Frontier, Plan, Problem, evaluate
from perseus_ds.frontier.switching import SwitchCost, delayed_points, switch_aware_plan
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.table import CurveKey

__all__ = ["SolvedFrontiers", "at_highest"]

# Plans along the frontier that are made ready for stragglers, fast end first.
_POINTS = 24
# The same for a straggling pipeline itself, whose frontier lives as long as it straggles and is seldom left for T_min.
_STRAGGLER_POINTS = 8
# Part of the iteration time by which late clocks may lengthen it before a plan minds its switches.
_SWITCHES_MAY_SHOW = 0.005


@dataclass(frozen=True)
class SolvedFrontiers:
    """What is to be rounded, and how.

    Attributes:
        frontiers: By the number of the peers and the condition.
        asked_s: The iteration time that the objective asks for, of each.
        switch_cost: What a clock switch costs.
        spares_switches: Whether plans mind their switches even where they do not show.
    """

    frontiers: Mapping[tuple[int, StageSlowdowns], Frontier]
    asked_s: Mapping[tuple[int, StageSlowdowns], float]
    switch_cost: SwitchCost
    spares_switches: bool

    @cached_property
    def _targets(self) -> list[tuple[tuple[int, StageSlowdowns], float]]:
        """Iteration times to round at: the objective's, then from the fast to the slow end, denser at the fast one."""
        return [
            (which, t_s)
            for which, frontier in self.frontiers.items()
            for t_s in (self.asked_s[which], *_along(frontier, _STRAGGLER_POINTS if is_slow(which[1]) else _POINTS))
        ]

    def share(self, place: int, places: int) -> range:
        """Return the numbers of the plans that one rank rounds.

        Args:
            place: Which share, from 0.
            places: How many shares there are.
        """
        return range(place, len(self._targets), places)

    def discretize_shard(
        self, place: int, places: int, on_plan: Callable[[int], object] | None = None
    ) -> dict[int, FrequencyPlan]:
        """Round one rank's share of the plans.

        Args:
            place: Which share, from 0.
            places: How many shares there are.
            on_plan: Called after each with how many are done.

        Returns:
            Plans by their number in the whole.
        """
        points: dict[int, FrequencyPlan] = {}
        for number in self.share(place, places):
            points[number] = self._point(*self._targets[number])
            if on_plan is not None:
                on_plan(len(points))
        return points

    def routes(self, shares: Iterable[Mapping[int, FrequencyPlan]]) -> dict[tuple[int, StageSlowdowns], PlanSet]:
        """Put the shares of all ranks together."""
        points = {number: point for share in shares for number, point in share.items()}
        by_frontier: dict[tuple[int, StageSlowdowns], list[FrequencyPlan]] = defaultdict(list)
        for number, (which, _) in enumerate(self._targets):
            by_frontier[which].append(points[number])
        return {
            which: PlanSet(
                which[1],
                self.frontiers[which].t_min_s,
                self.frontiers[which].t_star_s,
                found[0].time_s,
                tuple(sorted(found, key=lambda point: point.time_s)),
            )
            for which, found in by_frontier.items()
        }

    def _point(self, which: tuple[int, StageSlowdowns], t_s: float) -> FrequencyPlan:
        frontier = self.frontiers[which]
        plan = self._plan(frontier, float(t_s))
        clocks: list[dict] = [{} for _ in range(frontier.problem.dag.stages)]
        for one, mhz in plan.frequency_mhz.items():
            clocks[one.stage][one.operation] = mhz
        return FrequencyPlan(
            plan.time_s, plan.energy_j, plan.lower_bound_j, tuple(clocks), plan.switches, plan.switch_latency_s
        )

    def _plan(self, frontier: Frontier, t_s: float) -> Plan:
        """Return the plan for an iteration time: with few switches where asked for, or where theirs would show."""
        # A plan that never switches runs at the highest clocks, which need not be the fastest in a measured profile.
        least_s = max(t_s, at_highest(frontier.problem).time_s)
        if self.spares_switches:
            return switch_aware_plan(frontier, least_s, self.switch_cost)
        plan = frontier.plan(t_s)
        allowed_s = least_s * (1.0 + _SWITCHES_MAY_SHOW)
        if _with_latency_s(frontier.problem, plan, self.switch_cost.latency_s) <= allowed_s:
            return plan
        try:
            return switch_aware_plan(frontier, allowed_s, self.switch_cost)
        except PerseusError:
            return plan


def _along(frontier: Frontier, points: int) -> np.ndarray:
    return frontier.t_min_s + np.linspace(0.0, 1.0, points) ** 1.5 * (frontier.t_star_s - frontier.t_min_s)


def at_highest(problem: Problem) -> Plan:
    """Return the plan of every instruction at its curve's highest clock."""
    return evaluate(
        problem, [problem.profile.curve(CurveKey.of(one))[0].frequency_mhz for one in problem.dag.instructions]
    )


def _with_latency_s(problem: Problem, plan: Plan, latency_s: float) -> float:
    """Return the iteration time of a plan whose clocks come as late as they do on this GPU."""
    frequency_mhz = np.array([plan.frequency_mhz[one] for one in problem.dag.instructions])
    return problem.dag.makespan(delayed_points(problem, frequency_mhz, latency_s)[0])
