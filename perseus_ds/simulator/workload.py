"""Makes a real framework's instruction last as long as it would on the virtual GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass

from perseus_ds.profiling.table import CurveKey
from perseus_ds.simulator.gpu import VirtualGpu

__all__ = ["SimulatedWorkload"]

_STEP_S = 0.005  # a clock that rises meanwhile is noticed after this time at the latest
_EARLY_S = 0.0001  # as much as sleeping takes too long


@dataclass
class SimulatedWorkload:
    """The instructions of one rank on its virtual GPU.

    Attributes:
        gpu: The rank's GPU.
        overruns: Instructions whose real computation took longer than the simulated time.
    """

    gpu: VirtualGpu
    overruns: int = 0

    def begin(self, key: CurveKey) -> None:
        """Tell that the instruction starts now.

        Raises:
            KeyError: The GPU has no curve for it.
        """
        self.gpu.begin_work(key)

    def finish(self) -> None:
        """Sleep until the instruction is done on the virtual GPU, at whatever clocks it has meanwhile."""
        left_s = self.gpu.finish_time_s() - time.monotonic()
        self.overruns += left_s <= 0.0
        while left_s > _EARLY_S:
            time.sleep(min(left_s - _EARLY_S, _STEP_S))
            left_s = self.gpu.finish_time_s() - time.monotonic()
