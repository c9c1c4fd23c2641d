"""One rank's online profiling: the sweep over the clocks in live training, and what comes out of it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from perseus_ds.config import ProfilingConfig
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.worker import AttributionWorker
from perseus_ds.runtime.measurement import Measurements, curve_key

__all__ = ["Profiler", "StageReport"]


@dataclass(frozen=True)
class StageReport:
    """What one rank hands in for planning.

    Attributes:
        topology: Who reports.
        trace: Its median baseline iteration.
        attribution: Its profile.
    """

    topology: Topology
    trace: StageTrace
    attribution: Attribution


class Profiler:
    """The sweep of one rank, and the estimates it is steered by.

    Args:
        config: Mode and bounds of the sweep.
        topology: Where this rank stands.
        measurements: Filled by the rank as the training goes on.
        trace: The median baseline iteration.
        order: Instructions of an iteration in program order.
        clocks_mhz: Supported clocks, descending.
        switch_latency_s: From a clock request to the new clock, the same on the tensor-parallel ranks of a stage.
        instruction_s: Mean duration of an instruction at the highest clock, roughly, the same on all ranks.
        first_iteration: First one that may be used: after the warm-up.
    """

    def __init__(
        self,
        config: ProfilingConfig,
        topology: Topology,
        measurements: Measurements,
        trace: StageTrace,
        order: list[Operation],
        clocks_mhz: tuple[int, ...],
        switch_latency_s: float,
        instruction_s: float,
        first_iteration: int,
    ) -> None:
        self._topology = topology
        self._measurements = measurements
        self._trace = trace
        self._switch_latency_s = switch_latency_s
        self._first_iteration = first_iteration
        self._estimating: Future[Attribution] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perseus_ds-profiler")
        self._worker = AttributionWorker()
        self._sweep = Sweep(
            [curve_key(topology.stage, operation) for operation in order],
            clocks_mhz,
            config,
            settle_s=switch_latency_s,
            instruction_s=instruction_s,
        )

    @property
    def done(self) -> bool:
        """Whether this rank's sweep has all it wants."""
        return self._sweep.done

    @property
    def iterations(self) -> int:
        """Iterations swept so far."""
        return self._sweep.iterations

    def next_clocks(self) -> IterationClocks:
        """Return the next iteration's clocks, steered by the newest estimates that are ready. Never waits.

        In a longer iteration than the baseline's, instructions beyond that one's end run at its last clock.
        """
        if self._estimating is not None and self._estimating.done():
            if self._estimating.exception() is None:
                found = self._estimating.result()
                self._sweep.observe(found.curves, found.blocking_power_w)
            self._estimating = None
        # Tensor-parallel ranks run each clock together: what each estimates on its own must not part them.
        if self._estimating is None and self._sweep.iterations and self._topology.shard_size == 1:
            self._estimating = self._thread.submit(self._attribute)
        clocks_mhz = self._sweep.next_frequencies()
        return IterationClocks(clocks_mhz[-1], clocks_mhz)

    def report(self) -> StageReport:
        """Return the profile. Takes up to seconds: call it off the trainer's thread.

        Raises:
            PerseusError: The energy counter did not move.
        """
        attribution = self._thread.submit(self._attribute).result()
        self._thread.shutdown(wait=False)
        self._worker.close()
        return StageReport(self._topology, self._trace, attribution)

    def _attribute(self) -> Attribution:
        spans = self._measurements.spans(self._first_iteration, self._topology.stage)
        return self._worker.attribute(spans, list(self._measurements.samples), self._switch_latency_s)
