"""Clocks that came late: how many, for how long, and what instructions would have taken had theirs come in time.

Where nobody knows yet when instructions begin, each clock is asked for as the instruction before ends. The first part
of every instruction then runs at another clock. That is no slow GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from math import inf, nan
from statistics import median

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.recorder import RecordedIteration

__all__ = ["late_switches", "ran_at_earlier", "share_at_clock", "times_at_clock"]

_TOLERANCE_S = 1e-3
_TOLERANCE = 0.03
_LONG_S = 0.020
_AS_LONG = 0.03
_ON_THEIR_WAY = 8  # clocks, at most

Latency = Callable[[int], float]
Expected = Callable[[Operation, int], float]


def late_switches(iteration: RecordedIteration, latency_s: Latency) -> int:
    """Count the clocks of an iteration that came later than planned: by more than 3 % of their instruction, and 1 ms.

    Args:
        iteration: The operations and the times of their clock requests.
        latency_s: Time from a request to a clock in MHz.
    """
    late = 0
    for index, timed in enumerate(iteration.instructions):
        if (requested_s := iteration.requested_s.get(index)) is not None:
            planned_s = timed.begin_s + (iteration.clocks.aim_s(index) if iteration.clocks else 0.0)
            late_s = requested_s + latency_s(timed.frequency_mhz) - iteration.begin_s - planned_s
            late += late_s > max(_TOLERANCE_S, _TOLERANCE * timed.duration_s)
    return late


def share_at_clock(iteration: RecordedIteration, latency_s: Latency) -> float:
    """Return the share of its time that an instruction of an iteration ran at its planned clock: the median.

    Instructions of 20 ms or less do not count: a clock takes about as long. NaN if there are no others.

    Args:
        iteration: The operations and the times of their clock requests.
        latency_s: Time from a request to a clock in MHz.
    """
    instructions = iteration.instructions
    clocks = _clocks(iteration, instructions, latency_s)
    shares = [
        _time_at_clock_s(timed, clocks, first) / timed.duration_s
        for timed, first in _first_clocks(instructions, clocks)
        if timed.duration_s > _LONG_S
    ]
    return median(shares) if shares else nan


def times_at_clock(iteration: RecordedIteration, latency_s: Latency, expected_s: Expected) -> list[float]:
    """Return the durations of an iteration's instructions, each as if it had run at its own clock throughout.

    Args:
        iteration: The operations and the times of their clock requests.
        latency_s: Time from a request to a clock in MHz.
        expected_s: Time of an instruction at a clock, in seconds; 0 if not known. The duration then stays.
    """
    instructions = iteration.instructions
    clocks = _clocks(iteration, instructions, latency_s)
    return [
        timed.duration_s * _stretch(timed, clocks, first, expected_s)
        for timed, first in _first_clocks(instructions, clocks)
    ]


def ran_at_earlier(iterations: Sequence[RecordedIteration], expected_s: Expected) -> list[frozenset[int]]:
    """Return which instructions look as if their clock came far later than usual.

    They took as long as at a clock that was asked for earlier, or a time between. A slow GPU may look so by chance, but
    does again in the next iteration.

    Args:
        iterations: Consecutive ones. The first clock of all is taken to be there.
        expected_s: See ``times_at_clock``.

    Returns:
        Their indexes, by iteration.
    """
    found: list[frozenset[int]] = []
    asked_mhz: list[int] = []  # in order: the clocks that may be in force
    for iteration in iterations:
        late: set[int] = set()
        if iteration.rest:
            asked_mhz.append(iteration.rest.mhz)
        for index, timed in enumerate(iteration.instructions):
            if timed.frequency_mhz not in asked_mhz[-1:]:
                asked_mhz = [*asked_mhz[-_ON_THEIR_WAY:], timed.frequency_mhz]
            took_s = timed.duration_s
            if _as_long(took_s, expected_s(timed.operation, timed.frequency_mhz)):
                asked_mhz = [timed.frequency_mhz]
                continue
            times_s = [expected_s(timed.operation, mhz) for mhz in asked_mhz]
            if alike := [at for at, one_s in enumerate(times_s) if _as_long(took_s, one_s)]:
                late.add(index)
                asked_mhz = asked_mhz[alike[-1] :]
            elif 0.0 < min(times_s) < took_s < max(times_s):
                late.add(index)
                asked_mhz = asked_mhz[1:]  # the next one came in its midst
            elif took_s <= max(times_s):
                asked_mhz = [timed.frequency_mhz]
            # Else something held it up: it does not tell.
        found.append(frozenset(late))
    return found


def _as_long(took_s: float, expected_s: float) -> bool:
    return abs(took_s - expected_s) <= _AS_LONG * expected_s


def _clocks(
    iteration: RecordedIteration, instructions: Sequence[TimedOperation], latency_s: Latency
) -> list[tuple[float, int]]:
    """Return when each clock was there, counted from the iteration's begin, in order; the last one is none."""
    rest = iteration.rest
    # Without a rest, the first one always was.
    arrivals = [(-inf, rest.mhz if rest else timed.frequency_mhz) for timed in instructions[:1]]
    for index, requested_s in sorted(iteration.requested_s.items()):
        if (index or rest) and index < len(instructions):
            mhz = instructions[index].frequency_mhz
            at_s = requested_s + latency_s(mhz) - iteration.begin_s
            arrivals.append((max(at_s, arrivals[-1][0]), mhz))
    return [*arrivals, (inf, 0)]


def _first_clocks(
    instructions: Sequence[TimedOperation], clocks: Sequence[tuple[float, int]]
) -> Iterator[tuple[TimedOperation, int]]:
    """Yield each instruction, and the index of the clock that it begins with."""
    first = 0
    for timed in instructions:
        while clocks[first + 1][0] <= timed.begin_s:
            first += 1
        yield timed, first


def _time_at_clock_s(timed: TimedOperation, clocks: Sequence[tuple[float, int]], first: int) -> float:
    """Return for how long an instruction ran at its own clock; arguments as of ``_stretch``."""
    at_clock_s = 0.0
    for (from_s, mhz), (until_s, _) in pairwise(islice(clocks, first, None)):
        if from_s >= timed.end_s:
            break
        if mhz == timed.frequency_mhz:
            at_clock_s += max(0.0, min(until_s, timed.end_s) - max(from_s, timed.begin_s))
    return at_clock_s


def _stretch(
    timed: TimedOperation,
    clocks: Sequence[tuple[float, int]],
    first: int,
    expected_s: Callable[[Operation, int], float],
) -> float:
    """Return how much longer an instruction would take at its own clock than with the clocks as they came.

    Args:
        timed: The instruction.
        clocks: See ``_clocks``.
        first: Index of the clock that it begins with.
        expected_s: See ``times_at_clock``.
    """
    if clocks[first][1] == timed.frequency_mhz and clocks[first + 1][0] >= timed.end_s:
        return 1.0
    if (own_s := expected_s(timed.operation, timed.frequency_mhz)) <= 0.0:
        return 1.0
    done, now_s = 0.0, timed.begin_s
    for (_, mhz), (until_s, _) in pairwise(islice(clocks, first, None)):
        if (at_clock_s := expected_s(timed.operation, mhz)) <= 0.0:
            return 1.0
        left_s = (1.0 - done) * at_clock_s
        if left_s <= until_s - now_s:
            return own_s / (now_s + left_s - timed.begin_s)
        done += (until_s - now_s) / at_clock_s
        now_s = until_s
    raise AssertionError("the last clock lasts for ever")
