"""When each clock really came: an instruction under which the clock changed tells it by how long it took.

The time from a request to the new clock depends on the target clock, and now and then it is far longer. One latency
for all would count seconds of one clock for another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isnan, nan
from statistics import median

import numpy as np

from perseus_ds.profiling.spans import Change, Span
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = ["arrivals", "told_latencies_s", "without_stalls"]

_CONTRAST = 0.02
"""Least difference of an instruction's times at two clocks, as a share, for its time to tell the border."""
_STALLED = 1.05
"""An instruction that took longer than this multiple of its time at any clock in question has stood still meanwhile."""
_ALL_NEW, _ALL_OLD = 0.03, 0.97

_Times = Callable[[CurveKey, int], float | None]


@dataclass(frozen=True)
class _Told:
    """What the instructions after a request tell of its arrival: it lies between two times."""

    least_s: float
    most_s: float
    missed: bool = False  # the next request was first

    @property
    def exact(self) -> bool:
        return self.least_s == self.most_s


def arrivals(
    spans: Sequence[Span], asked: Sequence[Change], points: Mapping[CurveKey, Sequence[ProfilePoint]]
) -> list[Change]:
    """Return the changes with the arrivals that the instructions' times tell.

    Args:
        spans: Work in order of time.
        asked: The changes asked for, in order of time, with arrivals as roughly known.
        points: The time of each instruction at each clock.

    Returns:
        The same changes, but those that never came: the next clock was asked for, or came, before. One that no
        instruction tells of came as those to the same clock mostly did.
    """
    told = list(_told(spans, asked, _times_s(points)))
    latencies_s: dict[int, list[float]] = defaultdict(list)
    for change, one in zip(asked, told, strict=True):
        if one.exact:
            latencies_s[change.mhz].append(one.least_s - change.asked_s)
    typical_s = {mhz: median(each) for mhz, each in latencies_s.items()}
    overall_s = median(typical_s.values()) if typical_s else None
    found: list[Change] = []
    for change, one in zip(asked, told, strict=True):
        if one.missed:
            continue
        usual_s = typical_s.get(change.mhz, overall_s)
        arrives_s = change.arrives_s if usual_s is None else change.asked_s + usual_s
        arrives_s = min(max(arrives_s, one.least_s), one.most_s)
        while found and found[-1].arrives_s > one.most_s:
            found.pop()
        if found:
            arrives_s = max(arrives_s, found[-1].arrives_s)
        found.append(replace(change, arrives_s=arrives_s))
    return found


def told_latencies_s(
    spans: Sequence[Span], asked: Sequence[Change], points: Mapping[CurveKey, Sequence[ProfilePoint]]
) -> dict[int, tuple[float, ...]]:
    """Return the times from a request to a clock in MHz, of the changes that came while an instruction ran.

    Args:
        spans: See ``arrivals``.
        asked: See there.
        points: See there.
    """
    found: dict[int, tuple[float, ...]] = {}
    for change, one in zip(asked, _told(spans, asked, _times_s(points)), strict=True):
        if one.exact and one.least_s > change.asked_s:  # else the instruction was fast for another reason
            found[change.mhz] = (*found.get(change.mhz, ()), one.least_s - change.asked_s)
    return found


def without_stalls(
    spans: Sequence[Span],
    points: Mapping[CurveKey, Sequence[ProfilePoint]],
    limit_s: Mapping[CurveKey, float],
) -> list[Span]:
    """Return spans of which those that took too long begin later: where the host is late, the GPU waits for it.

    Args:
        spans: Work in order of time.
        points: The time of each instruction at each clock that can be held.
        limit_s: The longest that each instruction may take at other clocks.
    """
    time_s = _times_s(points)
    found: list[Span] = []
    earlier_mhz: set[int] = set()  # clocks that may be in force still
    for span in spans:
        if span.key is None:
            found.append(span)
            continue
        known = ((mhz, time_s(span.key, mhz)) for mhz in earlier_mhz)
        earlier_s = {mhz: span.size * one_s for mhz, one_s in known if one_s is not None}
        now_s = time_s(span.key, span.frequency_mhz)
        longest_s = max([span.size * (limit_s.get(span.key, inf) if now_s is None else now_s), *earlier_s.values()])
        lasted_s = span.end_s - span.begin_s
        found.append(replace(span, begin_s=span.end_s - longest_s) if lasted_s > _STALLED * longest_s else span)
        # What was faster than a clock lets it be did not run at that clock.
        earlier_mhz = {span.frequency_mhz, *(mhz for mhz, one_s in earlier_s.items() if lasted_s >= _ALL_OLD * one_s)}
    return found


def _times_s(points: Mapping[CurveKey, Sequence[ProfilePoint]]) -> _Times:
    """Return the seconds of a curve at a clock; a clock of which none are known has those between its neighbours'."""
    known = {key: np.array([(p.frequency_mhz, p.time_s) for p in sorted(row)]).T for key, row in points.items() if row}

    @cache
    def time_s(key: CurveKey, mhz: int) -> float | None:
        if key not in known:
            return None
        one_s = float(np.interp(mhz, *known[key], left=nan, right=nan))
        return None if isnan(one_s) else one_s

    return time_s


def _told(spans: Sequence[Span], asked: Sequence[Change], time_s: _Times) -> Iterator[_Told]:
    """Yield what is told of each change."""
    work = [span for span in spans if span.key is not None]
    at, before_mhz = 0, work[0].frequency_mhz if work else 0
    for number, change in enumerate(asked):
        until_s = asked[number + 1].asked_s if number + 1 < len(asked) else inf
        while at < len(work) and work[at].end_s <= change.asked_s:
            at += 1
        told = _of_one((work[index] for index in range(at, len(work))), change, before_mhz, until_s, time_s)
        yield told
        if not told.missed:
            before_mhz = change.mhz


def _of_one(after: Iterable[Span], change: Change, before_mhz: int, until_s: float, time_s: _Times) -> _Told:
    """Return what the instructions after a request tell, up to the next request."""
    least_s = change.asked_s
    for span in after:
        assert span.key is not None
        if span.begin_s >= until_s:
            return _Told(least_s, inf, missed=least_s > change.asked_s)
        old_s, new_s = time_s(span.key, before_mhz), time_s(span.key, change.mhz)
        if old_s is None or new_s is None or abs(old_s / new_s - 1.0) < _CONTRAST or isnan(span.size):
            break
        old_s, new_s = span.size * old_s, span.size * new_s
        share = (span.end_s - span.begin_s - new_s) / (old_s - new_s)
        if share < _ALL_NEW:
            return _Told(least_s, max(least_s, span.begin_s))
        if share < _ALL_OLD:
            arrival_s = max(least_s, span.begin_s + share * old_s)
            return _Told(arrival_s, arrival_s)
        least_s = span.end_s
    return _Told(least_s, inf)
