"""Writes the metrics of every iteration from the agreed reports, alike on every rank with a sink."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

from perseus_ds.console import log
from perseus_ds.coordination.events import (
    BaselineRefreshed,
    EnergySplitKnown,
    Event,
    IterationBegan,
    ObjectiveChanged,
    PlansAdopted,
    RoundHeard,
)
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.frontier.power_objectives import JobPower
from perseus_ds.messages import user_message
from perseus_ds.profiling.breakdown import RankEnergy
from perseus_ds.report.metrics import Metrics, Sink, measured_values

__all__ = ["MetricsWriter"]

# Iterations of the baseline that count; without a profile it never ends.
_KEPT = 8  # so that the saving is one against now


class MetricsWriter:
    """Writes the metrics of one rank.

    Args:
        sinks: The destinations.
        pipelines: Number of pipelines.
        baseline_j: Baseline energy of one pipeline's iteration, from an earlier run that this one resumes.
    """

    def __init__(self, sinks: Sequence[Sink], pipelines: int, baseline_j: float | None = None) -> None:
        self._metrics = Metrics(sinks, lambda detail: log.warning(user_message("metrics-not-written", detail=detail)))
        self._per_pipeline = 1 / pipelines
        self._target_w, self._before_s = 0.0, math.nan
        self._baseline_j = baseline_j
        self._planned = False
        self._baseline: set[int] = set()  # before there are plans
        self._energies_j: deque[float] = deque(maxlen=_KEPT)
        self._by_kind: dict[str, float] = {}
        self._ranks: Sequence[RankEnergy] = ()

    def __call__(self, event: Event) -> None:
        """Handle an event."""
        self._planned |= isinstance(event, PlansAdopted)
        match event:
            case IterationBegan(iteration=iteration, phase=Phase.BASELINE) if not self._planned:
                self._baseline.add(iteration)
            case BaselineRefreshed(iterations=iterations, energies_j=energies_j):
                self._energies_j.extend(energies_j[number] for number in iterations if number in energies_j)
                self._baseline_j = median(self._energies_j) if self._energies_j else self._baseline_j
            case PlansAdopted(table=PlanTable(baseline_energies_j=energies_j), replaced=None) if energies_j:
                self._energies_j.clear()
                self._energies_j.extend(energies_j.values())
                self._baseline_j = median(self._energies_j)
            case PlansAdopted(table=table, replaced=PlanTable() as replaced) if self._baseline_j is not None:
                # Iterations have become more, or less, work: the baseline is that much more.
                self._baseline_j *= table.max_energy_j / replaced.max_energy_j
                self._energies_j.clear()
            case ObjectiveChanged(objective=objective):
                self._target_w = objective.power_cap_w if isinstance(objective, JobPower) else 0.0
            case EnergySplitKnown(told=ranks, energies_j=energies_j):
                self._ranks = ranks
                self._by_kind = {f"{kind}_energy_joules": energy_j for kind, energy_j in energies_j.items()}
            case RoundHeard():
                self._round_heard(event)
            case _:
                pass

    def _round_heard(self, event: RoundHeard) -> None:
        round_result = event.round_result
        energy_j, before = round_result.pipeline_energy_j, round_result.iteration - 1
        if before in self._baseline:
            self._baseline.remove(before)
            if energy_j == energy_j:
                self._energies_j.append(energy_j)
                self._baseline_j = median(self._energies_j)
        switches = float(round_result.field("switches").sum()) * self._per_pipeline
        self._metrics.write(
            round_result.iteration,
            {
                **measured_values(round_result, switches, self._baseline_j),
                "power_watts": energy_j / self._per_pipeline / self._before_s,
                "power_target_watts": self._target_w,
                "plan_time_seconds": max((plan.time_s for plan in event.plans), default=0.0),
                "t_prime_seconds": event.t_prime_s,
                **self._by_kind,
            },
            self._ranks,
        )
        self._before_s = round_result.iteration_time_s
