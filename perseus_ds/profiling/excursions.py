"""Iterations at other clocks than those before and after: a refreshed baseline among a plan's iterations.

A counter that averages shows them late. How late, and how much more they draw, is fitted in a sweep, where one can
stand for the other. An excursion tells by itself how much more it draws: all that the counter has shown from its begin
until it has faded, less what the usual iterations then draw. How late it was shown does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.spans import Span

__all__ = ["Excursion", "excursions", "power_scales"]

Array = NDArray[np.float64]

Bounds = tuple[float, float]


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


def power_scales(
    apart: Sequence[Excursion], within_s: Bounds, times_s: Array, counter_j: Array, shown_j: Array
) -> Array:
    """Return what the fitted powers have to be multiplied by to agree with the counter.

    Args:
        apart: Excursions.
        within_s: Begin and end of the usual iterations and excursions together.
        times_s: When the counter was read, shape (n,).
        counter_j: What it showed, shape (n,).
        shown_j: What it would show of the fitted powers, first of all but the excursions and then of each, shape
            (n, 1 + excursions).

    Returns:
        In the order of the columns; all ones without excursions.
    """

    def sums_j(begin_s: float, end_s: float) -> Array:
        both = [np.interp([begin_s, end_s], times_s, column) for column in (counter_j, *shown_j.T)]
        return np.diff(both)[:, 0]

    if not apart:
        return np.ones(1)
    rows_j = [sums_j(one.begin_s, one.shown_s) for one in apart]
    rest_j = sums_j(*within_s) - np.sum(rows_j, axis=0)
    usual = rest_j[0] / rest_j[1]
    return np.array([usual, *((row[0] - usual * row[1]) / row[2 + k] for k, row in enumerate(rows_j))])
