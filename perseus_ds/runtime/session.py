"""One rank's life under Perseus: warm up, measure the baseline, profile, plan, enforce, and replan.

Every decision is taken at the begin of an iteration from what all ranks have agreed on, so that all ranks
take it at the same iteration. What was measured in iteration i is posted at the begin of i + 1 and acted on
at the begin of i + 2: the bus has a whole iteration to do its work.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.control import ControlFile
from perseus_ds.coordination.guard import cautious_mhz
from perseus_ds.coordination.plan_table import PlanTable
from perseus_ds.coordination.rounds import RankStatus, RoundResult
from perseus_ds.coordination.straggler import stage_slowdown
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.recorder import RecordedIteration, Recorder
from perseus_ds.profiling.timers import late_switches
from perseus_ds.report.metrics_writer import MetricsWriter
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.run_stats import Phase
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.runtime.measurement import Measurements, curve_key, instructions_of
from perseus_ds.runtime.phase_controller import PhaseController
from perseus_ds.runtime.profiler import Profiler
from perseus_ds.runtime.rank_gpu import RankGpu

__all__ = ["RankSession"]

# Iterations kept once nothing is profiled any more: enough for the energy counter to catch up.
_REMEMBERED = 16


class RankSession:
    """One rank from its first iteration on.

    Its methods are called on the trainer's thread and never wait for the GPU.

    Args:
        config: The whole configuration, the same on all ranks.
        topology: Where this rank stands.
        bus: Its end of the control bus.
        rank_gpu: Its GPU, clock keeper and timer.
        phases: Decides.
        switch_latency_s: From a clock request to the new clock on the slowest GPU that shares this one's instructions.
        run_recorder: On the coordinating rank, who writes.
        control: On the coordinating rank, the operators' control file.
        meter: On ranks that write metrics, what writes them.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        bus: Bus,
        rank_gpu: RankGpu,
        phases: PhaseController,
        switch_latency_s: float,
        run_recorder: RunRecorder | None,
        control: ControlFile | None = None,
        meter: MetricsWriter | None = None,
    ) -> None:
        self._config = config
        self._topology = topology
        self._bus = bus
        self._gpu = rank_gpu
        self._phases = phases
        self._switch_latency_s = switch_latency_s
        self._run_recorder = run_recorder
        self._frequencies = FrequencyController(rank_gpu.set_mhz)
        self._recorder = Recorder(rank_gpu.timer, self._frequencies.instruction_ended)
        self._measurements = Measurements()
        self._iteration = -1
        self._begin_s: float | None = None
        self._round: Future[np.ndarray] | None = None
        self._order: list[Operation] = []
        self._switches = 0
        self._late_switches = 0
        self._under_way: deque[tuple[int, Mapping[int, float]]] = deque()
        self._open = False
        self._control = control
        self._metrics_writer = meter
        self._announcements: deque[tuple[int, float]] = deque()
        self._waited_s = 0.0
        self._least_iteration_s = math.inf

    def announce(self, pipeline: int, slowdown: float) -> None:
        """Tell all ranks with one of the next rounds that a pipeline is, or is no longer, slow."""
        self._announcements.append((pipeline, slowdown))

    def save(self, folder: Path) -> None:
        """Leave in a checkpoint's folder what a later run resumes from."""
        if self._run_recorder is not None:
            self._run_recorder.save(folder)

    def iteration_begin(self, microbatches: int, training: bool) -> None:
        """Close the iteration before; decide on this one, and ask for its first clock.

        Raises:
            PerseusError: Another rank has failed, or an answer of the bus is overdue.
        """
        now_s = time.monotonic()
        if self._begin_s is not None:
            self._measurements.lasted(self._iteration, self._begin_s, now_s)
            self._begin_s = None
        if self._open:  # an exception has ended it, and the user's loop goes on: nothing will come of it
            self._under_way.pop()
            self._open = False
        if not training:
            self._frequencies.hold(self._gpu.max_mhz)
            self._recorder.iteration_begin()
            return
        self._iteration += 1
        self._begin_s = now_s
        self._gpu.iteration_begins(self._iteration)
        self._collect()
        if round_result := self._consult():
            if self._run_recorder is not None:
                self._run_recorder.round_result(round_result)
            if self._metrics_writer is not None:
                self._metrics_writer.round_result(round_result, self._phases.plans, self._phases.t_prime_s)
            self._least_iteration_s = min(self._least_iteration_s, round_result.iteration_time_s)
            self._take(round_result)
        if self._phases.profiling_due(self._iteration):
            self._phases.begin_profiling(self._profiler())
        else:
            self._phases.baseline_begins(self._iteration)
        self._phases.begins(microbatches, partial(self._recent_trace, self._iteration))
        clocks = self._clocks(microbatches)
        self._switches = clocks.switches
        self._frequencies.begin(clocks)
        self._under_way.append((self._iteration, self._frequencies.requested_s))
        self._open = True
        self._recorder.iteration_begin(clocks)
        if self._run_recorder is not None:
            self._run_recorder.iteration(self._iteration, self._phases.phase, self._phases.plans, microbatches)
        if self._metrics_writer is not None:
            self._metrics_writer.iteration(self._iteration, self._phases.phase)

    def operation_begin(self, operation: Operation) -> None:
        """Mark the operation's begin."""
        self._recorder.operation_begin(operation)
        self._gpu.operation_begin(operation)

    def operation_end(self, operation: Operation) -> None:
        """Mark the operation's end; the next clock is asked for once it is reached."""
        self._gpu.operation_end(operation)
        self._recorder.operation_end(operation)

    def iteration_end(self) -> None:
        """Mark the schedule's end."""
        self._recorder.iteration_end()
        self._open = False

    def fail(self) -> None:
        """Tell the other ranks, as far as the bus still works, that Perseus must go off."""
        self._bus.post(RankStatus(self._iteration, failed=1.0 + self._topology.rank).row())

    def close(self) -> None:
        """Reset the clocks, write what is left to write."""
        clocks = self._gpu.close()
        if self._control is not None:
            self._control.close()
        if self._run_recorder is not None:
            self._run_recorder.close(self._phases.phase, clocks.to_json())
        self._bus.close()

    def _take(self, round_result: RoundResult) -> None:
        """Act on what all ranks have said."""
        before = self._phases.table
        self._phases.take(round_result, self._iteration)
        table = self._phases.table
        if self._metrics_writer is not None and before is not None and table is not None and table is not before:
            self._metrics_writer.replanned(table.max_energy_j / before.max_energy_j)

    def _collect(self) -> None:
        """Take in what has been measured since the last iteration."""
        self._measurements.samples += self._gpu.drain_samples()
        self._late_switches = 0
        for finished in self._recorder.finished():
            if finished.training:
                number, requested_s = self._under_way.popleft()
                self._measurements.recorded(number, finished)
                self._late_switches += _late(finished, requested_s)
            else:
                self._measurements.evaluated(finished)
        if latest := self._measurements.latest():
            self._order = [timed.operation for timed in instructions_of(latest)]
            if not self._order:
                raise PerseusError("hooks-silent", framework=self._topology.framework)
        needed = self._config.warmup_iterations + self._config.baseline_iterations
        if self._phases.phase not in (Phase.PROFILING, Phase.SOLVING) and self._iteration > needed:
            self._measurements.forget_before(self._iteration - _REMEMBERED)

    def _consult(self) -> RoundResult | None:
        """Return what all ranks said in the round before, and post this rank's part of the next one."""
        round_result = None
        if self._round is not None:
            begin_s = time.monotonic()
            round_result = RoundResult(self._round.result(self._config.bus_timeout_s), self._topology.stages)
            self._waited_s = time.monotonic() - begin_s
            if round_result.failed_rank is not None:
                raise PerseusError("failed-elsewhere", ranks=f"rank {round_result.failed_rank}")
        if self._iteration > 0:
            self._round = self._bus.post(self._signal().row())
        return round_result

    def _signal(self) -> RankStatus:
        """Return what this rank has to say about the iteration that has just ended."""
        ended = self._iteration - 1
        profiler = self._phases.profiler
        pipeline, slowdown = self._next_announcement() or (float("nan"), float("nan"))
        energy_j = self._measurements.energy_j(ended - 1)
        log.debug("rank %d: iteration %d: used %.3f J", self._topology.rank, ended - 1, energy_j)
        return RankStatus(
            iteration=ended,
            iteration_time_s=self._measurements.time_s(ended),
            energy_j=energy_j,
            version=self._phases.held_version(),
            profiled=float(profiler is not None and profiler.done),
            switches=self._switches,
            late_switches=self._late_switches,
            waited_s=self._waited_s,
            hint_pipeline=pipeline,
            hint_slowdown=slowdown,
            slowdown=self._slowdown(self._phases.table) if self._phases.table else 1.0,
            throttled_s=self._gpu.throttled_s,
        )

    def _next_announcement(self) -> tuple[int, float] | None:
        """Return what the program, or else the control file, has announced and nobody has been told yet."""
        if self._announcements:
            return self._announcements.popleft()
        return self._control.next_announcement() if self._control is not None else None

    def _slowdown(self, table: PlanTable) -> float:
        """Return measured over expected instruction time in the latest iteration."""
        latest, peers = self._measurements.latest(), table.of(self._topology.pipeline)
        return stage_slowdown(
            (timed.duration_s, peers.expected_s(curve_key(self._topology.stage, timed.operation), timed.frequency_mhz))
            for timed in (instructions_of(latest) if latest else ())
        )

    def _profiler(self) -> Profiler:
        """Return the sweep. Ranks that share instructions must choose alike: what it is told is agreed on."""
        first, topology = self._config.warmup_iterations, self._topology
        slots = len(self._order) + 2 * (topology.stages - 1)  # of 1F1B, roughly those of any schedule
        baseline = range(first, first + self._config.baseline_iterations)
        return Profiler(
            self._config.profiling,
            topology,
            self._measurements,
            self._measurements.trace(baseline, topology.stage, topology.pipeline),
            self._order,
            self._gpu.clocks_mhz,
            self._switch_latency_s,
            self._least_iteration_s / slots,
            first,
        )

    def _recent_trace(self, iteration: int) -> StageTrace:
        """Return the median trace of iterations just before this one; the last may not be known yet."""
        count = min(self._config.baseline_iterations, _REMEMBERED // 2)
        recent = range(iteration - 1 - count, iteration - 1)
        return self._measurements.trace(recent, self._topology.stage, self._topology.pipeline)

    def _clocks(self, microbatches: int) -> IterationClocks:
        """Return the clocks of the iteration that begins."""
        if self._phases.phase is Phase.PROFILING and self._phases.profiler is not None:
            return self._phases.profiler.next_clocks()
        highest = IterationClocks(self._gpu.max_mhz)
        table, plan = self._phases.table, self._phases.plan
        if table is None or plan is None or table.microbatches != microbatches:
            return highest
        planned = tuple(plan.clocks_mhz[self._topology.stage].values())
        if caution := self._phases.caution:
            planned = tuple(cautious_mhz(mhz, self._gpu.clocks_mhz, caution) for mhz in planned)
        return IterationClocks(self._gpu.max_mhz, planned)


def _late(iteration: RecordedIteration, requested_s: Mapping[int, float]) -> int:
    """Return how many clocks were asked for after their instruction had begun."""
    begins_s = [iteration.begin_s + timed.begin_s for timed in instructions_of(iteration)]
    return late_switches({index: at_s for index, at_s in requested_s.items() if index < len(begins_s)}, begins_s)
