"""Objectives: each one determines a target iteration time on a frontier, and a plan.

Those with a limit on time are here, those with a limit on power in ``power_objectives``, their written forms in
``objective_forms``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.solver import Frontier
from perseus_ds.messages import PerseusError

__all__ = [
    "ROUNDING",
    "Deadline",
    "MinEnergy",
    "MinTime",
    "Objective",
    "Slowdown",
    "TimeEnergyCurve",
    "TimeObjective",
    "average_power_w",
]

ROUNDING = 1e-9
"""Relative difference that means nothing: that of sums of floats in another order."""


class TimeEnergyCurve(Protocol):
    """What an objective needs to know: a ``Frontier``, or the plans that a job holds."""

    @property
    def t_min_s(self) -> float:
        """The fastest iteration time."""
        ...

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Iteration times between which energies are linear."""
        ...

    def lower_bound_j(self, t_s: float) -> float:
        """Return the least energy within an iteration time."""
        ...

    def clamp(self, t_s: float) -> float:
        """Return the time, or the nearer end of the curve."""
        ...


@dataclass(frozen=True)
class Objective(ABC):
    """An optimisation goal.

    Attributes:
        name: The objective's name in text.
        key: Its key in the configuration and in JSON.
    """

    name: ClassVar[str]
    key: ClassVar[str]

    def __str__(self) -> str:
        return "=".join((self.name, *(f"{value:g}" for value in astuple(self))))

    def to_json(self) -> dict[str, Any]:
        """Return the configuration's mapping."""
        return {self.key: next(iter(astuple(self)), True)}

    @abstractmethod
    def target_time_s(self, frontier: Frontier) -> float:
        """Return the iteration time to plan for.

        Raises:
            PerseusError: The objective cannot be met; the message names the closest possible one.
        """

    def plan(self, frontier: Frontier, plan_at: Callable[[float], Plan] | None = None) -> Plan:
        """Return the plan for the objective.

        Args:
            frontier: The pipeline's.
            plan_at: Makes the plan for an iteration time; default: ``frontier.plan``.

        Raises:
            PerseusError: The objective cannot be met; the message names the closest possible one.
        """
        return (plan_at or frontier.plan)(self.target_time_s(frontier))

    def closest_time_s(self, frontier: Frontier) -> float:
        """Return the iteration time nearest to an objective that cannot be met."""
        return frontier.t_min_s

    def best_of(self, plans: Sequence[Plan], frontier: Frontier, planner: str) -> Plan:
        """Return the best plan among those of another planner.

        Args:
            plans: At least one.
            frontier: Reference for relative objectives.
            planner: The planner's name, for the message.

        Raises:
            PerseusError: None of them meets the objective; the message names the closest.
        """
        fitting = [plan for plan in plans if self._excess(plan, frontier) <= ROUNDING]
        if fitting:
            return min(fitting, key=self._rank)
        closest = min(plans, key=lambda plan: self._excess(plan, frontier))
        raise PerseusError(
            "plan-infeasible",
            objective=self,
            detail=f"planner {planner} has no such plan",
            closest=f"{closest.time_s:.6g} s, {average_power_w(closest):.6g} W",
        )

    def _excess(self, plan: Plan, frontier: Frontier) -> float:
        """Return the share by which a plan exceeds the objective's limit; at most 0 within the limit."""
        return 0.0

    def _rank(self, plan: Plan) -> tuple[float, ...]:
        """Return the quantity to minimise among plans within the limit."""
        return (plan.energy_j,)


@dataclass(frozen=True)
class TimeObjective(Objective):
    """An objective whose iteration time follows from the curve alone."""

    @abstractmethod
    def target_time_s(self, frontier: TimeEnergyCurve) -> float:
        """See ``Objective``; any curve will do."""


@dataclass(frozen=True)
class MinTime(TimeObjective):
    """As fast as the fastest plan."""

    name: ClassVar[str] = "min_time"
    key: ClassVar[str] = "min_time"

    def target_time_s(self, frontier: TimeEnergyCurve) -> float:
        """Return T_min."""
        return frontier.t_min_s

    def _rank(self, plan: Plan) -> tuple[float, ...]:
        return plan.time_s, plan.energy_j


@dataclass(frozen=True)
class MinEnergy(TimeObjective):
    """Least energy at any iteration time."""

    name: ClassVar[str] = "min_energy"
    key: ClassVar[str] = "min_energy"

    def target_time_s(self, frontier: TimeEnergyCurve) -> float:
        """Return the iteration time with the least lower bound."""
        energies = [frontier.lower_bound_j(float(time)) for time in frontier.times_s]
        return frontier.clamp(float(frontier.times_s[int(np.argmin(energies))]))


@dataclass(frozen=True)
class _TimeLimit(TimeObjective):
    """Least energy within a limit on the iteration time."""

    @abstractmethod
    def limit_s(self, frontier: TimeEnergyCurve) -> float:
        """Return the allowed iteration time, in seconds."""

    def target_time_s(self, frontier: TimeEnergyCurve) -> float:
        """Return the limit, or a shorter time if that needs less energy."""
        limit, fastest = self.limit_s(frontier), frontier.t_min_s
        if limit < fastest * (1 - ROUNDING):
            raise PerseusError(
                "plan-infeasible",
                objective=self,
                detail=f"no plan is faster than {fastest:.6g} s",
                closest=Deadline(fastest),
            )
        return max(fastest, min(limit, MinEnergy().target_time_s(frontier)))

    def _excess(self, plan: Plan, frontier: Frontier) -> float:
        return plan.time_s / self.target_time_s(frontier) - 1


@dataclass(frozen=True)
class Slowdown(_TimeLimit):
    """Least energy within a multiple of the fastest iteration time.

    Attributes:
        factor: Of T_min.
    """

    name: ClassVar[str] = "slowdown"
    key: ClassVar[str] = "slowdown"
    factor: float

    def limit_s(self, frontier: TimeEnergyCurve) -> float:
        """Return the factor times T_min."""
        return self.factor * frontier.t_min_s


@dataclass(frozen=True)
class Deadline(_TimeLimit):
    """Least energy within an iteration time.

    Attributes:
        deadline_s: The allowed iteration time.
    """

    name: ClassVar[str] = "deadline"
    key: ClassVar[str] = "deadline_s"
    deadline_s: float

    def limit_s(self, frontier: TimeEnergyCurve) -> float:
        """Return the deadline; it does not depend on the frontier."""
        return self.deadline_s


def average_power_w(plan: Plan) -> float:
    """Return a plan's average power, in watts."""
    return plan.energy_j / plan.time_s
