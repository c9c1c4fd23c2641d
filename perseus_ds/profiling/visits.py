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

__all__ = ["Settled", "at_their_clocks", "by_curve", "undisturbed_s"]

_OFF = 0.03
"""Distance from the curve, as a share of the time, from which on a visit is doubted."""
_LONG = 8
"""Instances of a curve in one visit that no clock is late for."""
_WHOLE = 24
"""Instances of all curves in one visit that no clock is late for: an iteration at one clock."""
_LEAST_CLOCKS = 6
_TERMS = 4  # of 1 / clock
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


def _of_one_curve(instances: Sequence[Settled], whole: Collection[int]) -> list[Settled]:
    """Return the believed instances; those of ``whole`` visits all are."""
    visits: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one in instances:
        visits[one.mhz, one.visit].append(one.seconds)
    measured_s = {place: undisturbed_s(seconds) for place, seconds in visits.items()}
    if len({mhz for mhz, _ in visits}) < _LEAST_CLOCKS:
        return list(instances)
    smooth_s = _smooth(measured_s)
    doubted = {
        place
        for place, time_s in measured_s.items()
        if abs(time_s / smooth_s[place] - 1.0) > _OFF and len(visits[place]) < _LONG and place[1] not in whole
    }
    steps = {mhz for mhz, _ in visits if _agree([time_s for (at, _), time_s in measured_s.items() if at == mhz])}
    return [one for one in instances if (one.mhz, one.visit) not in doubted or one.mhz in steps]


def _agree(times_s: Sequence[float]) -> bool:
    """Whether several visits of a clock tell the same."""
    return len(times_s) > 1 and max(times_s) <= (1.0 + _OFF) * min(times_s)


def _smooth(measured_s: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Return a polynomial of 1 / clock that most visits are close to, at each of them."""
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
    return dict(zip(measured_s, (powers @ fit.x).tolist(), strict=True))
