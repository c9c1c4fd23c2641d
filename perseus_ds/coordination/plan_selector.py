"""From what all ranks have agreed on to the plans in force. No communication: the same inputs, the same plans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.guard import ThroughputGuard
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.coordination.straggler import DriftWatch, StragglerTracker

__all__ = ["Heard", "PlanSelector"]


@dataclass(frozen=True)
class Heard:
    """What a round has changed.

    Attributes:
        condition: Somebody has become slow, or normal again.
        drift: Per stage, the factor on the profile's times that has become normal; None: the profile fits.
        caution: The throughput guard has taken a step.
    """

    condition: bool = False
    drift: np.ndarray | None = None
    caution: bool = False


class PlanSelector:
    """Chooses the plans.

    Args:
        config: The whole configuration.
        pipelines: Number of pipelines.
        stages: Number of stages per pipeline.

    Attributes:
        plans: The plan in force of each pipeline; empty before the first plan table.
    """

    def __init__(self, config: Config, pipelines: int, stages: int) -> None:
        self._tracker = StragglerTracker(config.straggler, pipelines, stages)
        self._drift = DriftWatch(config.straggler)
        self._guard = ThroughputGuard(config.max_slowdown)
        self._since = 0
        self.plans: tuple[FrequencyPlan, ...] = ()

    @property
    def slowdowns(self) -> np.ndarray:
        """The slowdowns acted on, array (pipelines, stages)."""
        return self._tracker.active

    @property
    def lasted(self) -> np.ndarray:
        """For how many iterations each stage had been slow when it was noticed, array (pipelines, stages)."""
        return self._tracker.lasted

    @property
    def caution(self) -> float:
        """The part of the way from the planned to the highest clock that the guard takes."""
        return self._guard.caution

    def adopt(self, table: PlanTable, iteration: int) -> None:
        """A plan table with new expectations comes into force: measurements count from this iteration on."""
        self._since = iteration
        self._tracker.restart()
        self._drift.restart()
        self._guard.step = 0
        self._guard.inflation = max(1.0, table.baseline_s / table.max_time_s)

    def heed(self, round_result: RoundResult) -> None:
        """Take in what was announced; before the first plan table it counts from that table on."""
        for pipeline, slowdown in round_result.hints.items():
            self._tracker.announce(pipeline, slowdown)

    def unplanned(self) -> None:
        """The iteration that begins has no plan: its time says nothing about one."""
        self._guard.restart()

    def hear(self, round_result: RoundResult, table: PlanTable) -> Heard:
        """Take in a round.

        Args:
            round_result: The round.
            table: The one in force.
        """
        if round_result.iteration < self._since:
            return Heard()
        condition = self._tracker.update(round_result.slowdowns, round_result.throttled)
        drift = self._drift.update(round_result.slowdowns)
        caution = False
        if (self.slowdowns > 1.0).any():
            self._guard.restart()
        elif self.plans:
            caution = self._guard.watch(
                round_result.iteration_time_s, max(plan.time_s for plan in self.plans), table.max_time_s
            )
        return Heard(condition, drift, caution)

    def choose(self, table: PlanTable) -> bool:
        """Look up everybody's plan; True when it has changed."""
        plans = table.choose(self.slowdowns)
        if plans == self.plans:
            return False
        self.plans = plans
        self._guard.restart()
        return True
