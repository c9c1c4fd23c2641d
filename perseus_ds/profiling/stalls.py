"""What instructions took beyond what their clocks let them take: late hosts, and other work beside them.

A GPU whose host is late waits in the midst of what looks like an instruction. But no host is late in every iteration:
beside the last backwards gradients are reduced, which slows them down at their position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf, isnan, nan

import numpy as np

from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = ["TimeOf", "slowed", "time_of", "without_stalls"]

TimeOf = Callable[[CurveKey, int], float | None]
"""Returns the seconds of a curve at a clock in MHz; None: not known."""

_Points = Mapping[CurveKey, Sequence[ProfilePoint]]

_STALLED = 1.05
"""An instruction that took longer than this multiple of its time at any clock in question has stood still meanwhile."""
_ALL_OLD = 0.97
_FEW, _LEAST, _LONGER = 3, 0.1, 1.02
"""So many instructions tell that they take longer at their position, if nearly all take so many times as long."""
_STAYS = 16  # instructions after which a clock that was asked for no more has gone


def time_of(points: _Points) -> TimeOf:
    """Return the times of curves; at a clock of which none is known those between its neighbours'.

    Args:
        points: The time of each instruction at each clock.
    """
    known = {key: np.array([(p.frequency_mhz, p.time_s) for p in sorted(row)]).T for key, row in points.items() if row}

    @cache
    def time_s(key: CurveKey, mhz: int) -> float | None:
        if key not in known:
            return None
        one_s = float(np.interp(mhz, *known[key], left=nan, right=nan))
        return None if isnan(one_s) else one_s

    return time_s


def without_stalls(spans: Sequence[Span], points: _Points, limit_s: Mapping[CurveKey, float]) -> list[Span]:
    """Return spans of which those that took too long begin later: where the host is late, the GPU waits for it.

    Args:
        spans: Work in order of time.
        points: The time of each instruction at each clock that can be held.
        limit_s: The longest that each instruction may take at other clocks.
    """
    return [
        replace(span, begin_s=span.end_s - most_s) if span.lasted_s > _STALLED * most_s else span
        for span, (_, most_s) in zip(spans, _expected_s(spans, points, limit_s), strict=True)
    ]


def slowed(spans: Sequence[Span], points: _Points) -> list[Span]:
    """Return spans with how much something beside them slows them down at their position: even the fastest ones.

    Args:
        spans: Work in order of time.
        points: The time of each instruction at each clock that can be held.
    """
    longer: dict[tuple[CurveKey, int], list[float]] = defaultdict(list)
    for span, (now_s, most_s) in zip(spans, _expected_s(spans, points, {}), strict=True):
        if (place := _place(span)) and now_s == most_s < inf:
            longer[place].append(span.lasted_s / now_s)
    least = {place: np.quantile(some, _LEAST, method="lower") for place, some in longer.items() if len(some) >= _FEW}
    found = {place: float(times) for place, times in least.items() if times > _LONGER}
    return [replace(span, slowed=found[place]) if (place := _place(span)) in found else span for span in spans]


def _place(span: Span) -> tuple[CurveKey, int] | None:
    """Return an instruction's curve and micro-batch."""
    return (span.key, span.batch[1]) if span.key and span.batch else None


def _expected_s(
    spans: Sequence[Span], points: _Points, limit_s: Mapping[CurveKey, float]
) -> Iterator[tuple[float, float]]:
    """Yield how long each takes at its own clock, and at most at any that may still be in force; inf: not known."""
    time_s = time_of(points)
    asked: dict[int, int] = {}  # clocks that may be in force, and the number of the last instruction asked for at it
    for number, span in enumerate(spans):
        if span.key is None:
            yield inf, inf
            continue
        known = ((mhz, time_s(span.key, mhz)) for mhz, last in asked.items() if last >= number - _STAYS)
        earlier_s = {mhz: span.longer * one_s for mhz, one_s in known if one_s is not None}
        own_s = time_s(span.key, span.frequency_mhz)
        now_s = span.longer * (limit_s.get(span.key, inf) if own_s is None else own_s)
        yield now_s, max([now_s, *earlier_s.values()])
        # What was faster than a clock lets it be did not run at that clock.
        old = {mhz: asked[mhz] for mhz, one_s in earlier_s.items() if span.lasted_s >= _ALL_OLD * one_s}
        asked = old | {span.frequency_mhz: number}
