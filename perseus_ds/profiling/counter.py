"""The GPU's energy counter as a regression sees it: increments, and what ran while power was sampled.

Energy counters move every 10-100 ms, and some GPUs look at the power in a part of that period only (A100 and
H100: about 25 %, arXiv 2312.02741). An increment then tells the power of the sampled window, times the
period. Which part that is nobody documents, but only with the right one do the increments fit what ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FULL_PERIOD", "CounterTrace", "SampledWindow", "Timeline", "counter_trace", "find_window"]

Array = NDArray[np.float64]

_WIDTHS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175, 0.125)
_OFFSET_STEP = 0.05
_EVIDENCE = 12.0
_REGULAR = 0.7
_LATEST = 0.9


@dataclass(frozen=True)
class SampledWindow:
    """The part of an update period in which the GPU looks at its power, as fractions of the period.

    Attributes:
        offset: From the window's end to the update that shows it.
        width: The window's length; 1 when all the period counts.
    """

    offset: float
    width: float


FULL_PERIOD = SampledWindow(0.0, 1.0)


@dataclass(frozen=True)
class CounterTrace:
    """Updates of an energy counter.

    Attributes:
        updates_s: Times of all updates, seen or missed, shape (u + 1,).
        period_s: Time between two updates.
        first: Index of the update at which each increment begins, shape (n,).
        last: Index of the update at which it ends; last = first + 1 unless an update was missed, shape (n,).
        energy_j: The increments, shape (n,).
    """

    updates_s: Array
    period_s: float
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    energy_j: Array


class Timeline:
    """What a GPU did over time, as a piecewise constant function with values in R^c.

    Args:
        edges_s: Segment borders, ascending, shape (m + 1,).
        values: What each segment counts as, shape (m, c).
    """

    def __init__(self, edges_s: Array, values: Array) -> None:
        self._edges_s = edges_s
        self._values = values
        steps = values * np.diff(edges_s)[:, None]
        self._integral = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(steps, axis=0)])

    def integral(self, until_s: Array) -> Array:
        """Return the integral from the first edge to each of ``until_s``, shape (len(until_s), c)."""
        at = np.clip(np.searchsorted(self._edges_s, until_s, side="right") - 1, 0, len(self._values) - 1)
        return self._integral[at] + self._values[at] * (until_s - self._edges_s[at])[:, None]

    def exposure(self, trace: CounterTrace, window: SampledWindow) -> Array:
        """Return what each increment of ``trace`` saw, in seconds scaled to whole periods, shape (n, c)."""
        period_s = np.diff(trace.updates_s)
        end_s = trace.updates_s[1:] - window.offset * period_s
        seen = (self.integral(end_s) - self.integral(end_s - window.width * period_s)) / window.width
        summed = np.vstack([np.zeros((1, seen.shape[1])), np.cumsum(seen, axis=0)])
        return summed[trace.last] - summed[trace.first]


def counter_trace(
    samples: Sequence[tuple[float, float]],
    begin_s: float,
    end_s: float,
    excluded: Sequence[tuple[float, float]] = (),
) -> CounterTrace | None:
    """Put the changed points of a polled counter on the grid of its updates.

    A poll sees an update up to one polling interval late, or much later on a busy host. Updates are regular, so
    all polls together tell their times far better than each does. Where they are not regular, each poll's time
    is taken.

    Args:
        samples: (monotonic time in seconds, counter in joules) of each changed point, ascending.
        begin_s: Increments that may have seen anything before are dropped.
        end_s: Increments that end later are dropped.
        excluded: (begin, end) of times; increments that may have seen any of them are dropped.

    Returns:
        The trace, or None when the counter moved too seldom to tell anything.
    """
    times, energy = np.array(samples, dtype=float).reshape(-1, 2).T
    if len(times) < 4:
        return None
    period_s, phase_s, regularity = _grid(times)
    if regularity > _REGULAR:
        index = _update_numbers((times - phase_s) / period_s)
        updates_s = phase_s + period_s * np.arange(index[0], index[-1] + 1)
        index -= index[0]
    else:
        period_s = float(np.median(np.diff(times)))
        index = np.arange(len(times))
        updates_s = times
    first, last, increments = index[:-1], index[1:], np.diff(energy)
    # A window may lie up to one period before its update.
    whole = (updates_s[first] - period_s >= begin_s) & (updates_s[last] <= end_s) & (last > first)
    for from_s, until_s in excluded:
        whole &= (updates_s[last] <= from_s) | (updates_s[first] - period_s >= until_s)
    kept = whole & (increments > 0)
    if np.count_nonzero(kept) < 3:
        return None
    return CounterTrace(updates_s, period_s, first[kept], last[kept], increments[kept])


def _grid(times_s: Array) -> tuple[float, float, float]:
    """Find the period and phase that times come at, and how regular they are (1: exactly).

    The mean of the times as phases on a circle is longest at the right period; each doubling of the length looked
    at makes the period sharper.
    """
    since_s = times_s - times_s[0]

    def sharpened(period_s: float, spread: float, length: int) -> tuple[float, complex]:
        candidates = period_s * (1.0 + np.linspace(-spread, spread, 81))
        means = np.exp(2j * np.pi * since_s[:length] / candidates[:, None]).mean(axis=1)
        best = int(np.argmax(np.abs(means)))
        return float(candidates[best]), complex(means[best])

    length, spread = 16, 0.15
    period_s, mean = sharpened(float(np.median(np.diff(times_s))), spread, length)
    while length < len(times_s):
        spread = period_s / since_s[length - 1]
        length *= 2
        period_s, mean = sharpened(period_s, spread, length)
    period_s, mean = sharpened(period_s, spread / 20, length)
    phase_s = float(times_s[0] + np.angle(mean) / (2 * np.pi) * period_s)
    return period_s, phase_s, abs(mean)


def _update_numbers(positions: Array) -> NDArray[np.intp]:
    """Return which update each poll saw; a late one is told by the next, which saw a later update.

    A poll a whole period late would have seen the next update: such points are left with equal numbers.
    """
    numbers = np.rint(positions).astype(np.intp)
    for at in range(len(numbers) - 2, -1, -1):
        if numbers[at] >= numbers[at + 1] and positions[at] - (numbers[at + 1] - 1) < _LATEST:
            numbers[at] = numbers[at + 1] - 1
    return numbers


def find_window(trace: CounterTrace, timeline: Timeline) -> SampledWindow:
    """Find the sampled window under which the increments fit the timeline best.

    Args:
        trace: The increments.
        timeline: What ran, with few values (a smooth power curve per instruction kind).

    Returns:
        The window; the full period unless another explains the increments clearly better.
    """
    count = len(trace.energy_j)

    def score(window: SampledWindow) -> float:
        return count * float(np.log(_misfit(timeline.exposure(trace, window), trace.energy_j)))

    full = score(FULL_PERIOD)
    tried = {
        window: score(window)
        for width in _WIDTHS
        for offset in np.arange(0.0, 1.0 + _OFFSET_STEP / 2, _OFFSET_STEP)
        if offset + width <= 1.5
        for window in [SampledWindow(float(offset), width)]
    }
    best = min(tried, key=lambda window: tried[window])
    step = _OFFSET_STEP / 2
    while step > 0.004:
        near = [
            SampledWindow(best.offset + shift * step, best.width + stretch * step)
            for shift in (-1, 0, 1)
            for stretch in (-1, 0, 1)
            if 0.02 < best.width + stretch * step < 1.05 and best.offset + shift * step > -0.1
        ]
        better = min(near, key=score)
        if better == best:
            step /= 2
        best = better
    return best if score(best) < full - _EVIDENCE else FULL_PERIOD


def _misfit(exposure: Array, energy_j: Array) -> float:
    """Return the mean squared relative residual of a least-squares fit, the largest tenth left out."""
    design = exposure / energy_j[:, None]
    target: Any = np.ones(len(energy_j))
    solution = np.linalg.lstsq(design, target, rcond=1e-9)[0]
    squares = np.sort((design @ solution - target) ** 2)
    return float(np.mean(squares[: 1 + len(squares) * 9 // 10])) + 1e-12
