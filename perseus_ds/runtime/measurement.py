"""The measurements of one rank's iterations: when they ran, which operations, how much energy."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from operator import attrgetter, itemgetter
from statistics import median
from typing import NamedTuple

import numpy as np

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.trace import StageTrace, TimedOperation
from perseus_ds.profiling.achieved import Reading
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.profiling.sizes import uneven_within
from perseus_ds.profiling.spans import Span, spans_of, with_requests
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.whole import WholeEnergies, whole_energies
from perseus_ds.worker_process import Call

__all__ = ["KEPT_ITERATIONS", "EnergyQuestion", "Measurements", "Work", "curve_key", "median_trace"]

KEPT_ITERATIONS = 48
"""Iterations kept once nothing is profiled any more: a refreshed baseline, and those before and after it.

An averaging counter still shows the work before them, which has to be known, too.
"""


_EXPECTED_LIKE = 3  # iterations that tell what the next one will be like
_TELLING = 4  # iterations that tell whether micro-batches differ
_SPLIT = 16  # iterations whose energy is split up


class Work(NamedTuple):
    """The work of some iterations, copied: training may go on while it is taken apart, which takes a while.

    Attributes:
        iterations: In order of time, with evaluations.
        requests: See ``Measurements``.
        stage: Pipeline stage.
    """

    iterations: Sequence[RecordedIteration]
    requests: Sequence[tuple[float, int]]
    stage: int

    def spans(self) -> list[Span]:
        """Return the work in order of time, with evaluation marked."""
        spans = [span for one in self.iterations for span in spans_of(one, self.stage)]
        return with_requests(spans, self.requests)


class EnergyQuestion(NamedTuple):
    """What the energies of some iterations follow from.

    Attributes:
        work: All that is known.
        samples: (monotonic seconds, joules) of the energy counter.
        bounds_s: Begin and end of each iteration that is known.
        readings: Of the SM clock, in order of time.
    """

    work: Work
    samples: list[tuple[float, float]]
    bounds_s: dict[int, tuple[float, float]]
    readings: list[Reading]

    def answer(
        self, found: Attribution | None, switch_latency_s: float, call: Call, usual_period_s: float = 0.0
    ) -> tuple[dict[int, float], float]:
        """Return the energies in joules by iteration, and the doubt of excursions; see ``WholeEnergies``.

        Args:
            found: See there.
            switch_latency_s: See there.
            call: Makes the heavy call.
            usual_period_s: See there.
        """
        bounds_s = list(self.bounds_s.values())
        asked = found, self.work.spans(), self.samples, bounds_s, switch_latency_s, self.readings, usual_period_s
        energies: WholeEnergies = call(whole_energies, *asked)
        return dict(zip(self.bounds_s, energies.iterations_j, strict=True)), energies.excursions_sd_j


class Measurements:
    """The measurements of one rank. Iterations are training iterations, without evaluation.

    Attributes:
        samples: Changed points (monotonic seconds, joules) of the energy counter.
        readings: Of the SM clock.
        requests: Clock requests, as (monotonic seconds, MHz) when the driver took them.
        shown_w: (monotonic seconds, watts) of each renewal of the power that the driver shows, while profiling.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = []
        self.readings: list[Reading] = []
        self.requests: list[tuple[float, int]] = []
        self.shown_w: list[tuple[float, float]] = []
        self._bounds_s: dict[int, tuple[float, float]] = {}
        self._recorded: dict[int, RecordedIteration] = {}
        self._begins: dict[int, tuple[tuple[int, ...], tuple[float, ...]]] = {}  # clocks and begins of instructions
        self._evaluations: list[RecordedIteration] = []

    def lasted(self, iteration: int, begin_s: float, end_s: float) -> None:
        """Record begin and end of an iteration, including the time up to the next one."""
        self._bounds_s[iteration] = (begin_s, end_s)

    def recorded(self, iteration: RecordedIteration) -> None:
        """Record the operations of a training iteration."""
        self._recorded[iteration.iteration] = iteration
        ran = iteration.instructions
        clocks_mhz, begins_s = tuple(one.frequency_mhz for one in ran), tuple(one.begin_s for one in ran)
        self._begins[iteration.iteration] = clocks_mhz, begins_s

    def evaluated(self, iteration: RecordedIteration) -> None:
        """Record the operations of an evaluation."""
        self._evaluations.append(iteration)

    def latest(self) -> RecordedIteration | None:
        """Return the newest training iteration with known operations."""
        return self._recorded[max(self._recorded)] if self._recorded else None

    def recent(self, count: int) -> list[RecordedIteration]:
        """Return the newest training iterations with known operations, at most ``count``, in order."""
        return [self._recorded[number] for number in sorted(self._recorded)[-count:]]

    def time_s(self, iteration: int) -> float:
        """Return the duration of an iteration in seconds; NaN when unknown."""
        begin_s, end_s = self._bounds_s.get(iteration, (0.0, float("nan")))
        return end_s - begin_s

    def energy_j(self, iteration: int) -> float:
        """Return an iteration's energy, interpolated from the counter; NaN until the counter has caught up."""
        bounds_s = self._bounds_s.get(iteration)
        if bounds_s is None or not self.samples or self.samples[-1][0] < bounds_s[1]:
            return float("nan")
        if self.samples[0][0] > bounds_s[0]:
            return float("nan")
        begin_j, end_j = map(self._counter_j, bounds_s)
        return end_j - begin_j

    def _counter_j(self, at_s: float) -> float:
        """Return the counter at a time between two of its points."""
        after = bisect_left(self.samples, at_s, lo=1, hi=len(self.samples) - 1, key=itemgetter(0))
        times_s, energies_j = zip(*self.samples[after - 1 : after + 1], strict=True)
        return float(np.interp(at_s, times_s, energies_j))

    def trace(self, iterations: Sequence[int], stage: int, pipeline: int) -> StageTrace:
        """Return the median trace of some iterations, without those ended by an exception."""
        whole = [iteration for iteration in iterations if iteration in self._recorded]
        time_s = median(self.time_s(iteration) for iteration in whole)
        return median_trace([self._recorded[iteration] for iteration in whole], time_s, stage, pipeline)

    def expected_begins_s(self, clocks: IterationClocks) -> Sequence[float]:
        """Return when the instructions of an iteration will begin, as in the latest ones with the same clocks.

        Args:
            clocks: Of the iteration.

        Returns:
            Median seconds from an iteration's begin; empty without such an iteration, or where nothing is to be asked
            for. All are 0 where each clock is asked for early.
        """
        if not (clocks.changes or clocks.rest_mhz):
            return ()
        if clocks.asks_early:
            return (0.0,) * len(clocks.planned_mhz)
        alike: list[tuple[float, ...]] = []
        # Where a power is followed, plans alternate: the latest alike need not be the latest.
        for number in sorted(self._begins, reverse=True)[:KEPT_ITERATIONS]:
            planned_mhz, begins_s = self._begins[number]
            if planned_mhz == clocks.planned_mhz and len(alike) < _EXPECTED_LIKE:
                alike.append(begins_s)
        return tuple(median(begins_s) for begins_s in zip(*alike, strict=True))

    def work(self, first: int, stage: int) -> Work:
        """Return the work of all iterations from ``first`` on, and of evaluations."""
        training = [iteration for number, iteration in tuple(self._recorded.items()) if number >= first]
        begin_s = min((iteration.begin_s for iteration in training), default=0.0)
        between = [iteration for iteration in self._evaluations if iteration.begin_s >= begin_s]
        in_order = sorted([*training, *between], key=lambda iteration: iteration.begin_s)
        return Work(in_order, list(self.requests), stage)

    def latest_work(self, stage: int) -> Work:
        """Return the work of the latest iterations since the last evaluation.

        Those that the energy counter has not come to yet are left out.
        """
        since_s = max((one.end_s for one in self._evaluations), default=-math.inf)
        until_s = self.samples[-1][0] if self.samples else -math.inf
        latest = [one for one in self._recorded.values() if since_s <= one.begin_s and one.end_s <= until_s]
        latest = sorted(latest, key=lambda one: one.begin_s)[-_SPLIT:]
        return Work(latest, list(self.requests), stage)

    def energy_question(self, iterations: Sequence[int], stage: int) -> EnergyQuestion:
        """Return what the energies of some iterations follow from. Earlier work tells what a counter still shows."""
        bounds_s = {number: self._bounds_s[number] for number in iterations if number in self._bounds_s}
        return EnergyQuestion(self.work(0, stage), list(self.samples), bounds_s, list(self.readings))

    def forget_before(self, iteration: int) -> None:
        """Drop old data: a training of weeks must not fill the memory."""
        for old in [number for number in self._recorded if number < iteration]:
            del self._recorded[old]
            self._begins.pop(old, None)
        for old in [number for number in self._bounds_s if number < iteration]:
            del self._bounds_s[old]
        if self._bounds_s:
            oldest_s = min(begin_s for begin_s, _ in self._bounds_s.values()) - 1.0
            self._evaluations = [iteration for iteration in self._evaluations if iteration.begin_s >= oldest_s]
            del self.samples[: bisect_left(self.samples, oldest_s, key=itemgetter(0))]
            del self.readings[: bisect_left(self.readings, oldest_s, key=attrgetter("time_s"))]
            del self.shown_w[: bisect_left(self.shown_w, oldest_s, key=itemgetter(0))]
            self.requests = [request for request in self.requests if request[0] >= oldest_s]


@cache
def curve_key(stage: int, operation: Operation) -> CurveKey:
    """Return the curve of a stage's instruction."""
    return CurveKey.of(Instruction.of(stage, operation))


def median_trace(
    iterations: Sequence[RecordedIteration], iteration_time_s: float, stage: int, pipeline: int
) -> StageTrace:
    """Return the trace with the median begins and ends of several iterations.

    Args:
        iterations: At least one; those with other operations than the last one are ignored.
        iteration_time_s: Copied into the trace.
        stage: Copied into the trace.
        pipeline: Copied into the trace.
    """
    last = iterations[-1]
    program = [timed.operation for timed in last.operations]
    same = [one for one in iterations if [timed.operation for timed in one.operations] == program]
    ran = [one.instructions for one in same]
    begins_s = np.median([[timed.begin_s for timed in one.operations] for one in same], axis=0)
    ends_s = np.median([[timed.end_s for timed in one.operations] for one in same], axis=0)
    operations = tuple(
        TimedOperation(timed.operation, float(begin_s), float(end_s), timed.frequency_mhz)
        for timed, begin_s, end_s in zip(last.operations, begins_s, ends_s, strict=True)
    )
    keys = [curve_key(stage, timed.operation) for timed in ran[-1]]
    sizes = _sizes(np.array([[timed.duration_s for timed in one] for one in ran]), keys)
    return StageTrace(stage, pipeline, iteration_time_s, operations, sizes)


def _sizes(durations_s: np.ndarray, keys: Sequence[CurveKey]) -> tuple[tuple[float, ...], ...]:
    """Return ``StageTrace.sizes`` of instructions that ran at one clock.

    Args:
        durations_s: By iteration and instruction.
        keys: Curve of each instruction.
    """
    if len(durations_s) < _TELLING or not uneven_within(durations_s / np.median(durations_s, axis=0)):
        return ()
    sizes = durations_s.copy()
    for key in set(keys):
        mine = [index for index, one in enumerate(keys) if one == key]
        sizes[:, mine] /= sizes[:, mine].mean()
    return tuple(map(tuple, sizes.tolist()))
