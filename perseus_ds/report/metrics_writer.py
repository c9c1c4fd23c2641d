"""The metrics of every iteration, from what all ranks have agreed on: the same on every rank that has a sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from perseus_ds.console import log
from perseus_ds.coordination.plan_table import FrequencyPlan
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.messages import user_message
from perseus_ds.report.metrics import Metrics, Sink, measured_values
from perseus_ds.report.run_stats import Phase

__all__ = ["MetricsWriter"]

# Iterations of the baseline that count; without a profile it never ends.
_KEPT = 256


class MetricsWriter:
    """Writes the metrics of one rank.

    Args:
        sinks: Where they go.
        pipelines: How many there are.
        baseline_j: Energy of one pipeline's iteration in the baseline of an earlier run that this one goes on from.
    """

    def __init__(self, sinks: Sequence[Sink], pipelines: int, baseline_j: float | None = None) -> None:
        self._metrics = Metrics(sinks, lambda detail: log.warning(user_message("metrics-not-written", detail=detail)))
        self._per_pipeline = 1 / pipelines
        self._baseline_j = baseline_j
        self._baseline: set[int] = set()
        self._energies_j: deque[float] = deque(maxlen=_KEPT)

    def iteration(self, iteration: int, phase: Phase) -> None:
        """An iteration begins."""
        if phase is Phase.BASELINE:
            self._baseline.add(iteration)

    def replanned(self, energy_ratio: float) -> None:
        """Iterations have become more, or less, work: the baseline is that much more."""
        if self._baseline_j is not None:
            self._baseline_j *= energy_ratio

    def round_result(self, round_result: RoundResult, plans: Sequence[FrequencyPlan], t_prime_s: float) -> None:
        """All ranks have spoken about an iteration.

        Args:
            round_result: What they said.
            plans: Those in force, one per pipeline; none at the highest clock.
            t_prime_s: Iteration time that the slowest pipeline can make; NaN when not known.
        """
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
                "plan_time_seconds": max((plan.time_s for plan in plans), default=0.0),
                "t_prime_seconds": t_prime_s,
            },
        )
