"""Which clock instructions really ran at, and which clocks a GPU cannot hold.

A locked clock is a ceiling that the power limit can break, for a while or for good. The driver then names a reason;
without one, a lower clock is one on its way. What iterations at the highest clock settle at is the highest that can be
sustained. Where that is the highest itself, what ran lower than asked drew the power of the clock that it ran at.

Times are another matter: an instruction may begin at the clock asked for and end far below it, as the GPU has waited
before. So times count only where a clock was held, and those of the highest clock are what the limit makes of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import inf, nan
from operator import attrgetter
from statistics import median, median_low
from typing import NamedTuple

from perseus_ds.profiling.spans import Segment, Span
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = [
    "DELAYED",
    "Limited",
    "Reading",
    "at_achieved_clocks",
    "at_read_clocks",
    "at_the_limit",
    "held_alone",
    "is_limited",
    "limited",
    "sustained_clocks",
]

DELAYED = 1.5
"""Times the usual duration at the power limit: something else delayed such an instruction."""

_LOWER_MHZ = 8
_OFTEN = 0.2
_FEW = 3
_HELD = 4  # clocks of a curve: beyond, its power at the limit is no guide


class Reading(NamedTuple):
    """The SM clock as the driver shows it.

    Attributes:
        time_s: On ``time.monotonic()``.
        mhz: The clock; 0: unreadable.
        limited: Whether the driver names a reason for a clock below the one asked for, the power limit included.
    """

    time_s: float
    mhz: int
    limited: bool


class Limited(NamedTuple):
    """What a GPU did, where its power limit does not let it hold the highest clock.

    Attributes:
        did: What it did. Curves that cannot hold the highest clock have the clocks asked for, others those achieved.
        sustained_mhz: The highest clock that can be held, of curves that cannot hold the highest.
        faster: By how much each of their instructions was faster than in whole iterations at the highest clock, as a
            share; 0 where the limit did not decide. It ran at a higher clock by about that share: its time tells what a
            reading 0.1 s old does not.
        squares: Mean square of that share in these whole iterations, by time.
        held: The share of clocks that can be held, the highest few of each curve.
    """

    did: list[Segment]
    sustained_mhz: Mapping[CurveKey, int]
    faster: list[float]
    squares: Mapping[CurveKey, float] = {}
    held: Mapping[CurveKey, Mapping[int, float]] = {}


def at_achieved_clocks(did: Sequence[Segment], readings: Sequence[Reading]) -> list[Segment]:
    """Return the same with each instruction's clock replaced by the one that it ran at.

    Args:
        did: What the GPU did, with the clocks asked for.
        readings: Of the SM clock, in order of time.

    Returns:
        Segments in the same order. Clocks are left as they are where only few readings of a curve at a clock are
        lower.
    """
    low = _readings(did, readings)
    often = {
        state: median(lows)
        for state, (lows, count) in _by_state(did, low).items()
        if count >= _FEW and len(lows) >= _OFTEN * count
    }
    clocks = sorted({one.clock_mhz for one in did if isinstance(one.what, CurveKey)})

    def nearest(mhz: float) -> int:
        at = bisect_left(clocks, mhz)
        return min(clocks[max(0, at - 1) : at + 1], key=lambda clock: abs(clock - mhz))

    found = []
    for one, seen in zip(did, low, strict=True):
        typical_mhz = often.get((one.what, one.clock_mhz))
        if typical_mhz is None:
            found.append(one)
        else:
            found.append(replace(one, clock_mhz=nearest(typical_mhz if seen is None else seen)))
    return found


def at_read_clocks(did: Sequence[Segment], readings: Sequence[Reading]) -> list[Segment]:
    """Return the same with each instruction at the clock that was read while it ran.

    Where none was read, the clock is that of the instruction nearest in time that was asked for the same. A power limit
    holds an iteration at the highest clocks lower than the same instructions of a plan, which leave the GPU a rest.

    Args:
        did: What the GPU did, with the clocks asked for.
        readings: Of the SM clock, in order of time; few of them for each iteration, as after the profiling.
    """
    read: dict[tuple[object, int], list[tuple[float, float]]] = defaultdict(list)
    for one, mhz in zip(did, _readings(did, readings), strict=True):
        if mhz is not None:
            read[one.what, one.clock_mhz].append((one.begin_s, mhz))

    def clock_mhz(one: Segment) -> int:
        alike = read.get((one.what, one.clock_mhz), [])
        after = bisect_left(alike, (one.begin_s,))
        near = sorted(alike[max(0, after - 1) : after + 1], key=lambda other: abs(other[0] - one.begin_s))
        return min(one.clock_mhz, round(near[0][1])) if near else one.clock_mhz

    return [replace(one, clock_mhz=clock_mhz(one)) for one in did]


def is_limited(readings: Sequence[Reading], at_s: float) -> bool:
    """Return whether the reading nearest to a time names a reason for a low clock.

    Args:
        readings: In order of time.
        at_s: On ``time.monotonic()``.
    """
    after = bisect_left(readings, at_s, key=attrgetter("time_s"))
    near = readings[max(0, after - 1) : after + 1]
    return bool(near) and min(near, key=lambda one: abs(one.time_s - at_s)).limited


def sustained_clocks(did: Sequence[Segment], achieved: Sequence[Segment]) -> Mapping[CurveKey, int]:
    """Return the highest clock that can be held, of each curve that cannot hold the highest.

    Args:
        did: What the GPU did, with the clocks asked for.
        achieved: The same with the clocks that it ran at. Whole iterations at the highest clock count, as cooler blocks
            of a sweep hold a clock that these cannot: those at its end, when the GPU is warm, or else at its begin.
    """
    highest_mhz = max((one.clock_mhz for one in did), default=0)
    settled = {
        key: int(median_low(achieved[index].clock_mhz for index in where)) for key, where in _at_highest(did).items()
    }
    return {key: mhz for key, mhz in settled.items() if mhz < highest_mhz}


def limited(
    did: Sequence[Segment],
    readings: Sequence[Reading],
    sustained: Mapping[CurveKey, int],
    usual_s: Mapping[CurveKey, float],
    spans: Iterable[Span],
    points: Mapping[CurveKey, Sequence[ProfilePoint]] = {},
) -> Limited:
    """Return what the power limit decides.

    Args:
        did: What the GPU did, with the clocks asked for.
        readings: Of the SM clock, in order of time.
        sustained: Result of ``sustained_clocks``.
        usual_s: Mean time of instructions of these curves in whole iterations at the highest clock.
        spans: The work, each for as long as it lasted: what a late host delayed tells no clock.
        points: The time of each instruction at clocks that can be held, by frequency descending.
    """
    achieved = at_achieved_clocks(did, readings)
    if not sustained:
        return Limited(achieved, sustained, [0.0] * len(did))
    faster = _faster(did, spans, sustained, usual_s)
    return Limited(
        [wanted if wanted.what in sustained else came for wanted, came in zip(did, achieved, strict=True)],
        sustained,
        faster,
        {key: _mean_square(where, did, faster) for key, where in _at_highest(did).items() if key in sustained},
        {
            key: {point.frequency_mhz: usual_s[key] / point.time_s - 1.0 for point in points.get(key, ())[:_HELD]}
            for key in sustained.keys() & usual_s.keys()
        },
    )


def _mean_square(where: Sequence[int], did: Sequence[Segment], shares: Sequence[float]) -> float:
    lasted_s = [did[index].end_s - did[index].begin_s for index in where]
    return sum(time_s * shares[index] ** 2 for time_s, index in zip(lasted_s, where, strict=True)) / sum(lasted_s)


def _faster(
    did: Sequence[Segment], spans: Iterable[Span], sustained: Mapping[CurveKey, int], usual_s: Mapping[CurveKey, float]
) -> list[float]:
    """Return how much faster than usual each instruction was that the limit held from begin to end; 0 for others."""
    work = [(span, span.key) for span in spans if span.key is not None]
    begins_s = [span.begin_s for span, _ in work]
    within = [bisect_right(begins_s, one.begin_s) - 1 if isinstance(one.what, CurveKey) else None for one in did]
    lower = {
        number
        for one, number in zip(did, within, strict=True)
        if isinstance(one.what, CurveKey) and one.clock_mhz <= sustained.get(one.what, inf)
    }

    def faster(number: int | None) -> float:
        if number is None or number in lower:
            return 0.0
        span, key = work[number]
        expected_s, lasted_s = span.longer * usual_s.get(key, nan), span.lasted_s
        return expected_s / lasted_s - 1.0 if lasted_s <= DELAYED * expected_s else 0.0

    return [faster(number) for number in within]


def held_alone(did: Sequence[Segment], achieved: Sequence[Segment]) -> list[Segment]:
    """Return what the GPU did, ``whole`` only where it ran at the clock asked for.

    Args:
        did: What the GPU did, with the clocks asked for.
        achieved: The same with the clocks that it ran at.
    """
    return [
        replace(one, whole=one.whole and ran.clock_mhz == one.clock_mhz) for one, ran in zip(did, achieved, strict=True)
    ]


def at_the_limit(did: Sequence[Segment], sustained: Collection[CurveKey]) -> list[Segment]:
    """Return the instructions at the highest clock, of curves that cannot hold it.

    Args:
        did: What the GPU did, with the clocks asked for.
        sustained: The curves; those of ``sustained_clocks``, which has been told by the same instructions.
    """
    return [did[index] for key, where in _at_highest(did).items() if key in sustained for index in where]


def _at_highest(did: Sequence[Segment]) -> dict[CurveKey, list[int]]:
    """Return where the instructions of whole iterations at the highest clock are; see ``sustained_clocks``."""
    highest_mhz = max((one.clock_mhz for one in did), default=0)
    found: dict[CurveKey, list[int]] = {}
    for order in (range(len(did)), range(len(did) - 1, -1, -1)):
        here = defaultdict[CurveKey, list[int]](list)
        for index in takewhile(lambda index: did[index].clock_mhz == highest_mhz, order):
            if isinstance(key := did[index].what, CurveKey):
                here[key].append(index)
        found |= {key: where for key, where in here.items() if key not in found or len(where) >= _FEW}
    return found


def _readings(did: Sequence[Segment], readings: Sequence[Reading]) -> list[float | None]:
    """Return the mean clock read while each instruction ran, or asked for where nothing limited it; None: none read."""
    times_s = [reading.time_s for reading in readings]
    found: list[float | None] = []
    for one in did:
        first, last = bisect_left(times_s, one.begin_s), bisect_left(times_s, one.end_s)
        within = [
            reading.mhz if reading.limited else max(reading.mhz, one.clock_mhz)
            for reading in readings[first:last]
            if reading.mhz
        ]
        found.append(sum(within) / len(within) if within and isinstance(one.what, CurveKey) else None)
    return found


def _by_state(
    did: Sequence[Segment], seen: Sequence[float | None]
) -> dict[tuple[object, int], tuple[list[float], int]]:
    """Return, by curve and clock asked for, the lower clocks read, and how many were read at all."""
    found: dict[tuple[object, int], tuple[list[float], int]] = {}
    for one, mhz in zip(did, seen, strict=True):
        if mhz is not None:
            lows, count = found.get((one.what, one.clock_mhz), ([], 0))
            lower = [mhz] if mhz < one.clock_mhz - _LOWER_MHZ else []
            found[one.what, one.clock_mhz] = ([*lows, *lower], count + 1)
    return found
