"""The whole job's time and power: what each iteration time costs with the plans that every rank holds.

All pipelines of a job move at one iteration time T, because training is synchronous. The job's power at T is the sum of
its pipelines' energies, waiting included, over T.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.frontier.power_signal import mean_within

__all__ = ["JobCurve", "JobTarget"]

_SAME = 1e-9


@dataclass(frozen=True)
class JobTarget:
    """One point of the curve.

    Attributes:
        time_s: Iteration time to ask the plan table for.
        energy_j: Predicted energy of all pipelines' iteration.
        power_w: Predicted power of the job.
        pipeline_power_w: Predicted power of the pipeline that draws most.
        met: Whether the objective is met; otherwise this is the closest point.
    """

    time_s: float
    energy_j: float
    power_w: float
    pipeline_power_w: float
    met: bool = True


class JobCurve:
    """The curve of a job in some condition; it satisfies ``TimeEnergyCurve``.

    Args:
        table: The plans that all ranks hold.
        slowdowns: Array (pipelines, stages).
    """

    def __init__(self, table: PlanTable, slowdowns: np.ndarray) -> None:
        self._table, self._slowdowns = table, slowdowns.copy()
        self._count = dict(Counter(table.conditions(slowdowns)))
        self.t_min_s = table.t_prime_s(slowdowns)

    def is_of(self, table: PlanTable, slowdowns: np.ndarray) -> bool:
        """Whether this is the curve of a table and a condition."""
        return table is self._table and np.array_equal(slowdowns, self._slowdowns)

    @cached_property
    def points(self) -> tuple[JobTarget, ...]:
        """All points, by increasing time."""
        held = [self._table.groups[number].plan_set(condition).all_points for number, condition in self._count]
        times_s = sorted({max(plan.time_s, self.t_min_s) for points in held for plan in points})
        return tuple(self.at(t_s) for t_s in times_s)

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Iteration times of the points."""
        return np.array([point.time_s for point in self.points])

    def at(self, t_s: float) -> JobTarget:
        """Return what an iteration time costs."""
        plans = self._table.chosen(self._count, self.t_min_s, t_s)
        end_s = max(self.t_min_s, *(plan.time_s for plan in plans.values()))
        energies_j = {
            which: plan.energy_j + self._table.groups[which[0]].waiting_w * (end_s - plan.time_s)
            for which, plan in plans.items()
        }
        energy_j = sum(count * energies_j[which] for which, count in self._count.items())
        return JobTarget(t_s, energy_j, energy_j / end_s, max(energies_j.values()) / end_s)

    def lower_bound_j(self, t_s: float) -> float:
        """Return the job's energy at an iteration time, linear between the points."""
        return float(np.interp(t_s, self.times_s, [point.energy_j for point in self.points]))

    def clamp(self, t_s: float) -> float:
        """Return the time, or the nearer end of the curve."""
        return min(max(t_s, self.t_min_s), self.points[-1].time_s)

    def time_within_s(self, power_w: float) -> float:
        """Return the iteration time, between the points, at which the job would draw a power.

        Args:
            power_w: The limit for the whole job.
        """
        return mean_within([(point.time_s, point.energy_j) for point in self.points], power_w).time_s

    def lacks(self, t_s: float, near: float) -> bool:
        """Whether no plan lies near to an iteration time along the frontier.

        Args:
            t_s: The iteration time.
            near: What counts as near, as a share of it.
        """
        times_s = self.times_s
        after = int(np.searchsorted(times_s, t_s))
        if not 0 < after < times_s.size or t_s > max(group.base.t_star_s for group in self._table.groups):
            return False
        return bool(min(t_s - times_s[after - 1], times_s[after] - t_s) > near * t_s)

    def fastest_within(self, power_w: float, whole_job: bool) -> JobTarget:
        """Return the fastest point within a power, else the one that draws least.

        Args:
            power_w: The limit.
            whole_job: It is for the sum of all pipelines, not for each.
        """

        def drawn_w(point: JobTarget) -> float:
            return point.power_w if whole_job else point.pipeline_power_w

        for point in self.points:
            if drawn_w(point) <= power_w * (1 + _SAME):
                return point
        return replace(min(self.points, key=drawn_w), met=False)
