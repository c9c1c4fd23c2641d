"""Power from an energy counter that lags and steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from perseus_ds.silicon.lab import Lab

__all__ = ["Rows", "changed", "counted_between", "power_w", "steady"]

Rows = Sequence[tuple[float, tuple[float, ...]]]
"""Time and values of each reading of a watch."""

_SETTLES_S = 1.5
_MEASURED_S = 3.0


def changed(rows: Rows, which: int = 0) -> list[tuple[float, float]]:
    """Return the points where a value changed, by default the first."""
    points = [(at_s, values[which]) for at_s, values in rows]
    return [new for old, new in itertools.pairwise(points) if new[1] != old[1]]


def power_w(rows: Rows, begin_s: float, end_s: float) -> float:
    """Return the slope of the energy counter, which is the first value; NaN if it hardly moved."""
    points = [(at_s - begin_s, energy_j) for at_s, energy_j in changed(rows) if begin_s < at_s <= end_s]
    if len(points) < 4:
        return float("nan")
    at_s, energy_j = np.array(points).T
    return float(np.polyfit(at_s, energy_j, 1)[0])


def counted_between(rows: Rows, begin_s: float, end_s: float) -> float:
    """Return what the energy counter, which is the first value, counted between two times with a steady power."""
    at_s, energy_j = np.array(changed(rows)).T
    begin_j, end_j = np.interp([begin_s, end_s], at_s, energy_j)
    return float(end_j - begin_j)


def steady(lab: Lab, names: Sequence[str]) -> Rows:
    """Return what is read while what has just been enqueued runs on, after some time to settle.

    Args:
        lab: Its stream holds at least 4.5 s of work, or nothing.
        names: Readings.
    """
    lab.sleep(_SETTLES_S)
    watch = lab.watch(names)
    lab.sleep(_MEASURED_S)
    rows = watch.stop()
    lab.synchronize()
    return rows
