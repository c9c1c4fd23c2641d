"""Solved frontiers before rounding: the ranks share the rounding.

A frontier is small (its broadcast is the size of a plan table), and its plans are independent. Every rank rounds some
of them on its bulk channel's thread. A rank without a share loads no kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perseus_ds.coordination.plan_table import FrequencyPlan, GroupCondition, StageSlowdowns, is_slow
from perseus_ds.frontier import Frontier, Plan
from perseus_ds.frontier.beyond import plans_beyond
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.observed import at_highest
from perseus_ds.frontier.on_time import on_time_plan
from perseus_ds.frontier.switching import SwitchCost, switch_aware_plan
from perseus_ds.frontier.waiting import rest_clock_mhz, with_waiting

__all__ = ["SolvedFrontiers", "times_along"]

# Plans along the frontier that are made ready for stragglers, fast end first.
_POINTS = 24
# The same for a straggling pipeline itself, whose frontier lives as long as it straggles and is seldom left for T_min.
_STRAGGLER_POINTS = 8


@dataclass(frozen=True)
class SolvedFrontiers:
    """The frontiers to round, and how.

    Attributes:
        frontiers: By pipeline group and condition.
        times_s: The iteration times to round each at.
        switch_cost: Cost of a clock switch.
        spares_switches: Whether switches cost anything.
        jitter_s: Standard deviation of a clock's arrival from the begin of its instruction.
        adds: Whether the plans join those that the ranks hold already.
    """

    frontiers: Mapping[GroupCondition, Frontier]
    times_s: Mapping[GroupCondition, Sequence[float]]
    switch_cost: SwitchCost
    spares_switches: bool
    jitter_s: float = 0.0
    adds: bool = False

    @cached_property
    def _targets(self) -> list[tuple[GroupCondition, float]]:
        return [(which, t_s) for which, times_s in self.times_s.items() for t_s in times_s]

    def share(self, place: int, places: int) -> range:
        """Return the numbers of the plans that one rank rounds.

        Args:
            place: Number of the share, from 0.
            places: Number of shares.
        """
        return range(place, len(self._targets), places)

    def discretize_shard(
        self, place: int, places: int, on_plan: Callable[[int], object] | None = None
    ) -> dict[int, FrequencyPlan]:
        """Round one rank's share of the plans.

        Args:
            place: Number of the share, from 0.
            places: Number of shares.
            on_plan: Called after each with the number done.

        Returns:
            Plans by their number in the whole.
        """
        points: dict[int, FrequencyPlan] = {}
        for number in self.share(place, places):
            points[number] = self._point(*self._targets[number])
            if on_plan is not None:
                on_plan(len(points))
        return points

    def plans(self, shares: Iterable[Mapping[int, FrequencyPlan]]) -> dict[GroupCondition, list[FrequencyPlan]]:
        """Combine the shares of all ranks: plans in the order of ``times_s``."""
        rounded = {number: plan for share in shares for number, plan in share.items()}
        plans: dict[GroupCondition, list[FrequencyPlan]] = defaultdict(list)
        for number, (which, _) in enumerate(self._targets):
            plans[which].append(rounded[number])
        return dict(plans)

    def _point(self, which: GroupCondition, t_s: float) -> FrequencyPlan:
        frontier = self.frontiers[which]
        rest_mhz = self._rest_mhz(frontier)
        return _for_ranks(with_waiting(frontier.problem, self._plan(frontier, float(t_s)), rest_mhz), rest_mhz)

    def beyond(self, which: GroupCondition) -> tuple[FrequencyPlan, ...]:
        """Return plans with less power than the one at T* has, by increasing time.

        Args:
            which: The frontier.
        """
        frontier = self.frontiers[which]
        problem = frontier.problem
        rest_mhz = self._rest_mhz(frontier)
        slowest = with_waiting(problem, self._plan(frontier, frontier.t_star_s), rest_mhz)
        plans = plans_beyond(problem, slowest, self.jitter_s, self.spares_switches, rest_mhz)
        return tuple(_for_ranks(plan, rest_mhz) for plan in plans)

    def _rest_mhz(self, frontier: Frontier) -> int:
        return 0 if self.spares_switches else rest_clock_mhz(frontier.problem.profile, frontier.t_min_s)

    def _plan(self, frontier: Frontier, t_s: float) -> Plan:
        """Return the plan for an iteration time, with few switches where these cost anything."""
        if not self.spares_switches:
            return on_time_plan(frontier, t_s, self.jitter_s)
        # A plan that never switches runs at the highest clocks, which need not be the fastest in a measured profile.
        least_s = max(t_s, at_highest(frontier.problem).time_s)
        plan = switch_aware_plan(frontier, least_s, self.switch_cost)
        frequency_mhz = plan.clocks_of(frontier.problem.dag.instructions)
        return evaluate_late(frontier.problem, frequency_mhz, self.jitter_s, plan.lower_bound_j)


def _for_ranks(plan: Plan, rest_mhz: int) -> FrequencyPlan:
    """Return a plan as the ranks need it."""
    stages = 1 + max(one.stage for one in plan.frequency_mhz)
    clocks, aims_s = ([{} for _ in range(stages)] for _ in range(2))
    for one, mhz in plan.frequency_mhz.items():
        clocks[one.stage][one.operation] = mhz
    for one, aim_s in plan.aims_s.items():
        aims_s[one.stage][one.operation] = aim_s
    return FrequencyPlan(
        plan.time_s,
        plan.energy_j,
        plan.lower_bound_j,
        tuple(clocks),
        plan.switches,
        plan.switch_jitter_s,
        plan.deviation_s,
        rest_mhz,
        tuple(aims_s) if plan.aims_s else (),
    )


def times_along(frontier: Frontier, condition: StageSlowdowns) -> tuple[float, ...]:
    """Return the iteration times of the plans to prepare, from the fast to the slow end, denser at the fast one."""
    part = np.linspace(0.0, 1.0, _STRAGGLER_POINTS if is_slow(condition) else _POINTS) ** 1.5
    return tuple((frontier.t_min_s + part * (frontier.t_star_s - frontier.t_min_s)).tolist())
