"""What to optimise for: the iteration time on the frontier that an objective asks for, and its plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.solver import Frontier
from perseus_ds.messages import PerseusError

__all__ = ["Objective", "parse_objective", "plan_for", "target_time_s"]

ObjectiveName = Literal["min_time", "slowdown", "deadline", "min_energy", "power_cap"]
_WITH_VALUE: tuple[ObjectiveName, ...] = ("slowdown", "deadline", "power_cap")
_WITHOUT: tuple[ObjectiveName, ...] = ("min_time", "min_energy")
_ATTEMPTS = 40


@dataclass(frozen=True)
class Objective:
    """An objective and its value.

    Attributes:
        name: ``min_time``: no slower than the fastest. ``slowdown``: at most ``value`` times that.
            ``deadline``: at most ``value`` seconds. ``min_energy``: whatever time takes least energy.
            ``power_cap``: the fastest whose pipeline draws ``value`` watts at most, averaged over the iteration.
        value: See ``name``; unused otherwise.
    """

    name: ObjectiveName = "min_time"
    value: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}={self.value:g}" if self.name in _WITH_VALUE else self.name


def parse_objective(text: str) -> Objective:
    """Read ``min_time``, ``min_energy``, ``slowdown=1.03``, ``deadline=2.5`` or ``power_cap=2000``.

    Raises:
        PerseusError: It is none of these.
    """
    name, _, value = text.partition("=")
    for known in _WITHOUT:
        if text == known:
            return Objective(known)
    for known in _WITH_VALUE:
        if name == known:
            try:
                number = float(value)
            except ValueError:
                break
            if math.isfinite(number) and number > 0:
                return Objective(known, number)
    allowed = "min_time, min_energy, slowdown=FACTOR, deadline=SECONDS, power_cap=WATTS"
    raise PerseusError("plan-bad-value", name="objective", value=repr(text), allowed=allowed)


def target_time_s(frontier: Frontier, objective: Objective) -> float:
    """Return the iteration time to plan for.

    For ``power_cap`` it is where the lower bound meets the cap; a plan's power lies its gap above.

    Raises:
        PerseusError: The objective cannot be met; the message tells the closest that can.
    """
    fastest = frontier.t_min_s
    thriftiest = _least_energy_time_s(frontier)
    if objective.name == "min_time":
        return fastest
    if objective.name == "min_energy":
        return thriftiest
    if objective.name == "power_cap":
        return _time_at_power(frontier, objective)
    limit = objective.value if objective.name == "deadline" else objective.value * fastest
    if limit < fastest * (1 - 1e-9):
        raise PerseusError(
            "plan-infeasible",
            objective=objective,
            detail=f"no plan is faster than {fastest:.6g} s",
            closest=f"deadline={fastest:.6g}",
        )
    return max(fastest, min(limit, thriftiest))


def plan_for(frontier: Frontier, objective: Objective) -> Plan:
    """Return the plan of an objective.

    Raises:
        PerseusError: The objective cannot be met; the message tells the closest that can.
    """
    target = target_time_s(frontier, objective)
    plan = frontier.plan(target)
    if objective.name != "power_cap":
        return plan
    for attempt in range(1, _ATTEMPTS + 1):
        if plan.energy_j <= objective.value * plan.time_s:
            return plan
        target += (frontier.t_star_s - target) * attempt / _ATTEMPTS
        plan = frontier.plan(target)
    raise _too_low(objective, plan.energy_j / plan.time_s)


def _least_energy_time_s(frontier: Frontier) -> float:
    energies = [frontier.lower_bound_j(float(time)) for time in frontier.times_s]
    return frontier.clamp(float(frontier.times_s[int(np.argmin(energies))]))


def _time_at_power(frontier: Frontier, objective: Objective) -> float:
    """Bisect: average power falls as the iteration gets longer."""
    low, high = frontier.t_min_s, frontier.t_star_s
    if frontier.lower_bound_j(low) <= objective.value * low:
        return low
    if frontier.lower_bound_j(high) > objective.value * high:
        raise _too_low(objective, frontier.lower_bound_j(high) / high)
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if frontier.lower_bound_j(middle) <= objective.value * middle:
            high = middle
        else:
            low = middle
    return high


def _too_low(objective: Objective, least_w: float) -> PerseusError:
    return PerseusError(
        "plan-infeasible",
        objective=objective,
        detail=f"every plan draws {least_w:.6g} W or more",
        closest=f"power_cap={math.ceil(least_w)}",
    )
