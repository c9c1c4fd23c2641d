"""Iterations at other clocks than those before and after: a refreshed baseline among a plan's iterations.

A counter that averages shows them late. How late, and how much more they draw, is fitted in a sweep, where one can
stand for the other. An excursion tells by itself how much more it draws: all that the counter has shown from its begin
until it has faded, less what the usual iterations then draw. How late it was shown does not matter, but noise does, and
whatever else happens while it fades.

The energies of its iterations scatter less than they are uncertain: they share what is known of their end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, sqrt
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.spans import Span

__all__ = ["Excursion", "excursions", "told_apart"]

Array = NDArray[np.float64]

Bounds = tuple[float, float]

_MAY_BE_OFF = 0.2  # of what the counter shows late, as fitted
_LASTING = 0.5  # of the longest rest between excursions: where one is shorter, no line is drawn through them
_PROMPT = 0.1  # of an excursion: a counter that hides less at its end shows when in it the power was drawn


@dataclass(frozen=True)
class Excursion:
    """Iterations in a row at other clocks than the usual ones.

    Attributes:
        begin_s: Their begin.
        end_s: Their end.
        shown_s: By when the counter has shown them.
    """

    begin_s: float
    end_s: float
    shown_s: float


def excursions(spans: Sequence[Span], bounds_s: Sequence[Bounds], lag_s: float) -> list[Excursion]:
    """Return the excursions; none where the counter cannot tell all of them apart.

    Each needs usual iterations before it, and after it as many as it takes to show it.

    Args:
        spans: All work, in order of time.
        bounds_s: Begin and end of each iteration, in order.
        lag_s: How long the counter takes to show a change of the power in full.
    """
    ran = [span for span in spans if span.key is not None]
    begins_s = np.array([span.begin_s for span in ran])
    parts = [slice(*np.searchsorted(begins_s, one)) for one in bounds_s]
    programs = [tuple((span.key, span.frequency_mhz) for span in ran[part]) for part in parts]
    usual = Counter(programs).most_common(1)[0][0] if programs else ()
    told = [(program == usual, bound) for program, bound in zip(programs, bounds_s, strict=True)]
    runs = [(is_usual, [bound for _, bound in run]) for is_usual, run in groupby(told, itemgetter(0))]
    if not runs or not runs[0][0] or not runs[-1][0]:
        return []
    found = [Excursion(run[0][0], run[-1][1], run[-1][1] + lag_s) for _, run in runs[1::2]]
    in_time = (one.shown_s <= later[-1][1] for one, (_, later) in zip(found, runs[2::2], strict=True))
    return found if all(in_time) else []


def told_apart(
    apart: Sequence[Excursion],
    unseen: Sequence[float],
    within_s: Bounds,
    times_s: Array,
    missed_j: Array,
    late_j: Array,
) -> tuple[Array, Array, float]:
    """Return a better curve of what the fitted powers miss: with what an excursion itself tells of its end.

    By the fit, an excursion misses what the counter says at its end, and what it has still to show by then. By itself,
    it misses all until it has been shown, less what usual iterations miss in that time. The more certain one counts
    more.

    Args:
        apart: Excursions.
        unseen: The share of each that the counter has still to show at its end.
        within_s: Begin of the first usual iteration and end of the last.
        times_s: When the counter was read, shape (n,).
        missed_j: What it has shown beyond what it would show of the fitted powers, shape (n,).
        late_j: What it has still to show of the fitted powers, shape (n,).

    Returns:
        Times and joules of the curve; as given without excursions, or where the counter was not read throughout. And
        the standard deviation of what all excursions drew, in J, beyond what their iterations scatter.
    """
    if not apart or times_s[0] > within_s[0] or times_s[-1] < apart[-1].shown_s:
        return times_s, missed_j, 0.0
    inside = [(times_s > one.begin_s) & (times_s < one.shown_s) for one in apart]
    outside = ~np.any(inside, axis=0)
    usual = _usual(apart, outside & (times_s >= within_s[0]) & (times_s <= within_s[1]), within_s, times_s, missed_j)
    knots = [*zip(times_s[outside].tolist(), missed_j[outside].tolist(), strict=True)]
    doubt_j2 = 0.0
    for one, polls, hidden in zip(apart, inside, unseen, strict=True):
        begin_j, at_end_j, all_j = np.interp([one.begin_s, one.end_s, one.shown_s], times_s, missed_j).tolist()
        # What it misses more than usual iterations do is shown as late as the rest of it.
        more_j = at_end_j - begin_j - usual.missed_j(one.begin_s, one.end_s)
        by_fit_j = at_end_j + more_j * hidden / (1.0 - hidden)
        by_itself_j = all_j - usual.missed_j(one.end_s, one.shown_s)
        within = polls & (times_s < one.end_s)
        late_all_j = _between(times_s, late_j, one.begin_s, one.end_s) + by_fit_j - at_end_j
        by_fit_j2 = (_MAY_BE_OFF * late_all_j) ** 2
        fading_j2 = usual.noise_j2((polls & ~within).sum()) + usual.doubt_j2(one.end_s, one.shown_s)
        by_itself_j2 = fading_j2 + usual.noise_j2(within.sum())
        share = by_fit_j2 / max(by_fit_j2 + by_itself_j2, 1e-9)
        end_j = by_fit_j + share * (by_itself_j - by_fit_j)
        doubt_j2 += (1.0 - share) ** 2 * by_fit_j2 + (share**2 * fading_j2 if share else 0.0)
        knots += [(one.begin_s, begin_j), (one.end_s, end_j), (one.shown_s, all_j)]
        if hidden < _PROMPT:
            so_far = (times_s[within] - one.begin_s) / (one.end_s - one.begin_s)
            better_j = missed_j[within] + so_far * (end_j - at_end_j)
            knots += zip(times_s[within].tolist(), better_j.tolist(), strict=True)
        elif isfinite(by_itself_j2):  # its iterations lie on one line, so the counter's noise is not in their scatter
            doubt_j2 += usual.noise_j2(within.sum())
    both = np.array(sorted(knots))
    return both[:, 0], both[:, 1], sqrt(doubt_j2)


@dataclass(frozen=True)
class _Usual:
    """What the fitted powers miss of usual iterations: a line, as GPUs get warmer.

    Attributes:
        power_w: Its mean.
        warming_w_per_s: Its slope.
        centre_s: Where it passes through its mean.
        rest_s: How long the usual iterations took that told this.
        spread_s3: Their squared distances from the centre, over all that time.
        readings: How many readings they had.
        reading_j2: Variance of a reading's step.
    """

    power_w: float
    warming_w_per_s: float
    centre_s: float
    rest_s: float
    spread_s3: float
    readings: int
    reading_j2: float

    def missed_j(self, begin_s: float, end_s: float) -> float:
        """Return what is missed of usual work in this time."""
        return (self.power_w + self.warming_w_per_s * self._off_s(begin_s, end_s)) * (end_s - begin_s)

    def doubt_j2(self, begin_s: float, end_s: float) -> float:
        """Return the variance of that."""
        told = 1.0 / self.rest_s
        if self.spread_s3:
            told += self._off_s(begin_s, end_s) ** 2 / self.spread_s3
        return (end_s - begin_s) ** 2 * told * self.noise_j2(self.readings) / self.rest_s

    def noise_j2(self, readings: float) -> float:
        """Return the variance of the sum of so many readings; infinite where too few tell it, even of none."""
        return self.reading_j2 * readings if isfinite(self.reading_j2) else self.reading_j2

    def _off_s(self, begin_s: float, end_s: float) -> float:
        return (begin_s + end_s) / 2.0 - self.centre_s


def _usual(
    apart: Sequence[Excursion], among: NDArray[np.bool_], within_s: Bounds, times_s: Array, missed_j: Array
) -> _Usual:
    """Return what is usual, by the readings ``among`` all: a line through the rests between excursions."""
    begins_s = np.array([within_s[0], *(one.shown_s for one in apart)])
    ends_s = np.array([*(one.begin_s for one in apart), within_s[1]])
    lasts_s, centres_s = ends_s - begins_s, (begins_s + ends_s) / 2.0
    rests_j = np.array([_between(times_s, missed_j, *rest) for rest in zip(begins_s, ends_s, strict=True)])
    rest_s = float(lasts_s.sum())
    power_w, centre_s = float(rests_j.sum()) / rest_s, float(lasts_s @ centres_s) / rest_s
    off_s = centres_s - centre_s
    spread_s3 = float(lasts_s @ off_s**2) if lasts_s.min() > _LASTING * lasts_s.max() else 0.0
    warming_w_per_s = float(rests_j @ off_s) / spread_s3 if spread_s3 else 0.0
    steps_j = np.diff(missed_j)[among[1:] & among[:-1]]
    reading_j2 = float(np.var(steps_j)) if len(steps_j) > 1 else np.inf
    return _Usual(power_w, warming_w_per_s, centre_s, rest_s, spread_s3, int(among.sum()), reading_j2)


def _between(times_s: Array, curve_j: Array, begin_s: float, end_s: float) -> float:
    return float(np.diff(np.interp([begin_s, end_s], times_s, curve_j))[0])
