"""The plans of one pipeline in one condition, as the ranks hold them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.instruction import Instruction

__all__ = ["FrequencyPlan", "PlanSet", "StageSlowdowns"]

StageSlowdowns = tuple[float, ...]
"""Condition of each stage of a pipeline; see ``stage_condition``."""

StageClocks = Mapping[Operation, int]
"""SM clock by instruction, in the stage's program order."""

StageAims = Mapping[Operation, float]
"""Seconds by instruction, of some of a stage's."""


@dataclass(frozen=True)
class FrequencyPlan:
    """One plan of the frontier, as the ranks need it.

    Attributes:
        time_s: Predicted iteration time.
        energy_j: Predicted energy of one pipeline's iteration.
        lower_bound_j: No equally fast plan uses less.
        clocks_mhz: Per stage, SM clock by instruction, in program order.
        switches: Clock switches per iteration, over all stages.
        switch_jitter_s: Jitter of clocks that ``time_s`` and ``energy_j`` are expected values for.
        deviation_s: Standard deviation of the iteration time where micro-batches differ, else 0.
        rest_mhz: SM clock in a long wait before an iteration's first instruction; 0: nobody rests.
        aims_s: Per stage, how long after an instruction's begin its clock is to come, where that is not at the begin.
    """

    time_s: float
    energy_j: float
    lower_bound_j: float
    clocks_mhz: tuple[StageClocks, ...]
    switches: int
    switch_jitter_s: float = 0.0
    deviation_s: float = 0.0
    rest_mhz: int = 0
    aims_s: tuple[StageAims, ...] = ()

    def aims_of(self, stage: int) -> tuple[float, ...]:
        """Return how long after each instruction of a stage begins its clock is to come, in program order.

        Args:
            stage: The stage.

        Returns:
            Seconds, negative for before the begin; empty where all clocks are to come at the begins.
        """
        if not self.aims_s:
            return ()
        return tuple(self.aims_s[stage].get(operation, 0.0) for operation in self.clocks_mhz[stage])

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``plan.json``: rows as of ``Instruction.to_row``, and aims in the same order."""
        rows = [
            Instruction.of(stage, operation).to_row(mhz)
            for stage, clocks in enumerate(self.clocks_mhz)
            for operation, mhz in clocks.items()
        ]
        aims_s = [aim_s for stage in range(len(self.clocks_mhz)) for aim_s in self.aims_of(stage)]
        names = ("time_s", "energy_j", "lower_bound_j", "switches", "switch_jitter_s", "deviation_s", "rest_mhz")
        return {**{name: getattr(self, name) for name in names}, "frequency_mhz": rows, "aims_s": aims_s}


@dataclass(frozen=True)
class PlanSet:
    """The frontier of one pipeline in one condition.

    Attributes:
        slowdowns: Per stage, its condition; all 1 for a healthy pipeline.
        t_min_s: Fastest iteration time.
        t_star_s: Iteration time of least energy.
        t_objective_s: Iteration time for the user's objective.
        points: Plans by increasing time, from T_min to T*.
        beyond: Plans by increasing time, slower than T*, for less power at more energy.
    """

    slowdowns: StageSlowdowns
    t_min_s: float
    t_star_s: float
    t_objective_s: float
    points: tuple[FrequencyPlan, ...]
    beyond: tuple[FrequencyPlan, ...] = ()

    @cached_property
    def all_points(self) -> tuple[FrequencyPlan, ...]:
        """All plans by increasing time. Up to T* no plan is there for its power: whoever waits would pay for it."""
        end_s = max(self.t_star_s, self.points[-1].time_s)
        return self.points + tuple(plan for plan in self.beyond if plan.time_s > end_s)

    def t_opt_s(self, t_prime_s: float, ordered_s: float | None = None) -> float:
        """Return min(T*, max(T', T_min, the objective's T)), in seconds (paper section 3.2).

        Args:
            t_prime_s: Shortest iteration time of the slowest pipeline.
            ordered_s: The objective's T where an order has replaced the configured one.
        """
        t_objective_s = self.t_objective_s if ordered_s is None else ordered_s
        return min(max(t_prime_s, t_objective_s, self.t_min_s), max(self.t_star_s, t_objective_s))

    def point(self, t_s: float) -> FrequencyPlan:
        """Return the slowest plan within ``t_s``, else the fastest one."""
        index = bisect_right(self.all_points, t_s * (1 + 1e-9), key=lambda point: point.time_s)
        return self.all_points[max(index - 1, 0)]
