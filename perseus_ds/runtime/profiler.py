"""One rank's online profiling: the sweep over the clocks in live training, and its estimates."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from perseus_ds.config import ProfilingConfig
from perseus_ds.coordination.stage_report import StageReport
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.worker import AttributionWorker
from perseus_ds.runtime.measurement import Measurements, curve_key

__all__ = ["Profiler"]


class Profiler:
    """The sweep of one rank, and the estimates that steer it.

    Args:
        config: Mode and bounds of the sweep.
        topology: Position of this rank.
        measurements: The rank adds to them during the training.
        trace: The median baseline iteration.
        clocks_mhz: Supported clocks, descending.
        switch_latency_s: From a clock request to the new clock, the same on the tensor-parallel ranks of a stage.
        instruction_s: Rough mean duration of an instruction at the highest clock, the same on all ranks.
        first_iteration: First usable one: after the warm-up.
    """

    def __init__(
        self,
        config: ProfilingConfig,
        topology: Topology,
        measurements: Measurements,
        trace: StageTrace,
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
            [curve_key(topology.stage, one.operation) for one in trace.operations if one.operation.kind.is_instruction],
            clocks_mhz,
            config,
            settle_s=switch_latency_s,
            instruction_s=instruction_s,
        )

    @property
    def done(self) -> bool:
        """Whether this rank's sweep is complete."""
        return self._sweep.done

    @property
    def iterations(self) -> int:
        """Iterations swept so far."""
        return self._sweep.iterations

    def next_clocks(self) -> IterationClocks:
        """Return the next iteration's clocks, steered by the newest available estimates. Never waits.

        In an iteration longer than the baseline, instructions beyond the baseline's end run at its last clock.
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
        """Return the profile. Takes up to seconds: call it off the trainer thread.

        Raises:
            PerseusError: The energy counter did not move.
        """
        attribution = self._thread.submit(self._attribute).result()
        self._thread.shutdown(wait=False)
        self._worker.close()
        return StageReport(self._topology, self._trace, attribution)

    def _attribute(self) -> Attribution:
        spans = self._measurements.spans(self._first_iteration, self._topology.stage)
        measured = self._measurements
        return self._worker.attribute(spans, measured.samples, self._switch_latency_s, measured.readings)
