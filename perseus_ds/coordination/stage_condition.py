"""The condition of a stage: as profiled, slower by a factor, or held at a clock.

A hot GPU does not run everything slower. It holds no clock above a ceiling. Instructions planned below the ceiling take
their time as ever (design of Perseus, SOSP '24, section 2.3: thermal throttling of stragglers).

A condition is one float. 1.0 is as profiled, and more is a factor on the times at all clocks. Below 0, it is minus the
ceiling in MHz.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from perseus_ds.profiling.table import CurveKey

__all__ = ["Health", "Timed", "ceiling_mhz", "health", "time_up_to_s"]

_FITS_WITHIN = 0.03
_SURE = 3 * 1.2533  # standard deviations of a median, times the root of how many micro-batches it is of

ExpectedTimes = Mapping[tuple[CurveKey, int], float]
"""Seconds by curve and SM clock."""


class Timed(NamedTuple):
    """An instruction that has run.

    Attributes:
        key: Its curve.
        mhz: Its requested clock.
        time_s: Its duration, as if the clock had come in time.
    """

    key: CurveKey
    mhz: int
    time_s: float


class Health(NamedTuple):
    """What one rank says of its stage.

    Attributes:
        slowdown: Measured over expected instruction time; with a ceiling, shortest possible time over the profile's.
            NaN: nothing is newer than what was said before.
        ceiling_mhz: Clock that the GPU is held at; 0: none.
    """

    slowdown: float = 1.0
    ceiling_mhz: int = 0


def ceiling_mhz(condition: float) -> int | None:
    """Return the ceiling of a condition; None: it is a factor."""
    return round(-condition) if condition < 0.0 else None


def health(
    ran: Sequence[Timed], expected_s: ExpectedTimes, held_mhz: int, capped_mhz: int = 0, spread: float = 0.0
) -> Health:
    """Return the health of a stage from one iteration.

    Args:
        ran: The instructions of the iteration.
        expected_s: The profile's times.
        held_mhz: Clock that the throttled GPU was seen at; 0: none.
        capped_mhz: Clock that the power limit hardly went below; 0: it did not matter. Down to there, nothing is slow:
            what a GPU draws before an instruction decides which clock it holds.
        spread: Relative standard deviation of micro-batches: what they may do by chance is no slowdown.
    """
    known = [one for one in ran if expected_s.get((one.key, one.mhz), 0.0) > 0.0]
    if not known:
        return Health()
    factor = median(_slower(one, expected_s, capped_mhz) for one in known)
    above = [one for one in known if one.mhz > held_mhz > 0]
    if above:
        fits = median(one.time_s / time_up_to_s(expected_s, one.key, held_mhz) for one in above)
        unheld = median(one.time_s / expected_s[one.key, one.mhz] for one in above)
        if abs(fits - 1.0) <= _FITS_WITHIN < unheld - 1.0:
            least_s = sum(time_up_to_s(expected_s, one.key, held_mhz) for one in known)
            profiled_s = sum(min(s for (key, _), s in expected_s.items() if key == one.key) for one in known)
            return Health(least_s / profiled_s, held_mhz)
    by_chance = _SURE * spread / sqrt(max(len(known) / 2.0, 1.0))
    return Health(float(factor) if abs(factor - 1.0) > by_chance else 1.0)


def _slower(one: Timed, expected_s: ExpectedTimes, capped_mhz: int) -> float:
    """Return how much longer than expected an instruction took, at its clock or at one that the power limit allows."""
    slower = one.time_s / expected_s[one.key, one.mhz]
    if slower <= 1.0 or not 0 < capped_mhz < one.mhz:
        return slower
    lowest_mhz = min(mhz for key, mhz in expected_s if key == one.key)
    beyond = max(1.0, lowest_mhz / capped_mhz)  # below all profiled clocks, a time grows at most as the clock falls
    return max(1.0, one.time_s / (beyond * time_up_to_s(expected_s, one.key, capped_mhz)))


def time_up_to_s(expected_s: ExpectedTimes, key: CurveKey, mhz: float) -> float:
    """Return the shortest time, in seconds, of a curve at clocks up to ``mhz``; if all are higher, its longest."""
    times_s = {clock: time_s for (of, clock), time_s in expected_s.items() if of == key}
    return min((time_s for clock, time_s in times_s.items() if clock <= mhz), default=max(times_s.values()))
