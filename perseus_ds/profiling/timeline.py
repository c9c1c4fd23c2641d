"""What a GPU did over time, and averages of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Timeline"]

Array = NDArray[np.float64]

_FORGOTTEN = 40.0
_LARGEST_EXPONENT = 300.0


class Timeline:
    """What a GPU did over time, as a piecewise constant function with values in R^c.

    Args:
        edges_s: Segment borders, ascending, shape (m + 1,).
        values: What each segment counts as, shape (m, c).
    """

    def __init__(self, edges_s: Array, values: Array) -> None:
        self._edges_s = edges_s
        self._values = values
        self._lasts_s = np.diff(edges_s)[:, None]
        self._integral = _summed(values * self._lasts_s)
        self._faded_with, self._levels = 0.0, values

    def integral(self, until_s: Array) -> Array:
        """Return the integral from the first edge to each of ``until_s``, shape (len(until_s), c)."""
        at, since_s = self._at(until_s)
        return self._integral[at] + self._values[at] * since_s

    def averaged(self, until_s: Array, over_s: float, decay_s: float) -> Array:
        """Return the integral of an average, up to a constant, shape (len(until_s), c).

        Args:
            until_s: Where the integral ends.
            over_s: The average is the mean over this time before; 0: no such mean.
            decay_s: It forgets, besides, with this time constant; 0: it does not.
        """
        if not over_s:
            return self._once(until_s, decay_s)
        return (self._twice(until_s, decay_s) - self._twice(until_s - over_s, decay_s)) / over_s

    def _once(self, until_s: Array, decay_s: float) -> Array:
        """Return the integral of the fading average: the integral less what has still to come."""
        return self.integral(until_s) - decay_s * self._fading(until_s, decay_s) if decay_s else self.integral(until_s)

    def _twice(self, until_s: Array, decay_s: float) -> Array:
        at, since_s = self._at(until_s)
        twice = self._integral_of_integral[at] + self._integral[at] * since_s + self._values[at] * since_s**2 / 2.0
        return twice - decay_s * self._once(until_s, decay_s) if decay_s else twice

    def _fading(self, until_s: Array, decay_s: float) -> Array:
        """Return the fading average at each time; before the first edge all was as in the first segment."""
        if self._faded_with != decay_s:
            self._levels, self._faded_with = self._faded(decay_s), decay_s
        at, since_s = self._at(until_s)
        value = self._values[at]
        return value + np.exp(-np.maximum(since_s, 0.0) / decay_s) * (self._levels[at] - value)

    def _faded(self, decay_s: float) -> Array:
        """Return the fading average at each edge."""
        age = np.concatenate([[0.0], np.cumsum(np.minimum(self._lasts_s[:, 0] / decay_s, _FORGOTTEN))])
        levels = np.empty((len(age), self._values.shape[1]))
        levels[0] = self._values[0]
        part = age // _LARGEST_EXPONENT
        for first in np.flatnonzero(np.diff(part, prepend=-1.0)):
            last = int(np.searchsorted(part, part[first], side="right"))
            begin = max(first - 1, 0)
            weight = np.exp(age[begin:last] - age[begin])
            summed = np.cumsum(self._values[begin : last - 1] * np.diff(weight)[:, None], axis=0)
            levels[begin + 1 : last] = (levels[begin] + summed) / weight[1:, None]
        return levels

    @cached_property
    def _integral_of_integral(self) -> Array:
        return _summed(self._integral[:-1] * self._lasts_s + self._values * self._lasts_s**2 / 2.0)

    def _at(self, until_s: Array) -> tuple[NDArray[np.intp], Array]:
        """Return the segment that each time lies in, and how long that has lasted, shape (len(until_s), 1)."""
        at = np.clip(np.searchsorted(self._edges_s, until_s, side="right") - 1, 0, len(self._values) - 1)
        return at, (until_s - self._edges_s[at])[:, None]


def _summed(steps: Array) -> Array:
    return np.vstack([np.zeros((1, steps.shape[1])), np.cumsum(steps, axis=0)])
