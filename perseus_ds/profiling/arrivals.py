"""When each clock really came: an instruction under which the clock changed tells it by how long it took.

The time from a request to the new clock depends on the target clock, and now and then it is far longer. One latency
for all would count seconds of one clock for another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan
from statistics import median
from typing import NamedTuple

from perseus_ds.profiling.in_force import PENDING, USUALLY_S, Border, Takes, borders
from perseus_ds.profiling.latencies import Bounds, usual_latencies_s
from perseus_ds.profiling.request_cost import LANDS_WITHIN
from perseus_ds.profiling.spans import Change, Span
from perseus_ds.profiling.stalls import TimeOf, time_of
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = ["Arrivals", "arrivals"]

_CONTRAST = 0.02
"""Least difference of an instruction's times at two clocks, as a share, for its time to tell the border."""
_UNEVEN, _LIMITED = 0.01, 0.05
"""How far an instruction's time may be off, as a share, and where the power limit decides it."""
_AT_ONCE_S = 0.0005
"""A request that precedes an instruction by no more lands in it."""


class Arrivals(NamedTuple):
    """When clocks came.

    Attributes:
        changes: Those asked for, without clocks that the next one overtook: no instruction ran at them. One that no
            instruction tells of came as those to the same clock mostly did.
        latencies_s: By clock in MHz, how long it took to come, as far as instructions tell.
    """

    changes: list[Change]
    latencies_s: dict[int, list[Bounds]]


@dataclass(frozen=True)
class _Course:
    """What ran, and which requests may have been in force meanwhile.

    Attributes:
        work: Instructions in order of time.
        lasted_s: How long each was at work.
        takes: Tells how long one takes with a request in force; None: not known.
        borders: Begin and end of each.
    """

    work: Sequence[Span]
    lasted_s: Sequence[float]
    takes: Callable[[Span, int], Takes | None]
    borders: Sequence[Border]

    def changed_s(self, index: int, old: int, new: int) -> tuple[float, float] | None:
        """Return when one request followed another in an instruction, and how far off that may be; None: not told."""
        span = self.work[index]
        before, after = self.takes(span, old), self.takes(span, new)
        if before is None or after is None:
            return None
        old_s, new_s, off = before.seconds, after.seconds, max(before.off, after.off)
        if abs(old_s / new_s - 1.0) < _CONTRAST * off / _UNEVEN:
            return None
        share = min(max((self.lasted_s[index] - new_s) / (old_s - new_s), 0.0), 1.0)
        return span.begin_s + share * old_s, off * old_s * new_s / abs(old_s - new_s)


@dataclass(frozen=True)
class _Told:
    """What the instructions after a request tell of its arrival: it lies between two times, each about so certain."""

    least_s: float
    most_s: float
    uncertainty_s: float = 0.0
    missed: bool = False  # the next request was first

    @property
    def exact(self) -> bool:
        return self.least_s == self.most_s


def arrivals(
    spans: Sequence[Span],
    asked: Sequence[Change],
    points: Mapping[CurveKey, Sequence[ProfilePoint]],
    stall_s: float | None = None,
    sustained: Mapping[CurveKey, int] = {},
) -> Arrivals:
    """Return when clocks came, as the instructions' times tell.

    Args:
        spans: Work in order of time.
        asked: The changes asked for, in order of time, with arrivals as roughly known.
        points: The time of each instruction at each clock.
        stall_s: For how long the GPU stands still for each request; None: not known.
        sustained: The highest clock that can be held, of the curves that cannot hold all: above it times differ much.
    """
    told = list(_told(spans, asked, time_of(points), stall_s or 0.0, sustained))
    latencies_s = _latencies_s(asked, told)
    usual_s = usual_latencies_s([latencies_s])
    overall_s = median(usual_s.values()) if usual_s else None
    found: list[Change] = []
    for change, one in zip(asked, told, strict=True):
        if one.missed:
            continue
        takes_s = usual_s.get(change.mhz, overall_s)
        arrives_s = change.arrives_s if takes_s is None else change.asked_s + takes_s
        arrives_s = min(max(arrives_s, one.least_s), one.most_s)
        while found and found[-1].arrives_s > one.most_s:
            found.pop()
        if found:
            arrives_s = max(arrives_s, found[-1].arrives_s)
        found.append(replace(change, arrives_s=arrives_s))
    return Arrivals(found, latencies_s)


def _latencies_s(asked: Sequence[Change], told: Iterable[_Told]) -> dict[int, list[Bounds]]:
    """Return the bounds of all latencies of which anything is told, by clock."""
    found: dict[int, list[Bounds]] = defaultdict(list)
    came_s = -inf
    for change, one in zip(asked, told, strict=True):
        least_s, most_s = (end_s - change.asked_s for end_s in (one.least_s, one.most_s))
        if least_s > 0.0 or (not one.exact and most_s < inf):  # else the instruction was fast for another reason
            # Clocks come in the order of their requests: it may have waited for the one before.
            known_s = 0.0 if came_s > change.asked_s else max(0.0, least_s - one.uncertainty_s)
            found[change.mhz].append((known_s, most_s + one.uncertainty_s))
        came_s = max(came_s, one.least_s)
    return dict(found)


def _told(
    spans: Sequence[Span], asked: Sequence[Change], time_s: TimeOf, stall_s: float, sustained: Mapping[CurveKey, int]
) -> Iterator[_Told]:
    """Yield what is told of each change."""
    course = _course(spans, asked, time_s, stall_s, sustained)
    least, most = ([border[place] for border in course.borders] for place in (1, 2))
    # The last border at which a request was not in force for certain, and the first at which it or a later one was.
    places = [(bisect_left(most, number) - 1, bisect_left(least, number)) for number in range(len(asked))]
    for number, place in enumerate(places):
        told = _of_one(course, asked[number], number, *place)
        if not told.exact and told.most_s > _told_until_s(asked, number):
            told = replace(told, most_s=inf)  # nothing said that it has come
        if places[number + 1 : number + 2] == [place] and told.least_s > asked[number + 1].asked_s:
            told = _Told(asked[number + 1].asked_s, inf, missed=True)
        yield told


def _told_until_s(asked: Sequence[Change], number: int) -> float:
    """Return until when instructions tell that a clock has come: later, it is only unlikely that it has not."""
    usually_s = asked[number].asked_s + USUALLY_S
    next_s, pending_s = (
        asked[later].asked_s if later < len(asked) else inf for later in (number + 1, number + PENDING)
    )
    return min(max(usually_s, next_s), pending_s)


def _course(
    spans: Sequence[Span], asked: Sequence[Change], time_s: TimeOf, stall_s: float, sustained: Mapping[CurveKey, int]
) -> _Course:
    """Return what ran, and what is known of the requests in force."""
    work = [span for span in spans if span.key is not None]
    requests_s = [change.asked_s for change in asked]

    def lasted_s(span: Span) -> float:
        """Return how long an instruction took without standing still for requests."""
        lands_s = span.begin_s - _AT_ONCE_S, span.begin_s + LANDS_WITHIN * span.lasted_s
        first, last = (bisect_left(requests_s, end_s) for end_s in lands_s)
        return span.lasted_s - (last - first) * stall_s

    def takes(span: Span, request: int) -> Takes | None:
        assert span.key is not None
        mhz = asked[request].mhz if request >= 0 else work[0].frequency_mhz
        one_s = time_s(span.key, mhz)
        if one_s is None or isnan(span.longer):
            return None
        return Takes(span.longer * one_s, _LIMITED if mhz > sustained.get(span.key, inf) else _UNEVEN)

    all_s = [lasted_s(span) for span in work]
    return _Course(work, all_s, takes, borders(work, all_s, asked, takes))


def _of_one(course: _Course, change: Change, number: int, not_yet: int, there: int) -> _Told:
    """Return what instructions tell of a change.

    Args:
        course: What ran.
        change: The change.
        number: Its number.
        not_yet: The last border at which it had not come; -1: there is none.
        there: The first border at which it had; beyond all: there is none.
    """
    least_s, most_s = change.asked_s, inf
    if not_yet >= 0:
        border = course.borders[not_yet]
        least_s = max(least_s, border.at_s)
        if not not_yet % 2 and (changed := course.changed_s(not_yet // 2, border.least, number)):
            at_s, off_s = changed
            if there == not_yet + 1:
                at_s = max(change.asked_s, at_s)
                return _Told(at_s, at_s, off_s)
            least_s = max(least_s, at_s - off_s)
    if 0 < there < len(course.borders):
        most_s = course.borders[there].at_s
        if there % 2 and (changed := course.changed_s(there // 2, number - 1, number)):
            most_s = min(most_s, sum(changed))
    return _Told(least_s, max(least_s, most_s))
