"""Stragglers from their onset until all ranks have returned, as ``summary.json`` holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perseus_ds.coordination.events import PlanSwitched, StragglerChanged
from perseus_ds.coordination.stage_condition import ceiling_mhz

__all__ = ["StragglerRecord", "StragglerRecords", "described"]


@dataclass
class StragglerRecord:
    """One straggler from its onset until all ranks have returned; None for times still to come."""

    pipeline: int
    stage: int
    slowdown: float | None
    onset_iteration: int
    ceiling_mhz: int | None = None
    switched_iteration: int | None = None
    t_prime_s: float | None = None
    t_opt_s: float | None = None
    recovered_iteration: int | None = None
    returned_iteration: int | None = None

    def given(self) -> dict[str, Any]:
        """Return what is known of it."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass
class StragglerRecords:
    """The stragglers of a job.

    Attributes:
        records: In order of onset.
    """

    records: list[StragglerRecord] = field(default_factory=list)

    def changed(
        self, change: StragglerChanged, recovery_iterations: int
    ) -> tuple[list[StragglerRecord], list[StragglerRecord]]:
        """Record stages that have become slow, or normal again.

        Args:
            change: The state of all stages.
            recovery_iterations: Normal iterations before a recovery counts.

        Returns:
            The records that begin, and those that end.
        """
        begun, ended = [], []
        lasting = [record for record in self.records if record.recovered_iteration is None]
        known = {(record.pipeline, record.stage) for record in lasting}
        for pipeline, slowdowns in enumerate(change.slowdowns):
            for stage, slowdown in enumerate(slowdowns):
                if slowdown != 1.0 and (pipeline, stage) not in known:
                    onset = max(change.seen_iteration - change.lasted[pipeline][stage] + 1, 0)
                    held_mhz = ceiling_mhz(slowdown)
                    factor = slowdown if held_mhz is None else None
                    record = StragglerRecord(pipeline, stage, factor, onset, held_mhz, t_prime_s=change.t_prime_s)
                    begun.append(record)
        for record in lasting:
            if change.slowdowns[record.pipeline][record.stage] == 1.0:
                record.recovered_iteration = max(change.seen_iteration - recovery_iterations + 1, 0)
                ended.append(record)
        self.records += begun
        return begun, ended

    def switched(self, switch: PlanSwitched) -> None:
        """Record when all ranks have responded to the stragglers, and when they have returned."""
        for record in self.records:
            if record.recovered_iteration is not None and record.returned_iteration is None:
                record.returned_iteration = switch.iteration
            elif record.recovered_iteration is None and record.switched_iteration is None:
                record.switched_iteration = switch.iteration
                record.t_opt_s = max(plan.time_s for plan in switch.plans)


def described(condition: float) -> float | str:
    """Return a stage's slowdown, or its ceiling."""
    held_mhz = ceiling_mhz(condition)
    return condition if held_mhz is None else f"{held_mhz} MHz"
