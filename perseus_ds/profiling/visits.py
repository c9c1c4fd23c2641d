"""Which instances of an instruction ran at the clock asked for, although nothing seemed to change under them.

A sweep visits a clock for a few instructions. Now and then a clock comes much later than usual: then a whole visit ran
at the clock before. Its instances agree with each other and are wrong by tens of per cent, and a planner prefers them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median_low
from typing import NamedTuple

import numpy as np

from perseus_ds.profiling.table import CurveKey

__all__ = ["Settled", "at_their_clocks", "by_curve", "far_apart", "undisturbed_s"]

_OFF = 0.03
"""Distance from the curve, as a share of the time, from which on a visit is doubted."""
_ALIKE, _OUTLIER = 0.01, 4.0
"""How far apart instances of a curve at one clock may be: as a share, or in usual deviations."""
_LONG = 8
"""Instances of a curve in one visit that no clock is late for."""
_WHOLE = 24
"""Instances of all curves in one visit that no clock is late for: an iteration at one clock."""
_LEAST_CLOCKS = 6
_TERMS = 4  # of 1 / clock
_NEIGHBOURS = 4
_NOISE = 0.01
_UNDISTURBED, _DELAYED = 0.25, 1.1


class Settled(NamedTuple):
    """One instance of an instruction under which the clock did not change, as far as is known.

    Attributes:
        key: Its curve.
        mhz: The clock.
        seconds: Its duration.
        visit: Number of the time for which the clock stayed as it was.
    """

    key: CurveKey
    mhz: int
    seconds: float
    visit: int


def at_their_clocks(instances: Iterable[Settled]) -> list[Settled]:
    """Return the instances without those of late clocks.

    A short visit that is far from the smooth curve is left out, unless another visit of its clock says the same: that
    is a step of the curve. A late host makes whole iterations differ, too: they stay, or a curve might lack its
    highest clock.

    Args:
        instances: Of all curves of a GPU.
    """
    instances = list(instances)
    lasting = Counter(one.visit for one in instances)
    whole = {visit for visit, count in lasting.items() if count >= _WHOLE}
    return [one for each in by_curve(instances).values() for one in _of_one_curve(each, whole)]


def by_curve(instances: Iterable[Settled]) -> dict[CurveKey, list[Settled]]:
    """Return the instances of each curve, in their order."""
    found: dict[CurveKey, list[Settled]] = defaultdict(list)
    for one in instances:
        found[one.key].append(one)
    return found


def undisturbed_s(seconds: Sequence[float]) -> float:
    """Return the typical duration. A late host delays many instances by far, and hastens none: then the lower quartile.

    Args:
        seconds: At least one.
    """
    usual_s, least_s = median_low(seconds), float(np.quantile(seconds, _UNDISTURBED, method="lower"))
    return usual_s if usual_s <= _DELAYED * least_s else least_s


def far_apart(by_clock: Collection[Sequence[float]]) -> float:
    """Return how far from the typical duration an instance may be, as a share, before something is wrong with it.

    Args:
        by_clock: Durations of one curve's instances, by clock.
    """
    away = np.sort(np.concatenate([np.abs(np.array(some) / undisturbed_s(some) - 1.0) for some in by_clock]))
    away = away[len(by_clock) :]  # each measure itself says nothing of the spread
    return max(_OUTLIER * 1.4826 * float(np.median(away)), _ALIKE) if len(away) else _ALIKE


def _of_one_curve(instances: Sequence[Settled], whole: Collection[int]) -> list[Settled]:
    """Return the believed instances; those of ``whole`` visits all are."""
    visits: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one in instances:
        visits[one.mhz, one.visit].append(one.seconds)
    by_clock = _by_clock(instances)
    if len(by_clock) < _LEAST_CLOCKS:
        return list(instances)
    smooth_s = _smooth({place: undisturbed_s(seconds) for place, seconds in visits.items()})
    measured_s = {place: _nearest(seconds, smooth_s[place[0]]) for place, seconds in visits.items()}
    lasting = {place for place, seconds in visits.items() if len(seconds) >= _LONG or place[1] in whole}
    doubted = {place for place in visits if abs(measured_s[place] / smooth_s[place[0]] - 1.0) > _OFF} - lasting
    # A step of the curve: several visits of a clock tell the same.
    steps = {mhz for mhz in by_clock if _agree([time_s for (at, _), time_s in measured_s.items() if at == mhz])}
    believed = [one for one in instances if (one.mhz, one.visit) not in doubted or one.mhz in steps]
    # Of instances of a clock that differ, those had it that its neighbours speak for: it came late for the others.
    expected_s = _among_neighbours({mhz: _nearest(seconds, smooth_s[mhz]) for mhz, seconds in by_clock.items()})
    likely_s = {mhz: _nearest(seconds, expected_s[mhz]) for mhz, seconds in _by_clock(believed).items()}
    certain, apart = {mhz for mhz, _ in lasting}, far_apart(by_clock.values())
    return [one for one in believed if one.mhz in certain or abs(one.seconds / likely_s[one.mhz] - 1.0) <= apart]


def _by_clock(instances: Iterable[Settled]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for one in instances:
        found[one.mhz].append(one.seconds)
    return found


def _nearest(times_s: Iterable[float], to_s: float) -> float:
    return min(times_s, key=lambda time_s: abs(time_s - to_s))


def _agree(times_s: Sequence[float]) -> bool:
    """Whether several visits of a clock tell the same."""
    return len(times_s) > 1 and max(times_s) <= (1.0 + _OFF) * min(times_s)


def _smooth(measured_s: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Return a polynomial of 1 / clock that most visits are close to, at each of their clocks."""
    from scipy.optimize import least_squares
    from scipy.stats import theilslopes

    times_s = np.array(list(measured_s.values()))
    clocks_mhz = np.array([mhz for mhz, _ in measured_s], dtype=float)
    slowness = clocks_mhz.min() / clocks_mhz
    slope, level, *_ = theilslopes(times_s, slowness)
    powers = slowness[:, None] ** np.arange(min(_TERMS, len(set(clocks_mhz)) // 2))
    begin = np.array([level, slope] + [0.0] * (powers.shape[1] - 2))
    relative = powers / times_s[:, None]
    fit = least_squares(lambda terms: relative @ terms - 1.0, begin, loss="cauchy", f_scale=_NOISE)
    return {mhz: time_s for (mhz, _), time_s in zip(measured_s, (powers @ fit.x).tolist(), strict=True)}


def _among_neighbours(times_s: Mapping[int, float]) -> dict[int, float]:
    """Return for each clock the time that a line through its neighbours has there, which no step far off moves."""
    from scipy.stats import theilslopes

    clocks = sorted(times_s)
    found: dict[int, float] = {}
    for at, mhz in enumerate(clocks):
        first = min(max(0, at - _NEIGHBOURS // 2), len(clocks) - _NEIGHBOURS - 1)
        near = [other for other in clocks[first : first + _NEIGHBOURS + 1] if other != mhz]
        slope, level, *_ = theilslopes([times_s[other] for other in near], [1.0 / other for other in near])
        found[mhz] = float(np.polyval(np.array([slope, level]), 1.0 / mhz))
    return found
