"""Finds the iteration time for an objective that was ordered while the job runs. Equal on all ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.coordination.job_curve import JobCurve, JobTarget
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.frontier.objectives import Objective, TimeObjective
from perseus_ds.frontier.power_objectives import JobPower, PowerCap
from perseus_ds.messages import PerseusError

__all__ = ["ObjectiveFollower"]


class ObjectiveFollower:
    """Follows the latest order, or a configured power of the job, which no plan table has the time for.

    Args:
        configured: The configured objective.
    """

    def __init__(self, configured: Objective | None = None) -> None:
        self._configured = configured if isinstance(configured, JobPower) else None
        self._ordered: Objective | None = None
        self._curve: JobCurve | None = None

    @property
    def objective(self) -> Objective | None:
        """The objective in force; None: the configured one, whose time is in the plan table."""
        return self._configured if self._ordered is None else self._ordered

    def pursue(self, ordered: Objective | None) -> None:
        """Take an order; None: the configured objective again."""
        self._ordered = ordered

    @property
    def power_w(self) -> float | None:
        """The power that the whole job may draw; None: any."""
        return self.objective.power_cap_w if isinstance(self.objective, JobPower) else None

    def curve(self, table: PlanTable, slowdowns: np.ndarray) -> JobCurve:
        """Return the job's curve.

        Args:
            table: The current table.
            slowdowns: Array (pipelines, stages).
        """
        if self._curve is None or not self._curve.is_of(table, slowdowns):
            self._curve = JobCurve(table, slowdowns)
        return self._curve

    def target(self, table: PlanTable, slowdowns: np.ndarray) -> JobTarget | None:
        """Return the point of the job's curve that the order asks for, or the closest; None without an order.

        Args:
            table: The current table.
            slowdowns: Array (pipelines, stages).
        """
        if (objective := self.objective) is None:
            return None
        curve = self.curve(table, slowdowns)
        if isinstance(objective, PowerCap):
            return curve.fastest_within(objective.power_cap_w, isinstance(objective, JobPower))
        assert isinstance(objective, TimeObjective), "limits either power or time"
        try:
            return curve.at(objective.target_time_s(curve))
        except PerseusError:  # faster than the job can be
            return replace(curve.at(curve.t_min_s), met=False)
