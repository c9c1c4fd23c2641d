"""The energy of a typical iteration: the mean, as a counter that samples the power errs less over many iterations.

Where one iteration seems to take too little, the next seems to take too much: the median of single ones keeps the
error, and their mean does not. Iterations that were held up, or did other work, do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

__all__ = ["typical_energies_j"]

_TYPICAL = 0.1
"""Relative difference from the medians up to which an iteration is typical."""


def typical_energies_j(rows: Iterable[tuple[float | None, float | None]]) -> list[float]:
    """Return the energies of the iterations like most others; their mean is the typical energy.

    Args:
        rows: Time in s and energy in J of each iteration; None or NaN where unknown.
    """
    known = [
        (time_s, energy_j)
        for time_s, energy_j in rows
        if time_s is not None and energy_j is not None and energy_j == energy_j
    ]
    if not known:
        return []
    usual_s, usual_j = (median(column) for column in zip(*known, strict=True))
    return [
        energy_j
        for time_s, energy_j in known
        if abs(time_s - usual_s) <= _TYPICAL * usual_s and abs(energy_j - usual_j) <= _TYPICAL * usual_j
    ]
