"""Sets the clocks of one rank's iterations, and measures their operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.stage_condition import Health, Timed, health
from perseus_ds.frontier.waiting import rests_until_s
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.profiling.recorder import Recorder
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.runtime.late_clocks import late_switches, ran_at_earlier, share_at_clock, times_at_clock
from perseus_ds.runtime.measurement import KEPT_ITERATIONS, Measurements, curve_key
from perseus_ds.runtime.rank_gpu import RankGpu

__all__ = ["RankMeter"]

_OF_A_REST = 2  # switches
_TELL_OF_CLOCKS = 3  # iterations
_SUSPECT = 1.01  # times as long as expected: up to that, late clocks have nothing to excuse
_AS_SLOW = 0.03  # so much may a slow GPU's slowdown differ from what was told last


class RankMeter:
    """One rank's stopwatch and energy meter. Its methods never wait for the GPU.

    Args:
        gpu: Its GPU, clock keeper and timer.
        topology: Position of this rank.

    Attributes:
        gpu: As given.
        topology: As given.
        measurements: All measurements so far.
        switches: Clock switches requested in the latest iteration.
        late_switches: Late ones among those read by the latest ``collect``: they came after their instruction began.
        share_at_clock: Of the latest iteration read: the median share of an instruction's time at its planned clock.
    """

    def __init__(self, gpu: RankGpu, topology: Topology) -> None:
        self.gpu = gpu
        self.topology = topology
        self.measurements = Measurements()
        self.switches = 0
        self.late_switches = 0
        self.share_at_clock = math.nan
        frequencies = FrequencyController(gpu.set_mhz, gpu.latency_s)
        self._recorder = Recorder(
            gpu.timer, frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began
        )
        self._training: tuple[int, float] | None = None  # number and begin of the training iteration that lasts
        self._told = -1  # iteration of the latest health
        self._told_slowdown = 1.0

    def iteration_over(self, now_s: float) -> None:
        """Close the current iteration, if any: the next one, or an evaluation, begins."""
        if self._training is not None:
            number, begin_s = self._training
            self.measurements.lasted(number, begin_s, now_s)
            self._training = None

    def evaluation_begins(self) -> None:
        """Begin an evaluation or other unplanned work at the default clocks."""
        self.gpu.iteration_begins(None)
        self._recorder.iteration_begin(self.gpu.default_clocks)

    def iteration_begins(
        self,
        number: int,
        begin_s: float,
        clocks: IterationClocks,
        planned_begins_s: Callable[[], Sequence[float]] = tuple,
    ) -> None:
        """Begin a training iteration; its clocks are requested as the device reaches them.

        Args:
            number: Counted from 0.
            begin_s: On ``time.monotonic()``.
            clocks: Planned clocks.
            planned_begins_s: Tells when its instructions begin, counted from its own begin; asked where no iteration
                has had these clocks yet.
        """
        self._training = (number, begin_s)
        known_s = self.measurements.expected_begins_s(clocks)
        until_s = self._rests_until_s(clocks, known_s[0]) if known_s and clocks.rest_mhz else 0.0
        self.switches = clocks.switches + (_OF_A_REST if until_s else 0)
        self._recorder.iteration_begin(clocks, number, known_s or planned_begins_s(), until_s)

    def _rests_until_s(self, clocks: IterationClocks, wait_s: float) -> float:
        """Return when to ask for the first clock, from the iteration's begin; 0: no rest."""
        latency_s = max(self.gpu.latency_s(mhz) for mhz in (clocks.of(0), clocks.rest_mhz))
        return rests_until_s(wait_s, latency_s) if clocks.rest_mhz < clocks.of(0) else 0.0

    def operation_begin(self, operation: Operation) -> None:
        """Mark the operation's begin."""
        self._recorder.operation_begin(operation)
        self.gpu.operation_begin(operation)

    def operation_end(self, operation: Operation) -> None:
        """Mark the operation's end; the next clock is requested once the device reaches it."""
        self.gpu.operation_end(operation)
        self._recorder.operation_end(operation)

    def iteration_end(self) -> None:
        """Mark the schedule's end."""
        self._recorder.iteration_end()
        self.gpu.iteration_ends()

    def collect(self) -> None:
        """Read the measurements since the last call.

        Raises:
            PerseusError: Whole iterations pass without an instruction.
        """
        self.measurements.samples += self.gpu.drain_samples()
        self.measurements.readings += self.gpu.readings
        self.measurements.requests += self.gpu.requests
        self.measurements.shown_w += self.gpu.shown_w
        self.late_switches = 0
        for finished in self._recorder.finished():
            if finished.training:
                self.measurements.recorded(finished)
                self.late_switches += late_switches(finished, self.gpu.latency_s)
                self.share_at_clock = share_at_clock(finished, self.gpu.latency_s)
            else:
                self.measurements.evaluated(finished)
        if (latest := self.measurements.latest()) and not latest.instructions:
            raise PerseusError("hooks-silent", framework=self.topology.framework)

    def forget(self, iteration: int) -> None:
        """Drop data too old to be requested in an iteration."""
        self.measurements.forget_before(iteration - KEPT_ITERATIONS)

    def health(self, table: PlanTable | None) -> Health:
        """Return how the latest iteration went compared with the profile; before the first plan table, as expected.

        An iteration is told of once: NaN while there is no newer one. Clocks that came far too late are no slow GPU,
        unless they did in the iteration before, too, or the GPU seems as slow as was told last: a new plan moves the
        instructions that look so.
        """
        recent = self.measurements.recent(_TELL_OF_CLOCKS)
        if table is None or not recent:
            return Health()
        latest = recent[-1]
        if latest.iteration == self._told:
            return Health(math.nan)
        self._told = latest.iteration
        stage, group = self.topology.stage, table.of(self.topology.pipeline)

        def expected_s(operation: Operation, mhz: int) -> float:
            return group.expected_s(curve_key(stage, operation), mhz)

        def told(ran: Sequence[Timed]) -> Health:
            seen = self.gpu.held_mhz, self.gpu.capped_mhz, group.microbatch_spread
            return health(ran, group.expected_times_s, *seen)

        times_s = times_at_clock(latest, self.gpu.latency_s, expected_s)
        ran = [
            Timed(curve_key(stage, timed.operation), timed.frequency_mhz, time_s)
            for timed, time_s in zip(latest.instructions, times_s, strict=True)
        ]
        found = told(ran)
        as_slow = self._told_slowdown > _SUSPECT and abs(found.slowdown / self._told_slowdown - 1.0) <= _AS_SLOW
        if not (self.gpu.held_mhz or found.slowdown <= _SUSPECT or as_slow):
            *_, before, late = (frozenset(), *ran_at_earlier(recent, expected_s))
            for index in late - before:
                one = latest.instructions[index]
                ran[index] = ran[index]._replace(time_s=expected_s(one.operation, one.frequency_mhz))
            found = told(ran)
        self._told_slowdown = found.slowdown
        return found
