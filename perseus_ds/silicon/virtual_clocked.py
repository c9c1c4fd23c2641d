"""Instructions at the speed of the virtual GPU's clock, and a keeper that sets it, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, UNIT_S
from perseus_ds.silicon.lab import Asked, Load
from perseus_ds.silicon.virtual_keeper import VirtualKeeper
from perseus_ds.simulator.gpu import VirtualGpu

if TYPE_CHECKING:
    from perseus_ds.silicon.virtual_lab import VirtualLab

__all__ = ["VirtualClocked"]

_TRIALS = 5


class VirtualClocked:
    """See ``Clocked``. The clock is the virtual GPU's; NVML, which only reads, is not in between.

    Args:
        lab: Has time and stream.
        gpu: Its GPU.
    """

    clocks_mhz = CLOCKS_MHZ

    def __init__(self, lab: VirtualLab, gpu: VirtualGpu) -> None:
        self._lab, self._gpu = lab, gpu
        self._log: list[Asked] = []
        self.set_mhz = VirtualKeeper(lab, self._apply).set_mhz
        self._latencies_s = {mhz: self._calibrated_s(mhz) for mhz in self.clocks_mhz}

    def run(self, kind: Kind) -> None:
        """See ``Clocked``: half of a backward waits for memory, which no clock makes faster."""
        self._lab.work(Load.GENTLE, UNIT_S)
        if kind is Kind.BACKWARD:
            self._lab.work(Load.MEMORY, UNIT_S)

    def latency_s(self, mhz: int) -> float:
        """See ``Clocked``."""
        return self._latencies_s[mhz]

    def close(self) -> list[Asked]:
        """See ``Clocked``; the clock goes back to the highest."""
        self._gpu.reset_clocks()
        return self._log

    def _apply(self, mhz: int) -> None:
        self._gpu.lock_clock(mhz)
        with self._gpu.moment() as (_, state):
            pending = state.pending[state.pending_count - 1] if state.pending_count else None
            self._log.append(Asked(mhz, pending.effective_s if pending else state.time_s))

    def _calibrated_s(self, mhz: int) -> float:
        """Return the median latency of some trials."""
        taken_s = []
        for _ in range(_TRIALS):
            begin_s = self._lab.now_s()
            self._apply(mhz)
            taken_s.append(self._log.pop().at_s - begin_s)
            self._lab.sleep(2 * taken_s[-1])
        return sorted(taken_s)[_TRIALS // 2]
