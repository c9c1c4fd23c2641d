"""Objectives with a limit on the average power, of one pipeline or of the whole job."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from perseus_ds.frontier.objectives import ROUNDING, Objective, average_power_w
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.solver import Frontier
from perseus_ds.messages import PerseusError

__all__ = ["JobPower", "PowerCap"]

_ATTEMPTS = 40


@dataclass(frozen=True)
class PowerCap(Objective):
    """The fastest plan within an average power of the pipeline.

    Attributes:
        power_cap_w: The allowed power of one pipeline.
    """

    name: ClassVar[str] = "power_cap"
    key: ClassVar[str] = "power_cap_w"
    power_cap_w: float

    def target_time_s(self, frontier: Frontier) -> float:
        """Return the iteration time of a plan within the cap: slightly more than the bound's."""
        return self._found(frontier, frontier.plan)[0]

    def plan(self, frontier: Frontier, plan_at: Callable[[float], Plan] | None = None) -> Plan:
        """Return the fastest plan found within the cap; it is the last one made."""
        return self._found(frontier, plan_at or frontier.plan)[1]

    def closest_time_s(self, frontier: Frontier) -> float:
        """Return T*: its plan draws the least power."""
        return frontier.t_star_s

    def _found(self, frontier: Frontier, plan_at: Callable[[float], Plan]) -> tuple[float, Plan]:
        """Move from the bound's time towards T* until a plan meets the cap."""
        target_s = self._bound_time_s(frontier)
        plan = plan_at(target_s)
        for attempt in range(1, _ATTEMPTS + 1):
            if self._excess(plan, frontier) <= 0:
                return target_s, plan
            target_s += (frontier.t_star_s - target_s) * attempt / _ATTEMPTS
            plan = plan_at(target_s)
        raise self._too_low(average_power_w(plan))

    def _bound_time_s(self, frontier: Frontier) -> float:
        """Bisect: average power falls with the iteration time."""

        def power_w(time_s: float) -> float:
            return frontier.lower_bound_j(time_s) / time_s

        low, high = frontier.t_min_s, frontier.t_star_s
        if power_w(low) <= self.power_cap_w:
            return low
        if power_w(high) > self.power_cap_w:
            raise self._too_low(power_w(high))
        while high - low > ROUNDING * high:
            middle = (low + high) / 2
            low, high = (low, middle) if power_w(middle) <= self.power_cap_w else (middle, high)
        return high

    def _too_low(self, least_w: float) -> PerseusError:
        return PerseusError(
            "plan-infeasible",
            objective=self,
            detail=f"every plan draws {least_w:.6g} W or more",
            closest=PowerCap(math.ceil(least_w)),
        )

    def _excess(self, plan: Plan, frontier: Frontier) -> float:
        return average_power_w(plan) / self.power_cap_w - 1

    def _rank(self, plan: Plan) -> tuple[float, ...]:
        return (plan.time_s,)


@dataclass(frozen=True)
class JobPower(PowerCap):
    """The fastest plan within an average power of the whole job: the sum over its pipelines.

    Alone on one pipeline's frontier it is that pipeline's ``PowerCap``.
    """

    name: ClassVar[str] = "power"
    key: ClassVar[str] = "power_w"

    def per_pipeline(self, pipelines: int) -> PowerCap:
        """Return what equal pipelines may draw each."""
        return PowerCap(self.power_cap_w / pipelines)
