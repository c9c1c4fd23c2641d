"""Measures each refreshed baseline, and the plan's iterations around it, better than the counter alone can.

A counter that looks at a part of the time errs by per cents in one iteration; one that lags mixes two clocks. The
fitted powers correct both. The iterations just before and after a refresh ran on GPUs as warm as in the refresh.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.events import BaselineRefreshed
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.stage_report import pipeline_energies_j
from perseus_ds.messages import PerseusError
from perseus_ds.profiling.energy import Attribution
from perseus_ds.runtime.measurement import EnergyQuestion
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.worker_process import Call

__all__ = ["RefreshedBaseline"]

_AROUND = 8  # iterations on either side
_KNOWN_LATER = 2  # iterations until the times of one are known
_MOST_LAGGING = 4  # iterations that a counter may lag behind: later, the first ones are forgotten


class RefreshedBaseline:
    """One rank's part. Nothing here waits: the bus's thread does the work.

    Args:
        latency_s: From a clock request to the new clock.
        call: Makes the heavy calls.
    """

    def __init__(self, latency_s: float, call: Call) -> None:
        self._latency_s = latency_s
        self._call = call
        self._measured: deque[range] = deque()  # whose energies cannot be known yet
        self._coming: deque[tuple[range, Future[tuple[dict[int, float], float]]]] = deque()

    def begins(
        self,
        iteration: int,
        phase: Phase,
        table: PlanTable | None,
        bus: Bus,
        meter: RankMeter,
        found: Attribution | None,
    ) -> list[BaselineRefreshed]:
        """Begin an iteration, the same on all ranks: ask for the energies when they can be known.

        Args:
            iteration: Its number.
            phase: Its phase.
            table: Plans; None before the first.
            bus: To the other ranks.
            meter: Of this rank.
            found: This rank's profile; None if it has not profiled.

        Returns:
            What has arrived, once.
        """
        known = self._arrived()
        if table is None:
            return known
        if phase is Phase.BASELINE:
            goes_on = self._measured and self._measured[-1].stop == iteration
            first = self._measured.pop().start if goes_on else iteration
            self._measured.append(range(first, iteration + 1))
        lag = min(_MOST_LAGGING, math.ceil(table.counter_lag_s / table.max_time_s))
        if self._measured and iteration >= self._measured[0].stop + 1 + _AROUND + _KNOWN_LATER + 2 * lag:
            measured = self._measured.popleft()
            # One iteration before the refresh, and the first after it, is on the way between two clocks.
            # The counter shows the refresh for a while: after that as many again are needed as before it.
            around = range(measured.start - 1 - _AROUND, measured.stop + 1 + _AROUND + lag)
            question = meter.measurements.energy_question(around, meter.topology.stage)
            gathered = bus.gather(partial(self._energies_j, question, found, meter.gpu.counter_period_s))
            pipelines = meter.topology.pipelines
            told = bus.broadcast(lambda: _of_one_pipeline(gathered.result() or [], pipelines))
            self._coming.append((measured, told))
        return known

    def forget(self) -> None:
        """The ranks have lost each other: what was under way is lost."""
        self._measured.clear()
        self._coming.clear()

    def _arrived(self) -> list[BaselineRefreshed]:
        if not self._coming or not self._coming[0][1].done():
            return []
        measured, coming = self._coming.popleft()
        if coming.exception() is not None:  # whoever needs the bus more says so
            return []
        energies_j, sd_j = coming.result()
        return [BaselineRefreshed(measured, energies_j, sd_j)] if energies_j else []

    def _energies_j(
        self, question: EnergyQuestion, found: Attribution | None, usual_period_s: float
    ) -> tuple[dict[int, float], float]:
        """Return this rank's energies by iteration, and their doubt; none where the counter tells too little."""
        try:
            return question.answer(found, self._latency_s, self._call, usual_period_s)
        except PerseusError:
            return {}, 0.0


def _of_one_pipeline(ranks: Sequence[tuple[dict[int, float], float]], pipelines: int) -> tuple[dict[int, float], float]:
    """Return the energies of one pipeline, a mean over all, and their doubt: every GPU's counter errs by itself."""
    energies_j = pipeline_energies_j([one for one, _ in ranks], pipelines)
    return energies_j, math.hypot(*(sd_j for _, sd_j in ranks)) / pipelines
