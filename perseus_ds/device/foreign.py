"""Notices that somebody else has changed the clock. NVML cannot read a lock back, so the SM clock has to tell."""

from __future__ import annotations

import math
from collections import deque

from perseus_ds.device.driver import Gpu, Throttle, is_reached
from perseus_ds.device.protocol import RESET

__all__ = ["ForeignClocks"]

_AWAY_STEPS = 3  # a warm GPU may run a step or two beside its lock
_READINGS, _SPAN_S, _WITHIN_S = 3, 0.5, 10.0
_REMEMBERED_S = 1.0
_LATENCIES = 5.0


class ForeignClocks:
    """Compares readings of a GPU's clock with what was asked for.

    A clock that nobody here has asked for, seen repeatedly and without a limit that would explain it, is somebody
    else's. The lowest clock is not: a GPU that idles may run at it. While the GPU has its default clocks, nothing is
    judged: it may run at any.

    Args:
        gpu: The GPU.
        latency_s: Usual time from a request to its clock.
    """

    def __init__(self, gpu: Gpu, latency_s: float) -> None:
        self._gpu = gpu
        self._remembered_s = max(_REMEMBERED_S, _LATENCIES * latency_s)
        self._asked: deque[tuple[float, int]] = deque([(-math.inf, RESET)])  # time and clock; the first may be in force
        self._strange: deque[tuple[float, int]] = deque(maxlen=_READINGS)

    def asked(self, now_s: float, mhz: int) -> None:
        """Take in a request, or ``RESET``."""
        self._asked.append((now_s, mhz))

    def sees(self, now_s: float, actual_mhz: int, reasons: Throttle) -> int:
        """Take in a reading.

        Returns:
            The clock that somebody else has set; 0: none that is noticed now.
        """
        while len(self._asked) > 1 and self._asked[1][0] < now_s - self._remembered_s:
            self._asked.popleft()
        own = [mhz for _, mhz in tuple(self._asked)]
        if RESET in own or reasons or actual_mhz <= self._gpu.supported_clocks_mhz[-1]:
            return 0
        if any(abs(actual_mhz - mhz) <= _AWAY_STEPS * self._gpu.clock_step_mhz for mhz in own):
            return 0
        self._strange.append((now_s, actual_mhz))
        first_s, first_mhz = self._strange[0]
        alike = all(is_reached(self._gpu, mhz, first_mhz) for _, mhz in self._strange)
        if len(self._strange) < _READINGS or not alike or not _SPAN_S <= now_s - first_s <= _WITHIN_S:
            if now_s - first_s < _SPAN_S and len(self._strange) == _READINGS:
                self._strange.pop()  # readings come fast: keep the first, to tell how long it lasts
            return 0
        self._strange.clear()
        return actual_mhz
