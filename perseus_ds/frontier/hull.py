"""From measured points to a planner's choices: Pareto options and their lower convex hull.

Energies here are effective: energy minus blocking power times duration, because an idle GPU still draws blocking
power (Perseus, SOSP '24, section 4.2). They may be negative; the energies reported to users never are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.table import ProfilePoint

__all__ = ["Options", "lower_hull", "pareto_options", "thin_hull"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Options:
    """The Pareto-optimal choices of one curve in time and effective energy.

    All arrays have shape (options,), times ascending and effective energies descending.

    Attributes:
        frequency_mhz: SM clocks.
        time_s: Durations.
        effective_j: Effective energies.
        hull: Indices of the options on the lower convex hull, first and last included.
        error_j: Largest distance of the chords over ``hull`` above the full hull; 0 unless thinned.
    """

    frequency_mhz: NDArray[np.int64]
    time_s: FloatArray
    effective_j: FloatArray
    hull: NDArray[np.int64]
    error_j: float


def pareto_options(points: Sequence[ProfilePoint], blocking_power_w: float, tolerance: float = 0.0) -> Options:
    """Return the Pareto options of a measured curve, in any order and with any noise.

    Args:
        points: At least one point.
        blocking_power_w: Power of a waiting GPU.
        tolerance: Allowed error of the hull, relative to the curve's least measured energy.
    """
    rows = np.array([(p.frequency_mhz, p.time_s, p.energy_j) for p in points], dtype=np.float64)
    effective = rows[:, 2] - blocking_power_w * rows[:, 1]
    order = np.lexsort((-rows[:, 0], effective, rows[:, 1]))
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(effective[order])[:-1]))
    kept = order[effective[order] < best_before]
    times, energies = rows[kept, 1], effective[kept]
    hull = lower_hull(times, energies)
    error = 0.0
    if tolerance > 0:
        hull, error = thin_hull(times, energies, hull, tolerance * float(rows[:, 2].min()))
    return Options(rows[kept, 0].astype(np.int64), times, energies, hull, error)


def lower_hull(times: FloatArray, energies: FloatArray) -> NDArray[np.int64]:
    """Return the indices of the lower convex hull (Andrew's monotone chain, O(points)).

    Args:
        times: Strictly ascending.
        energies: Strictly descending.
    """
    x, y = times.tolist(), energies.tolist()
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull, dtype=np.int64)


def thin_hull(
    times: FloatArray, energies: FloatArray, hull: NDArray[np.int64], allowed_j: float
) -> tuple[NDArray[np.int64], float]:
    """Drop hull points while the chords stay within ``allowed_j`` of the hull.

    Each kept point is followed by the farthest possible one (greedy, O(points²)).

    Returns:
        The kept indices, and the largest error in joules, at most ``allowed_j``.
    """
    x, y = times[hull], energies[hull]
    kept, worst, at = [0], 0.0, 0
    while at < len(hull) - 1:
        best, best_error = at + 1, 0.0
        for end in range(at + 2, len(hull)):
            chord = y[at] + (y[end] - y[at]) / (x[end] - x[at]) * (x[at + 1 : end] - x[at])
            error = float(np.max(chord - y[at + 1 : end]))
            if error > allowed_j:
                break
            best, best_error = end, error
        kept.append(best)
        worst, at = max(worst, best_error), best
    return hull[kept], worst
