"""The GPU's energy counter as a regression sees it: its increments, on the grid of its updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CounterReader", "CounterTrace", "Doubt", "TooLittleSeen", "counter_reader", "counter_trace", "updates_seen"]

Array = NDArray[np.float64]

_REGULAR = 0.5
_LATEST = 0.9
_GUESSED, _CALIBRATED = 0.15, 0.03  # how far a period may be from the first one assumed
_FEW, _MANY = 16, 64  # polls that decide which of them it is
_TELLING = 0.3  # regularity at a known period from which on polls tell the updates that they saw
# Polls later than most by so many standard deviations, and these parts of a period, may have seen a late update.
_OUT_OF_STEP, _MATTERS, _HOST_IS_LATE = 4.0, 0.03, 0.25
_FEW_OF_THEM = 0.3  # share of the polls: where more are that late, the host is
# Where less than this share of the increments saw nothing doubtful, doubtful times count too.
_ENOUGH_SURE = 0.6
# Of what an update may have looked at: a doubt that is shorter changes it by less than the counter's noise.
_FELT = 0.001


class TooLittleSeen(Exception):
    """The counter hardly moved."""


class Doubt(NamedTuple):
    """A time in which it is not quite sure what the GPU did.

    Attributes:
        begin_s: Its begin on ``time.monotonic()``.
        end_s: Its end.
        unsure_s: For how long of it that is so.
    """

    begin_s: float
    end_s: float
    unsure_s: float


@dataclass(frozen=True)
class CounterTrace:
    """Updates of an energy counter.

    Attributes:
        updates_s: Times of all updates, seen or missed, shape (u + 1,).
        period_s: Time between two updates.
        first: Index of the update before each increment, shape (n,).
        last: Index of the update after it; last = first + 1 unless an update was missed, shape (n,).
        energy_j: The increments, shape (n,).
    """

    updates_s: Array
    period_s: float
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    energy_j: Array

    @cached_property
    def seen(self) -> NDArray[np.intp]:
        """Which of the times between two updates belong to an increment, ascending."""
        open_ones = np.zeros(len(self.updates_s), dtype=np.intp)
        np.add.at(open_ones, self.first, 1)
        np.add.at(open_ones, self.last, -1)
        return np.flatnonzero(np.cumsum(open_ones)[:-1])

    def thinned(self, most: int) -> CounterTrace:
        """Return a trace of every so many of the increments, so that not many more than ``most`` are left."""
        every = slice(None, None, max(1, len(self.energy_j) // most))
        return replace(self, first=self.first[every], last=self.last[every], energy_j=self.energy_j[every])


CounterReader = Callable[[float | None], CounterTrace]
"""Returns the increments whose window, with a reach in seconds, saw nothing unknown; None: a window of a period."""


def counter_reader(
    samples: Sequence[tuple[float, float]],
    begin_s: float,
    end_s: float,
    excluded: Sequence[tuple[float, float]] = (),
    doubts: Sequence[Doubt] = (),
    usual_period_s: float = 0.0,
) -> CounterReader:
    """Return the counter as a function of how far back its window reaches.

    Args:
        samples: See ``counter_trace``, as ``begin_s``, ``end_s`` and ``usual_period_s``.
        begin_s: Of what the GPU did.
        end_s: Of what the GPU did.
        excluded: (begin, end) of times that do not count.
        doubts: Times that do not count where the others are enough, but for those that hardly show.
        usual_period_s: About the time between two updates; 0: not known.
    """

    def without(reach_s: float | None, left_out: Sequence[tuple[float, float]]) -> CounterTrace | None:
        return counter_trace(samples, begin_s, end_s, left_out, reach_s, usual_period_s)

    def within(reach_s: float | None) -> CounterTrace:
        everything = without(reach_s, excluded)
        if everything is None:
            raise TooLittleSeen
        felt = [(one.begin_s, one.end_s) for one in doubts if one.unsure_s > _FELT * (reach_s or 0.0)]
        sure = without(reach_s, [*excluded, *felt]) if felt else everything
        enough = sure is not None and len(sure.energy_j) >= _ENOUGH_SURE * len(everything.energy_j)
        return sure if sure is not None and enough else everything

    return within


def counter_trace(
    samples: Sequence[tuple[float, float]],
    begin_s: float,
    end_s: float,
    excluded: Sequence[tuple[float, float]] = (),
    reach_s: float | None = None,
    usual_period_s: float = 0.0,
) -> CounterTrace | None:
    """Put the changed points of a polled counter on the grid of its updates.

    A poll sees an update up to one polling interval late, or much later on a busy host. Updates are regular, so all
    polls together determine their times far better than one poll. If they are not regular, the poll times count.

    Of an H100's and an H200's updates, some come 4 to 11 ms late, and tell of that longer time. A poll that is late
    does not say which of both it was: it does not count, and the increments before and after it become one.

    Args:
        samples: (monotonic time in seconds, counter in joules) of each changed point, ascending.
        begin_s: Increments with a window before this time are dropped.
        end_s: Increments that end later are dropped.
        excluded: (begin, end) of times; increments that may have seen any of them are dropped.
        reach_s: How long before an update the power may have been looked at; default: the update's period and one more.
        usual_period_s: About the time between two updates; 0: not known. Rare polls do not tell it: they are regular,
            too.

    Returns:
        The trace, or None with too few updates.
    """
    times, energy = np.array(samples, dtype=float).reshape(-1, 2).T
    if len(times) < 4:
        return None
    updates_s, period_s, index = _update_grid(times, usual_period_s)
    in_step = _in_step(times - updates_s[index], period_s)
    index, energy = index[in_step], energy[in_step]
    first, last, increments = index[:-1], index[1:], np.diff(energy)
    # The first of an increment's updates comes a period after the increment's begin.
    seen_from_s = updates_s[first] - (period_s if reach_s is None else reach_s - period_s)
    whole = (seen_from_s >= begin_s) & (updates_s[last] <= end_s) & (last > first)
    for from_s, until_s in excluded:
        whole &= (updates_s[last] <= from_s) | (seen_from_s >= until_s)
    kept = whole & (increments > 0)
    if np.count_nonzero(kept) < 3:
        return None
    return CounterTrace(updates_s, period_s, first[kept], last[kept], increments[kept])


def _in_step(late_s: Array, period_s: float) -> NDArray[np.bool_]:
    """Return which polls, given how late each is, saw an update that came in time."""
    later_s = late_s - np.median(late_s)
    usual_s = 1.4826 * float(np.median(np.abs(later_s)))
    least_s, most_s = max(_OUT_OF_STEP * usual_s, _MATTERS * period_s), _HOST_IS_LATE * period_s
    in_step = (later_s <= least_s) | (later_s > most_s)
    return in_step if np.mean(in_step) > 1.0 - _FEW_OF_THEM else np.ones_like(in_step)


def updates_seen(times_s: Array, period_s: float) -> tuple[Array, Array]:
    """Return when a counter of a known period moved, for polls too rare to tell the period: they are regular, too.

    Args:
        times_s: When polls saw a changed counter, ascending; at least two.
        period_s: Time between two updates.

    Returns:
        The times of all updates, and of the one that each poll saw. Where they cannot be told, the poll's own.
    """
    mean = complex(_on_circle(times_s - times_s[0], np.array([period_s]))[0])
    updates_s, index = _regular(times_s, period_s, _phase_s(times_s[0], mean, period_s), more=1)
    return updates_s, updates_s[index] if abs(mean) > _TELLING else times_s


def _update_grid(times_s: Array, usual_period_s: float) -> tuple[Array, float, NDArray[np.intp]]:
    """Put polls that saw a changed counter on the grid of its updates.

    Args:
        times_s: When they saw it, ascending; at least four.
        usual_period_s: As for ``counter_trace``.

    Returns:
        The times of all updates, the time between two, and the update that each poll saw, shape (len(times_s),).
    """
    period_s, phase_s, regularity = _grid(times_s, usual_period_s)
    if regularity <= (_TELLING if usual_period_s else _REGULAR):
        return times_s, float(np.median(np.diff(times_s))), np.arange(len(times_s))
    updates_s, index = _regular(times_s, period_s, phase_s)
    return updates_s, period_s, index


def _regular(times_s: Array, period_s: float, phase_s: float, more: int = 0) -> tuple[Array, NDArray[np.intp]]:
    """Return the times of all updates, with some more at both ends, and the number of the one that each poll saw."""
    index = _update_numbers((times_s - phase_s) / period_s)
    first = index[0] - more
    return phase_s + period_s * np.arange(first, index[-1] + 1 + more, dtype=np.float64), index - first


def _grid(times_s: Array, usual_period_s: float) -> tuple[float, float, float]:
    """Find period and phase of the times, and their regularity (1: exact).

    The mean of the times as phases on a circle is longest at the right period. Each doubling of the examined span
    sharpens the period.
    """
    since_s = times_s - times_s[0]

    def sharpened(period_s: float, spread: float, length: int) -> tuple[float, complex]:
        candidates = period_s * (1.0 + np.linspace(-spread, spread, 81))
        means = _on_circle(since_s[:length], candidates)
        best = int(np.argmax(np.abs(means)))
        return float(candidates[best]), complex(means[best])

    length, spread = (_FEW, _CALIBRATED) if usual_period_s else (_MANY, _GUESSED)
    period_s, mean = sharpened(usual_period_s or float(np.median(np.diff(times_s))), spread, length)
    while length < len(times_s):
        spread = min(spread, period_s / since_s[length - 1])
        length *= 2
        period_s, mean = sharpened(period_s, spread, length)
    period_s, mean = sharpened(period_s, spread / 20, length)
    return period_s, _phase_s(times_s[0], mean, period_s), abs(mean)


def _on_circle(since_s: Array, periods_s: Array) -> NDArray[np.complex128]:
    """Return the mean of the times as phases on a circle, for each period."""
    return np.exp(2j * np.pi * since_s / periods_s[:, None]).mean(axis=1)


def _phase_s(begin_s: float, mean: complex, period_s: float) -> float:
    """Return the time of an update, from the mean on the circle that begins at ``begin_s``."""
    return float(begin_s + np.angle(mean) / (2 * np.pi) * period_s)


def _update_numbers(positions: Array) -> NDArray[np.intp]:
    """Return the update number of each poll; the next poll, with a later update, reveals a late one.

    A poll one whole period late would have seen the next update: such points keep equal numbers.
    """
    numbers = np.rint(positions).astype(np.intp)
    for at in range(len(numbers) - 2, -1, -1):
        if numbers[at] >= numbers[at + 1] and positions[at] - (numbers[at + 1] - 1) < _LATEST:
            numbers[at] = numbers[at + 1] - 1
    return numbers
