"""The energy of whole iterations, with what the energy counter shows late and does not look at.

A counter that shows an average of the power lags behind. One that looks at a quarter of the time sees other parts of
one iteration than of the next. The fitted powers, made as high as those of the GPU by now, tell how much it has missed
of each. They only correct: what they do not explain is as the counter says.

While iterations are in step with the counter, it may look at each one's end, or never: a profile may not know what the
reduction and the optimizer draw. So this power is fitted anew, with the profile's as known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.achieved import Reading, at_read_clocks
from perseus_ds.profiling.counter import CounterTrace, updates_seen
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.excursions import Excursion, excursions, told_apart
from perseus_ds.profiling.spans import Between, Segment, Span
from perseus_ds.profiling.timeline import Timeline
from perseus_ds.profiling.window import exposure

__all__ = ["WholeEnergies", "whole_energies"]

Array = NDArray[np.float64]

_LEAST = 4  # points of the counter
_MOST_UNSEEN = 0.8  # of an excursion at its end: beyond it, its end tells next to nothing


class WholeEnergies(NamedTuple):
    """Energies of whole iterations.

    Attributes:
        iterations_j: Of each; NaN where the counter does not reach.
        excursions_sd_j: Standard deviation of the sum of those at other clocks than usual, beyond what they scatter: it
            is in doubt what a counter that averages shows of them, and what of the iterations after them.
    """

    iterations_j: list[float]
    excursions_sd_j: float


def whole_energies(
    found: Attribution | None,
    spans: Sequence[Span],
    samples: Sequence[tuple[float, float]],
    bounds_s: Sequence[tuple[float, float]],
    switch_latency_s: float = 0.0,
    readings: Sequence[Reading] = (),
    usual_period_s: float = 0.0,
) -> WholeEnergies:
    """Return the energy of each iteration.

    Args:
        found: The GPU's powers, and the window of its counter; None: those that ``spans`` tell.
        spans: All its work, in order of time, up to the end of the last iteration; before it, the GPU has waited.
        samples: (monotonic time, joules) of each changed point of the counter.
        bounds_s: Begin and end of each iteration on ``time.monotonic()``.
        switch_latency_s: From a clock request to the new clock, where no instruction tells when it came.
        readings: Of the SM clock, in order of time: a GPU at its power limit runs lower than asked.
        usual_period_s: About the time between two updates of the counter; 0: not known.

    Raises:
        PerseusError: Nothing was found before, and the counter hardly moved.
    """
    if not spans or not bounds_s or len(samples) < _LEAST:
        return WholeEnergies([float("nan")] * len(bounds_s), 0.0)
    found = found or attribute(spans, samples, switch_latency_s, readings=readings, usual_period_s=usual_period_s)
    did = at_read_clocks(found.did(spans, switch_latency_s, readings), readings)
    times_s, counter_j = np.array(samples).T
    updates_s, seen_s = updates_seen(times_s, found.period_s)
    power = _power(found, did, updates_s[0] - found.lag_s - found.period_s)
    steps = np.arange(len(updates_s))
    every = CounterTrace(updates_s, found.period_s, steps[:-1], steps[1:], np.zeros(len(steps) - 1))

    def shown_of(what: Timeline, until_s: Array) -> Array:
        shown = np.cumsum(exposure(what, every, found.window), axis=0)
        return np.column_stack([np.interp(until_s, updates_s, np.append(0.0, column)) for column in shown.T])

    shown = shown_of(power, seen_s)
    since_s = did[0].begin_s + found.window.reach * found.period_s
    by_now = _by_now((seen_s >= since_s) & (seen_s <= did[-1].end_s), counter_j, shown, *found.other_power_w)
    shown_j = shown @ by_now
    apart = excursions(spans, bounds_s, found.lag_s)
    unseen = [_unseen(one, shown_of) for one in apart]
    late_j = power.integral(seen_s) @ by_now - shown_j
    within_s = bounds_s[0][0], bounds_s[-1][1]
    curve_s, curve_j, apart_sd_j = told_apart(apart, unseen, within_s, times_s, counter_j - shown_j, late_j)

    def energy_j(begin_s: float, end_s: float) -> float:
        if begin_s < times_s[0] or end_s > times_s[-1]:
            return float("nan")
        both_s = np.array([begin_s, end_s])
        return float(np.diff(power.integral(both_s) @ by_now + np.interp(both_s, curve_s, curve_j))[0])

    return WholeEnergies([energy_j(*one) for one in bounds_s], apart_sd_j)


def _by_now(known: NDArray[np.bool_], counter_j: Array, shown: Array, other_w: float, other_sd_w: float) -> Array:
    """Return by how much the fitted powers are higher by now, and the power of other work.

    The first is so that the counter has shown, from the first known update to the last, what it was to show.

    Args:
        known: The updates that show nothing unknown.
        counter_j: The counter at each update.
        shown: What it was to show by then of the fitted powers, and of other work of 1 W, shape (updates, 2).
        other_w: The power of other work, as fitted.
        other_sd_w: Standard deviation of that.
    """
    known_at = np.flatnonzero(known)
    if len(known_at) < _LEAST:
        return np.array([1.0, other_w])
    counted_j, (fitted_j, other_s) = np.diff(counter_j[known_at]), np.diff(shown[known_at], axis=0).T
    higher = counted_j.sum() / (fitted_j.sum() + other_w * other_s.sum())
    expected_w, variance_w2 = higher * other_w, (higher * other_sd_w) ** 2
    # However much other work draws, the sum is as counted: what is more of it is less of the rest.
    share = fitted_j / fitted_j.sum()
    at_once_s = other_s - other_s.sum() * share
    beyond_j = counted_j - counted_j.sum() * share - expected_w * at_once_s
    seen_j2 = float(at_once_s @ at_once_s) * variance_w2
    if not seen_j2:
        return np.array([higher, expected_w])
    noise_j2 = float(beyond_j @ beyond_j) / len(beyond_j)
    now_w = max(0.0, expected_w + float(at_once_s @ beyond_j) * variance_w2 / (seen_j2 + noise_j2))
    return np.array([(counted_j.sum() - now_w * other_s.sum()) / fitted_j.sum(), now_w])


def _unseen(one: Excursion, shown_of: Callable[[Timeline, Array], Array]) -> float:
    """Return the share of an excursion that the counter has still to show at its end."""
    edges_s = np.array([one.begin_s - 1.0, one.begin_s, one.end_s, one.end_s + 1.0])
    alone = Timeline(edges_s, np.array([[0.0], [1.0], [0.0]]))
    seen_s = float(np.diff(shown_of(alone, edges_s[1:3])[:, 0])[0])
    return float(np.clip(1.0 - seen_s / (one.end_s - one.begin_s), 0.0, _MOST_UNSEEN))


def _power(found: Attribution, did: Sequence[Segment], since_s: float) -> Timeline:
    """Return the power as fitted, from a time before the work began, and apart from it 1 W of other work."""
    first = did[0]
    before = [Segment(since_s, first.begin_s, Between.WAITING, first.clock_mhz)] if since_s < first.begin_s else []
    ran = [*before, *did]
    edges_s = np.array([*(one.begin_s for one in ran), ran[-1].end_s])
    other = np.array([float(one.what is Between.OTHER) for one in ran])
    rest_w = np.array([found.power_w(one) for one in ran]) - found.other_power_w[0] * other
    return Timeline(edges_s, np.column_stack([rest_w, other]))
