"""One rank's online profiling: the sweep over the clocks in live training, and its estimates."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from perseus_ds.coordination.stage_report import StageReport
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Topology
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.window import SampledWindow
from perseus_ds.runtime.measurement import Measurements
from perseus_ds.worker_process import Call, call_here

__all__ = ["Profiler"]

_SEARCH_AGAIN = 2  # times the iterations of the search before
_DOUBTED = 0.1  # of an energy: a wrong window, found where there was little to see, leaves as much noise


class Profiler:
    """The sweep of one rank, and the estimates that steer it.

    Args:
        topology: Position of this rank.
        measurements: The rank adds to them during the training.
        sweep: Chooses the clocks.
        switch_latency_s: From a clock request to the new clock, the same on the tensor-parallel ranks of a stage.
        first_iteration: First usable one: after the warm-up.
        call: Makes the attribution.

    Attributes:
        found: This rank's profile; None until it was reported.
    """

    def __init__(
        self,
        topology: Topology,
        measurements: Measurements,
        sweep: Sweep,
        switch_latency_s: float,
        first_iteration: int,
        call: Call = call_here,
    ) -> None:
        self._topology = topology
        self._measurements = measurements
        self._sweep = sweep
        self._switch_latency_s = switch_latency_s
        self._first_iteration = first_iteration
        self._call = call
        self.found: Attribution | None = None
        self._guess: SampledWindow | None = None
        self._vague = False
        self._searched_at = 0
        self._begun_at = self._lasts = 0  # in iterations: the newest estimate, the last one that ended
        self._estimating: Future[Attribution] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perseus_ds-profiler")

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
            self._lasts = self._sweep.iterations - self._begun_at
            if self._estimating.exception() is None:
                found = self._estimating.result()
                self._sweep.observe(found.curves, found.blocking_power_w, found.sustained_mhz)
            self._estimating = None
        # An estimate that ends after the sweep steers nothing, and the report would wait for it.
        in_time = self._lasts <= self._sweep.iterations_left
        # Tensor-parallel ranks run each clock together: what each estimates on its own must not part them.
        if self._estimating is None and self._sweep.iterations and in_time and self._topology.shard_size == 1:
            self._begun_at = self._sweep.iterations
            if self._sweep.iterations > _SEARCH_AGAIN * self._searched_at:
                # While there was little to see, a wrong window may have fitted; a search takes seconds.
                self._guess, self._searched_at = None, self._sweep.iterations
            self._estimating = self._thread.submit(self._attribute)
        clocks_mhz = self._sweep.next_frequencies()
        return IterationClocks(clocks_mhz[-1], clocks_mhz, asks_early=self._sweep.toggles)

    def report(self, baseline: Sequence[int]) -> StageReport:
        """Return the profile and the baseline. Takes up to seconds: call it off the trainer thread.

        Args:
            baseline: Iterations at the default clocks.

        Raises:
            PerseusError: The energy counter did not move.
        """
        self.found = attribution = self._thread.submit(self._attribute_surely).result()
        self._thread.shutdown(wait=False)
        topology = self._topology
        trace = self._measurements.trace(baseline, topology.stage, topology.pipeline)
        question = self._measurements.energy_question(baseline, topology.stage)
        energies_j, _ = question.answer(attribution, self._switch_latency_s, self._call)
        return StageReport(topology, trace, attribution, energies_j, attribution.lag_s)

    def _attribute_surely(self) -> Attribution:
        """Attribute. Where a window that was found earlier has left much in doubt, look for another one."""
        guess, vague, shown_w = self._guess, self._vague, self._measurements.shown_w
        if vague:
            self._guess = None
        found = self._attribute(shown_w)
        if vague and guess is not None and not found.verdict.explained:
            self._guess = guess
            found = self._attribute(shown_w)
        return found

    def _attribute(self, shown_w: Sequence[tuple[float, float]] = ()) -> Attribution:
        spans = self._measurements.work(self._first_iteration, self._topology.stage).spans()
        measured, latency_s = self._measurements, self._switch_latency_s
        seen = list(measured.samples), latency_s, None, list(measured.readings), list(shown_w)
        found: Attribution = self._call(attribute, spans, *seen, self._guess)
        self._guess = found.window if found.verdict.explained else None
        self._vague = found.doubt > _DOUBTED
        return found
