"""The throughput guard: Perseus must not make the training slower than it was.

It steps back towards the highest clocks when iterations last longer than planned, and finds out at the highest
clocks whether Perseus was the cause: if it was not, the time seen there is the new measure and the plan returns.
"""

from __future__ import annotations

from collections import deque
from statistics import median

__all__ = ["CAUTION_STEPS", "ThroughputGuard", "cautious_mhz"]

CAUTION_STEPS = (0.0, 0.5, 1.0)
"""Steps back: the part of the way from the planned to the highest clock."""

_WINDOW = 16
_SETTLING = 2  # iterations after a change that still belong to what was before
_MOST_CALM = 4096


class ThroughputGuard:
    """Watches iteration times. Deterministic: ranks that feed it the same times hold the same state.

    Args:
        max_slowdown: Iteration time allowed, as a multiple of the plan's.

    Attributes:
        step: Index into ``CAUTION_STEPS``.
        inflation: Measured over predicted iteration time at the highest clock, at least 1: what the
            model of the pipeline does not know of.
    """

    def __init__(self, max_slowdown: float) -> None:
        self._max_slowdown = max_slowdown
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._skip = 0
        self._slow_s = 0.0
        self._calm = 0
        self._calm_needed = 4 * _WINDOW
        self.step = 0
        self.inflation = 1.0

    @property
    def caution(self) -> float:
        """The part of the way from the planned to the highest clock that is taken."""
        return CAUTION_STEPS[self.step]

    def restart(self) -> None:
        """What runs has changed: times seen so far do not count."""
        self._recent.clear()
        self._skip = _SETTLING

    def watch(self, time_s: float, planned_s: float, fastest_s: float) -> bool:
        """Take in an iteration in which nobody was slow.

        Args:
            time_s: How long it took.
            planned_s: How long the plan in force should take.
            fastest_s: How long it should take at the highest clock.

        Returns:
            True when ``step`` has changed.
        """
        if self._skip > 0:
            self._skip -= 1
            return False
        self._recent.append(time_s)
        self._calm += 1
        if len(self._recent) < _WINDOW:
            return False
        typical_s = median(self._recent)
        if self.step == len(CAUTION_STEPS) - 1:
            return self._judge(typical_s, planned_s, fastest_s)
        if typical_s > self._max_slowdown * planned_s * self.inflation:
            self._slow_s = max(self._slow_s, typical_s) if self.step else typical_s
            self._move(self.step + 1)
            return True
        if self.step and self._calm >= self._calm_needed:
            self._move(self.step - 1)
            return True
        return False

    def _judge(self, typical_s: float, planned_s: float, fastest_s: float) -> bool:
        """At the highest clocks: was it Perseus?"""
        self.inflation = max(1.0, typical_s / fastest_s)
        acquitted = self._slow_s <= self._max_slowdown * planned_s * self.inflation
        if acquitted or self._calm >= self._calm_needed:
            self._move(0)
            return True
        return False

    def _move(self, step: int) -> None:
        """Change the step; each way back into the plan needs twice the calm of the one before."""
        if step < self.step:
            self._calm_needed = min(2 * self._calm_needed, _MOST_CALM)
        self.step = step
        self._calm = 0
        self.restart()


def cautious_mhz(planned_mhz: int, clocks_mhz: tuple[int, ...], caution: float) -> int:
    """Return the clock a part of the way from the planned to the highest one, the next supported one above.

    Args:
        planned_mhz: What the plan says.
        clocks_mhz: Supported clocks, descending.
        caution: 0: the plan; 1: the highest clock.
    """
    wanted = planned_mhz + caution * (clocks_mhz[0] - planned_mhz)
    return min((mhz for mhz in clocks_mhz if mhz >= wanted), default=clocks_mhz[0])
