"""The throughput guard: Perseus must not slow the training down.

If iterations take longer than planned, the guard steps towards the highest clocks. At the highest clocks it learns
whether Perseus was the cause. If not, the time measured there becomes the new reference and the plan returns. Refreshed
baselines say so before it steps: GPUs at their power limit get slower as they get warm, with and without Perseus.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from perseus_ds.coordination.refresh import MEASURED

__all__ = ["CAUTION_STEPS", "ThroughputGuard", "cautious_mhz"]

CAUTION_STEPS = (0.0, 0.5, 1.0)
"""Steps of the guard between the planned (0) and the highest clock (1)."""

_WINDOW = 12  # both steps are taken within 30 iterations
_SUSPECTS = 6  # of these; a baseline refreshed then comes before the first step
_CALM = 64  # iterations after a step until the plan is tried again
_SETTLING = 2  # iterations after a change that still belong to what was before
_MOST_CALM = 4096
_SURE = 3 * 1.2533 / _WINDOW**0.5  # three standard errors of the window's median, in deviations of one iteration


class ThroughputGuard:
    """Watches iteration times. It is deterministic: equal times give equal states on all ranks.

    Args:
        max_slowdown: Allowed iteration time, as a multiple of the plan's.

    Attributes:
        step: Index into ``CAUTION_STEPS``.
        inflation: Measured over predicted iteration time at the highest clock, at least 1: the effect of everything
            outside the pipeline model.
        wants_baseline: Whether the plan has become half as late as allowed since the baseline was refreshed.
    """

    def __init__(self, max_slowdown: float) -> None:
        self._max_slowdown = max_slowdown
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._planned_s = 0.0  # of these
        self._baseline: deque[float] = deque(maxlen=MEASURED)
        self._pace = 1.0  # of the plan when the baseline was refreshed, over the planned one
        self._skip = 0
        self._slow_s = 0.0
        self._calm = 0
        self._calm_needed = _CALM
        self.step = 0
        self.inflation = 1.0
        self.wants_baseline = False

    @property
    def caution(self) -> float:
        """The current position between the planned (0) and the highest clock (1)."""
        return CAUTION_STEPS[self.step]

    def adopt(self, inflation: float) -> None:
        """Watch other plans.

        Args:
            inflation: Iteration time of the baseline over that predicted at the highest clock.
        """
        self.step, self.inflation, self._pace = 0, max(1.0, inflation), 1.0
        self.restart()

    def restart(self) -> None:
        """The work has changed: ignore the times so far."""
        self._recent.clear()
        self._baseline.clear()
        self._skip = _SETTLING
        self.wants_baseline = False

    def watch(self, time_s: float, planned_s: float, fastest_s: float, deviation_s: float = 0.0) -> bool:
        """Process an iteration without a straggler.

        Args:
            time_s: Its duration.
            planned_s: Duration predicted by the current plan.
            fastest_s: Duration predicted at the highest clock.
            deviation_s: Standard deviation of an iteration, as the plan knows it: no slowdown by itself.

        Returns:
            True when ``step`` has changed.
        """
        if self._skip > 0:
            self._skip -= 1
            return False
        self._recent.append(time_s)
        self._planned_s = planned_s
        self._calm += 1
        typical_s, last = median(self._recent), self.step == len(CAUTION_STEPS) - 1
        if not last and len(self._recent) >= _SUSPECTS:
            known_s = planned_s * max(self._pace, self.inflation)
            self.wants_baseline = typical_s > (1.0 + self._max_slowdown) / 2.0 * known_s + _SURE * deviation_s
        if len(self._recent) < _WINDOW:
            return False
        if last:
            return self._judge(typical_s, planned_s, fastest_s, deviation_s)
        if typical_s > self._allowed_s(planned_s, deviation_s):
            self._slow_s = max(self._slow_s, typical_s) if self.step else typical_s
            self._move(self.step + 1)
            return True
        if self.step and self._calm >= self._calm_needed:
            self._move(self.step - 1)
            return True
        return False

    def hear_baseline(self, time_s: float, fastest_s: float) -> None:
        """Process an iteration at the default clocks among the plan's.

        What slows these down is no fault of the plan. Something else may have delayed these few iterations. So a pace
        slower than known counts at most for as much as the plan was late, and ``max_slowdown`` more.

        Args:
            time_s: Its duration.
            fastest_s: Duration predicted at the highest clock.
        """
        self._baseline.append(time_s)
        if len(self._baseline) == MEASURED and self._recent:
            self._pace, self.wants_baseline = median(self._recent) / self._planned_s, False
            most = max(self.inflation, self._max_slowdown * self._pace)
            self.inflation = max(1.0, min(median(self._baseline) / fastest_s, most))

    def _allowed_s(self, planned_s: float, deviation_s: float) -> float:
        return self._max_slowdown * planned_s * self.inflation + _SURE * deviation_s

    def _judge(self, typical_s: float, planned_s: float, fastest_s: float, deviation_s: float) -> bool:
        """At the highest clocks, decide whether Perseus was the cause."""
        self.inflation = max(1.0, typical_s / fastest_s)
        acquitted = self._slow_s <= self._allowed_s(planned_s, deviation_s)
        if acquitted or self._calm >= self._calm_needed:
            self._move(0)
            return True
        return False

    def _move(self, step: int) -> None:
        """Change the step; each return to the plan needs twice as many calm iterations as the one before."""
        if step < self.step:
            self._calm_needed = min(2 * self._calm_needed, _MOST_CALM)
        self.step = step
        self._calm = 0
        self.restart()


def cautious_mhz(planned_mhz: int, clocks_mhz: tuple[int, ...], caution: float) -> int:
    """Return the clock between the planned and the highest one, rounded up to a supported clock.

    Args:
        planned_mhz: Clock of the plan.
        clocks_mhz: Supported clocks, descending.
        caution: 0: the plan; 1: the highest clock.
    """
    wanted = planned_mhz + caution * (clocks_mhz[0] - planned_mhz)
    return min((mhz for mhz in clocks_mhz if mhz >= wanted), default=clocks_mhz[0])
