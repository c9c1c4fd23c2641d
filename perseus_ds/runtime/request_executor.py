"""Carries out the requests of the decision core: builds the sweep, submits measurements. It waits for no answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from perseus_ds.config import Config
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.plan_channel import PlanChannel
from perseus_ds.coordination.requests import (
    BeginProfiling,
    Request,
    RescaleProfile,
    ResumePlans,
    RetraceIteration,
    RoundPlan,
    SolveProfile,
    SolveStragglers,
)
from perseus_ds.coordination.stage_report import StageReport
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.latencies import Bounds
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.runtime.measurement import KEPT_ITERATIONS, curve_key
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.profiler import Profiler
from perseus_ds.worker_process import WorkerProcess, call_here

__all__ = ["RequestExecutor"]


class RequestExecutor:
    """Carries out requests on one rank.

    Args:
        config: The whole configuration.
        channel: Source of the plans.
        meter: Source of the measurements.
        switch_latency_s: From a clock request to the new clock on the slowest GPU that shares this one's
            instructions.
        worker: Makes the heavy calls; None: they are made here.

    Attributes:
        channel: As given.
        profiler: The sweep; None before profiling begins.
        call: Makes the heavy calls.
        switch_latency_s: As given.
    """

    def __init__(
        self,
        config: Config,
        channel: PlanChannel,
        meter: RankMeter,
        switch_latency_s: float,
        worker: WorkerProcess | None = None,
    ) -> None:
        self._config = config
        self._meter = meter
        self.switch_latency_s = switch_latency_s
        self.call = call_here if worker is None else worker.call
        self._worker = worker
        self.channel = channel
        self.profiler: Profiler | None = None

    def execute(self, request: Request, iteration: int) -> None:
        """Carry out one request; the answer comes through the channel.

        Args:
            request: The request, the same on all ranks.
            iteration: The iteration about to begin.
        """
        ask = self.channel.ask
        match request:
            case BeginProfiling(least_iteration_s, baseline):
                self.profiler = self._make_profiler(least_iteration_s, baseline)
            case SolveProfile(version, baseline):
                assert self.profiler is not None, "profiling comes before solving"
                latencies_s = self._meter.gpu.unheld_latencies_s  # now: more come while the bus's thread reports
                ask(version, Coordinator.solve, partial(_report, self.profiler, baseline, latencies_s))
            case ResumePlans(version):
                ask(version, lambda coordinator, _: coordinator.resume())
            case SolveStragglers(version, missing):
                ask(version, lambda coordinator, _: coordinator.straggler_plans(missing))
            case RoundPlan(version, time_s):
                ask(version, lambda coordinator, _: coordinator.one_more(time_s))
            case RescaleProfile(version, factors):
                ask(version, lambda coordinator, _: coordinator.rescale(factors))
            case RetraceIteration(version):
                trace = self._recent_trace(iteration)  # now: the iterations may be forgotten by the bus's turn
                ask(version, Coordinator.retrace, partial(lambda *mine: mine, self._meter.topology, trace))

    @property
    def found(self) -> Attribution | None:
        """This rank's profile; None if an earlier run has profiled."""
        return self.profiler.found if self.profiler is not None else None

    def close(self) -> None:
        """End the process of the heavy calls."""
        if self._worker is not None:
            self._worker.close()

    def _make_profiler(self, least_iteration_s: float, baseline: range) -> Profiler:
        """Return the sweep. Ranks that share instructions must choose alike, so its inputs are agreed values."""
        topology = self._meter.topology
        trace = self._meter.measurements.trace(baseline, topology.stage, topology.pipeline)
        instructions = sum(timed.operation.kind.is_instruction for timed in trace.operations)
        slots = instructions + 2 * (topology.stages - 1)  # of 1F1B, roughly those of any schedule
        latency_s = self.switch_latency_s
        sweep = Sweep(
            [curve_key(topology.stage, one.operation) for one in trace.operations if one.operation.kind.is_instruction],
            self._meter.gpu.clocks_mhz,
            self._config.profiling,
            settle_s=latency_s,
            instruction_s=least_iteration_s / slots,
            start=topology.stage / topology.stages,
        )
        return Profiler(topology, self._meter.measurements, sweep, latency_s, baseline[0], self.call)

    def _recent_trace(self, iteration: int) -> StageTrace:
        """Return the median trace of the iterations just before this one; the last may still be unknown."""
        count = min(self._config.baseline_iterations, KEPT_ITERATIONS // 2)
        recent = range(iteration - 1 - count, iteration - 1)
        topology = self._meter.topology
        return self._meter.measurements.trace(recent, topology.stage, topology.pipeline)


def _report(profiler: Profiler, baseline: range, read_s: Mapping[int, Sequence[Bounds]]) -> StageReport:
    """Return the profile and the baseline, and the latencies that readings and instructions have told."""
    report = profiler.report(baseline)
    told_s = report.attribution.latencies_s
    latencies_s = {mhz: [*read_s.get(mhz, ()), *told_s.get(mhz, ())] for mhz in {*read_s, *told_s}}
    return replace(report, latencies_s=latencies_s)
