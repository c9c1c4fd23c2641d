"""Who is slow, by how much, for how long. Pure functions and one small tracker, the same on every rank.

A stage's slowdown is its measured instruction time divided by what the profile says at the clock that was
set (design of Perseus, SOSP '24, section 4.3: stragglers). Slowing the others down needs patience, which
doubles with every relapse; speeding them up again does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from perseus_ds.config import StragglerConfig

__all__ = ["DriftWatch", "StragglerTracker", "stage_slowdown"]

# An active slowdown is replaced only when it has moved by more, so that a plan is not remade for noise.
_SAME_WITHIN = 0.05
_MOST_PATIENCE = 64


def stage_slowdown(measured_and_expected_s: Iterable[tuple[float, float]]) -> float:
    """Return the slowdown of one stage in one iteration.

    Args:
        measured_and_expected_s: Per instruction, its measured time and the profile's time at its clock.

    Returns:
        The median ratio, robust to single slow instructions; 1.0 without instructions.
    """
    ratios = [measured / expected for measured, expected in measured_and_expected_s if expected > 0]
    return float(np.median(ratios)) if ratios else 1.0


class StragglerTracker:
    """Turns noisy slowdowns per iteration into the few that are acted on.

    Deterministic: ranks that feed it the same arrays hold the same state.

    Args:
        config: Thresholds and patience.
        pipelines: Number of pipelines.
        stages: Number of stages per pipeline.

    Attributes:
        active: Array (pipelines, stages): slowdowns to act on, announced ones included; 1.0 elsewhere.
        lasted: Array (pipelines, stages): for how many iterations a stage had been slow when it was last noticed.
    """

    def __init__(self, config: StragglerConfig, pipelines: int, stages: int) -> None:
        self._config = config
        self._announced = np.ones((pipelines, 1))
        self.active = np.ones((pipelines, stages))
        self.lasted = np.zeros((pipelines, stages), dtype=int)
        self.restart()

    def restart(self) -> None:
        """Forget what was measured: slowdowns mean something else from now on. Announcements stay."""
        shape = self.active.shape
        self._noticed = np.ones(shape)
        self._patience = np.full(shape, self._config.onset_iterations)
        self._above = np.zeros(shape, dtype=int)  # consecutive iterations slower than what is noticed
        self._least = np.full(shape, np.inf)  # least slowdown of the latest two of them
        self._latest = np.full(shape, np.inf)
        self._normal = np.zeros(shape, dtype=int)
        self.active = np.maximum(self._noticed, self._announced)

    def announce(self, pipeline: int, slowdown: float) -> None:
        """Take an announcement from outside: it counts at the next update, for the whole pipeline, until taken back."""
        if self._config.enabled and 0 <= pipeline < len(self._announced):
            self._announced[pipeline] = max(slowdown, 1.0)

    def update(self, slowdowns: np.ndarray, throttled: np.ndarray | None = None) -> bool:
        """Take in one iteration.

        Args:
            slowdowns: Array (pipelines, stages); 1.0 is as expected.
            throttled: Array (pipelines, stages): the driver says why it is slow, so that half the patience will do.

        Returns:
            True when ``active`` has changed.
        """
        if not self._config.enabled:
            return False
        seen = np.asarray(slowdowns, dtype=float)
        self._count(seen)
        patience = self._patience if throttled is None else np.where(throttled, self._patience // 2, self._patience)
        noticed = self._noticed
        over = (noticed > 1.0) & (self._normal >= self._config.recovery_iterations)
        eased = (noticed > 1.0) & ~over & (seen < noticed * (1.0 - _SAME_WITHIN))
        worse = ~over & (self._above >= np.maximum(patience, 1))
        # Rounded down: the others must never become slower than the straggler.
        found = np.floor(np.where(worse, self._least, seen) * 100.0 + 1e-6) / 100.0
        self._noticed = np.where(over, 1.0, np.where(worse | eased, np.maximum(found, 1.0), noticed))
        self._patience[worse] = np.minimum(self._patience[worse] * 2, _MOST_PATIENCE)
        self._patience[self._normal >= self._config.calm_iterations] = self._config.onset_iterations
        self.lasted[worse] = self._above[worse]
        self._above[over | eased | worse] = 0
        before, self.active = self.active, np.maximum(self._noticed, self._announced)
        return not np.array_equal(before, self.active)

    def _count(self, seen: np.ndarray) -> None:
        """Count for how long each stage has been slower than noticed, and for how long normal."""
        limit = np.where(self._noticed > 1.0, self._noticed * (1.0 + _SAME_WITHIN), self._config.threshold)
        above = seen >= limit
        self._above = np.where(above, self._above + 1, 0)
        self._least = np.where(self._above > 1, np.minimum(seen, self._latest), seen)
        self._latest = seen
        self._normal = np.where(seen < self._config.recovery_threshold, self._normal + 1, 0)


class DriftWatch:
    """Notices that the profile no longer fits, though nobody is throttled: all are slower, or faster, alike.

    With several pipelines a stage has drifted when it has on all of them; with one, when all its stages have.

    Args:
        config: Threshold, and how long it must last.
    """

    def __init__(self, config: StragglerConfig) -> None:
        self._config = config
        self._recent: deque[np.ndarray] = deque(maxlen=config.drift_iterations)

    def restart(self) -> None:
        """Forget what was seen."""
        self._recent.clear()

    def update(self, slowdowns: np.ndarray) -> np.ndarray | None:
        """Take in one iteration.

        Args:
            slowdowns: Array (pipelines, stages); 1.0 is as expected.

        Returns:
            Per stage, the factor on its times that has become normal; None while there is no such thing.
        """
        if not self._config.enabled:
            return None
        alone = len(slowdowns) == 1
        least = np.full(slowdowns.shape[1], slowdowns.min()) if alone else slowdowns.min(axis=0)
        most = np.full(slowdowns.shape[1], slowdowns.max()) if alone else slowdowns.max(axis=0)
        self._recent.append(np.where(least > 1.0, least, np.where(most < 1.0, most, 1.0)))
        if len(self._recent) < self._config.drift_iterations:
            return None
        window = np.stack(self._recent)
        drift = np.median(window, axis=0)
        steady = (np.abs(window / drift - 1.0) < _SAME_WITHIN).mean() > 0.9
        limit = self._config.threshold
        if not steady or ((drift < limit) & (drift > 1.0 / limit)).all():
            return None
        self.restart()
        return drift
