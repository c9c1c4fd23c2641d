"""Every so often, splits the energy of all ranks up by kind of instruction; works without the right to set clocks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.events import EnergySplitKnown
from perseus_ds.coordination.phases import Phase
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Topology
from perseus_ds.profiling.breakdown import RankEnergy, energy_by_kind, few_rows
from perseus_ds.profiling.energy import Attribution
from perseus_ds.runtime.measurement import Work
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.worker_process import Call

__all__ = ["EnergySplit"]

Samples = list[tuple[float, float]]

_Told = tuple[tuple[RankEnergy, ...], dict[str, float]]

_LEAST = 4  # iterations: fewer tell too little
_MOST_TOLD = 512  # rows: a monitor keeps a series for each
_PHASES = (Phase.BASELINE, Phase.OBSERVING, Phase.ENFORCING)


class EnergySplit:
    """One rank's part. Nothing here waits: the bus's thread does the work.

    Args:
        every: Iterations between two; 0: none.
        latency_s: From a clock request to the new clock.
        call: Makes the heavy calls.
    """

    def __init__(self, every: int, latency_s: float, call: Call) -> None:
        self._every = every
        self._latency_s = latency_s
        self._call = call
        self._coming: deque[tuple[Future[list[list[RankEnergy]] | None], Future[_Told]]] = deque()

    def begins(
        self, iteration: int, phase: Phase, bus: Bus, meter: RankMeter, found: Attribution | None
    ) -> list[EnergySplitKnown]:
        """Begin an iteration, the same on all ranks: ask for a split when it is time.

        Args:
            iteration: Its number.
            phase: Its phase.
            bus: To the other ranks.
            meter: Of this rank.
            found: This rank's profile; None if it has not profiled.

        Returns:
            What has arrived, once.
        """
        known = self._arrived(iteration)
        if self._every and iteration and iteration % self._every == 0 and phase in _PHASES:
            topology, measurements = meter.topology, meter.measurements
            # Copied now: the bus's thread may be late.
            recent = measurements.latest_work(topology.stage), list(measurements.samples)
            known_before = found, meter.gpu.counter_period_s
            gathered = bus.gather(partial(self._split, topology, *recent, *known_before))
            told = bus.broadcast(lambda: _told(gathered.result() or [], topology.pipelines))
            self._coming.append((gathered, told))
        return known

    def forget(self) -> None:
        """The ranks have lost each other: what was under way is lost."""
        self._coming.clear()

    def _arrived(self, iteration: int) -> list[EnergySplitKnown]:
        if not self._coming or not self._coming[0][1].done():
            return []
        gathered, known = self._coming.popleft()
        if known.exception() is not None:  # whoever needs the bus more says so
            return []
        rows = tuple(row for rank in gathered.result() or [] for row in rank)
        return [EnergySplitKnown(iteration, rows, *known.result())]

    def _split(
        self,
        topology: Topology,
        work: Work,
        samples: Samples,
        found: Attribution | None,
        usual_period_s: float,
    ) -> list[RankEnergy]:
        """Return this rank's rows; none where too little is known."""
        if (iterations := len(work.iterations)) < _LEAST:
            return []
        try:
            asked = work.spans(), samples, iterations, self._latency_s, found, usual_period_s
            by_kind = self._call(energy_by_kind, *asked)
        except PerseusError:
            return []
        return [RankEnergy(topology.rank, topology.pipeline, topology.stage, one) for one in by_kind]


def _told(ranks: Sequence[Sequence[RankEnergy]], pipelines: int) -> _Told:
    """Return the rows to tell, and the joules of one pipeline's iteration by kind."""
    rows = [row for rank in ranks for row in rank]
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row.energy.kind] += row.energy.energy_j / pipelines
    return few_rows(rows, _MOST_TOLD), dict(sums)
