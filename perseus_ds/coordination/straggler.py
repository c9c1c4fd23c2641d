"""Stragglers: which stage is slow, by how much, for how long. Pure functions and trackers, equal on every rank.

A stage's slowdown comes from ``stage_condition.health`` (design of Perseus, SOSP '24, section 4.3: stragglers). Slowing
the others down needs patience: more for a small slowdown, which noise may look like, and twice as much with every
relapse. Speeding up needs none.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from perseus_ds.config import StragglerConfig

__all__ = ["DriftWatch", "StragglerTracker"]

# An active slowdown is replaced only when it has moved by more, so that a plan is not remade for noise.
_SAME_WITHIN = 0.05
_MOST_PATIENCE = 64
# Noise of a busy host looks like 6 % for two iterations, and a smaller slowdown costs less until it is noticed. Below
# this one, patience grows as for a mean of so many iterations to be as sure.
_SMALL = 0.08


class StragglerTracker:
    """Turns noisy slowdowns per iteration into a few lasting ones.

    It is deterministic: equal arrays give equal states on all ranks.

    Args:
        config: Thresholds and patience.
        pipelines: Number of pipelines.
        stages: Number of stages per pipeline.

    Attributes:
        active: Array (pipelines, stages): conditions in effect, including announced slowdowns; see ``stage_condition``.
        lasted: Array (pipelines, stages): slow iterations of a stage before its latest detection.
    """

    def __init__(self, config: StragglerConfig, pipelines: int, stages: int) -> None:
        self._config = config
        self._announced = np.ones((pipelines, 1))
        self.active = np.ones((pipelines, stages))
        self._ceilings_mhz = np.zeros((pipelines, stages))
        self.lasted = np.zeros((pipelines, stages), dtype=int)
        self.restart()

    def restart(self) -> None:
        """Forget the measurements: slowdowns have a new reference. Announcements stay."""
        shape = self.active.shape
        self._noticed = np.ones(shape)
        self._patience = np.full(shape, self._config.onset_iterations)
        self._above = np.zeros(shape, dtype=int)  # consecutive iterations slower than what is noticed
        self._least = np.full(shape, np.inf)  # least slowdown of the latest two of them
        self._latest = np.full(shape, np.inf)
        self._normal = np.zeros(shape, dtype=int)
        self._ceilings_mhz = np.zeros(shape)
        self.active = self._conditions()
        self._all_normal = bool((self.active == 1.0).all())

    def announce(self, pipeline: int, slowdown: float) -> None:
        """Take an outside announcement. It counts for the whole pipeline from the next update until it is revoked."""
        if self._config.enabled and 0 <= pipeline < len(self._announced):
            self._announced[pipeline] = max(slowdown, 1.0)
            self._all_normal = False

    def update(
        self, slowdowns: np.ndarray, throttled: np.ndarray | None = None, ceilings_mhz: np.ndarray | None = None
    ) -> bool:
        """Process one iteration.

        Args:
            slowdowns: Array (pipelines, stages); 1.0 is as expected, and NaN leaves everything as it is.
            throttled: Array (pipelines, stages): the driver reports throttling, so half the patience is enough.
            ceilings_mhz: Array (pipelines, stages): the clock that a GPU is held at, 0 without one.

        Returns:
            True when ``active`` has changed.
        """
        if not self._config.enabled:
            return False
        seen = np.asarray(slowdowns, dtype=float)
        self._count(seen)
        if self._stays_normal():
            return False
        patience = self._patience if throttled is None else np.where(throttled, self._patience // 2, self._patience)
        noticed = self._noticed
        over = (noticed > 1.0) & (self._normal >= self._config.recovery_iterations)
        eased = (noticed > 1.0) & ~over & (seen < noticed * (1.0 - _SAME_WITHIN))
        as_sure = np.clip((self._least - 1.0) / _SMALL, 0.0, 1.0) ** 2
        if throttled is not None:
            as_sure = np.where(throttled, 1.0, as_sure)  # the driver makes no noise
        worse = ~over & (self._above * as_sure >= np.maximum(patience, 1))
        # Rounded down: the others must never become slower than the straggler.
        found = np.floor(np.where(worse, self._least, seen) * 100.0 + 1e-6) / 100.0
        self._noticed = np.where(over, 1.0, np.where(worse | eased, np.maximum(found, 1.0), noticed))
        self._patience[worse] = np.minimum(self._patience[worse] * 2, _MOST_PATIENCE)
        self._patience[self._normal >= self._config.calm_iterations] = self._config.onset_iterations
        self.lasted[worse] = self._above[worse]
        self._above[over | eased | worse] = 0
        held = 0.0 if ceilings_mhz is None else ceilings_mhz
        self._ceilings_mhz = np.where(over, 0.0, np.where(worse | eased, held, self._ceilings_mhz))
        before, self.active = self.active, self._conditions()
        self._all_normal = bool((self.active == 1.0).all() and (self._noticed == 1.0).all())
        return not np.array_equal(before, self.active)

    def _stays_normal(self) -> bool:
        """Whether no stage is slow and none looks so: the usual iteration, which thousands of ranks pass quickly."""
        if not self._all_normal or self._above.any():
            return False
        self._patience[self._normal >= self._config.calm_iterations] = self._config.onset_iterations
        return True

    def _conditions(self) -> np.ndarray:
        """Return the conditions in effect; an announced slowdown beyond the noticed one replaces a ceiling."""
        held = (self._noticed > 1.0) & (self._ceilings_mhz > 0.0) & (self._noticed >= self._announced)
        return np.where(held, -self._ceilings_mhz, np.maximum(self._noticed, self._announced))

    def _count(self, seen: np.ndarray) -> None:
        """Count slow and normal iterations of each stage."""
        limit = np.where(self._noticed > 1.0, self._noticed * (1.0 + _SAME_WITHIN), self._config.threshold)
        no_news = np.isnan(seen)
        self._above = np.where(no_news, self._above, np.where(seen >= limit, self._above + 1, 0))
        least = np.where(self._above > 1, np.minimum(seen, self._latest), seen)
        self._least = np.where(no_news, self._least, least)
        self._latest = np.where(no_news, self._latest, seen)
        normal = np.where(seen < self._config.recovery_threshold, self._normal + 1, 0)
        self._normal = np.where(no_news, self._normal, normal)


class DriftWatch:
    """Detects a drift: without throttling, all pipelines are equally slower or faster than the profile.

    With several pipelines a stage has drifted once it has on all of them. With one pipeline, all its stages must
    drift.

    Args:
        config: Threshold, and its duration.
    """

    def __init__(self, config: StragglerConfig) -> None:
        self._config = config
        self._latest: np.ndarray | float = 1.0
        self._recent: deque[np.ndarray] = deque(maxlen=config.drift_iterations)
        self._far: deque[bool] = deque(maxlen=config.drift_iterations)  # whether any stage was beyond the threshold

    def restart(self) -> None:
        """Forget the iterations so far."""
        self._latest = 1.0
        self._recent.clear()
        self._far.clear()

    def update(self, slowdowns: np.ndarray) -> np.ndarray | None:
        """Process one iteration.

        Args:
            slowdowns: Array (pipelines, stages); 1.0 is as expected. What is NaN is as before.

        Returns:
            Per stage, the lasting factor on its times; None without a drift.
        """
        if not self._config.enabled:
            return None
        slowdowns = np.where(np.isnan(slowdowns), self._latest, slowdowns)
        self._latest = slowdowns
        alone = len(slowdowns) == 1
        least = np.full(slowdowns.shape[1], slowdowns.min()) if alone else slowdowns.min(axis=0)
        most = np.full(slowdowns.shape[1], slowdowns.max()) if alone else slowdowns.max(axis=0)
        limit = self._config.threshold
        self._recent.append(np.where(least > 1.0, least, np.where(most < 1.0, most, 1.0)))
        self._far.append(bool(least.max() >= limit or most.min() <= 1.0 / limit))
        # Less than half of them far: the median is not.
        if len(self._recent) < self._config.drift_iterations or 2 * sum(self._far) < len(self._far):
            return None
        window = np.stack(self._recent)
        drift = np.median(window, axis=0)
        steady = (np.abs(window / drift - 1.0) < _SAME_WITHIN).mean() > 0.9
        if not steady or ((drift < limit) & (drift > 1.0 / limit)).all():
            return None
        self.restart()
        return drift
