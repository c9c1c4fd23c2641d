"""The power of every instruction at every clock, of waiting and of other work, from the counter's increments.

Linear in all powers, so that their intervals follow. What the counter's window is, is found with them: first with a
parabola for each curve's power, then, with every clock's own, by one step of Gauss and Newton whose unknowns stay in
the regression. The window's doubt is so part of every interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.achieved import Limited
from perseus_ds.profiling.counter import CounterReader, CounterTrace, TooLittleSeen
from perseus_ds.profiling.judge import Verdict, judge
from perseus_ds.profiling.law import OTHER, WAITING, power_law
from perseus_ds.profiling.priors import parabolas
from perseus_ds.profiling.regression import CurveFit, Evidence, Expected, regress
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.timeline import Timeline
from perseus_ds.profiling.window import SampledWindow, exposure, find_windows
from perseus_ds.profiling.work import Columns, Work, work_of

__all__ = ["Powers", "fit_powers"]

Array = NDArray[np.float64]

# Windows that reach back further than this, or than this share of what was seen, are not looked for.
_LONGEST_S = 6.0
_LONGEST_SHARE = 0.3
_LEFT = 0.25  # of the increments: windows that leave fewer are not looked for either
# How far the window may be off, in periods (width and average: of themselves).
_STEP = 0.02
_MOST_STEPS = 3.0
_REFINEMENTS = 8
_CLOSE = 0.2
# A window that came to reach further by this factor has other increments: they are fitted again, if so many are left.
_FURTHER = 1.03
_ROUNDS = 4
_LEAST = 40
_FELT = 0.01  # of a period: an increment that saw the power limit hold for less did not
# Fits whose noise differs by less than this factor explain the counter equally well.
_ALIKE = 1.05
# Increments that tell windows apart; a counter that moves 50 times a second has more.
_ENOUGH = 1500
_PART = 0.25  # of the period: what the GPUs look at that do not look at all of it
# Standard deviation of how much more than its mean an instruction draws in its first half, as a share of the largest
# power: a backward of matrix and memory work has 0.2.
_LEANS = 0.12
# Likewise of how a curve's power at the limit follows how fast an instruction is, unlike the others' (W per share).
_OWN = 0.3
# Likewise of how unlike the power at the limit is that of a clock at which an instruction is as fast.
_AS_FAST = 0.015
# Likewise of how much more a warm GPU draws: sweeps of one clock an iteration go downwards, which looks much the same.
_GROWS = 0.05


@dataclass(frozen=True)
class Powers:
    """What the counter's increments were fitted with.

    Attributes:
        period_s: Update period of the counter.
        window: What of the power an update shows.
        waiting_mhz: The mean clock while waiting.
        fit: Of each state; then waiting at that clock, what waiting takes more at the highest clock than at the
            lowest, other work, what else ``Columns`` tells of the power limit, how far off the window's offset, width
            and average may be, how much all has grown and, where there are plateaus, how much these have, and how much
            more each curve draws in its first half.
        evidence: What they were fitted to.
        verdict: What the residuals say of it.
        columns: How many of the fit's values are powers: those before how far off the window may be.
    """

    period_s: float
    window: SampledWindow
    waiting_mhz: float
    fit: CurveFit
    evidence: Evidence
    verdict: Verdict
    columns: int


@dataclass(frozen=True)
class _Seen:
    """What ran, and what the counter said.

    Attributes:
        work: What ran.
        within: The counter.
        period_s: Its update period.
    """

    work: Work
    within: CounterReader
    period_s: float


def fit_powers(
    limited: Limited,
    counter: CounterReader,
    window: SampledWindow | None = None,
    guess: SampledWindow | None = None,
) -> tuple[tuple[tuple[CurveKey, int], ...], Powers]:
    """Fit powers to a counter's increments.

    Args:
        limited: What the GPU did, in order of time.
        counter: Result of ``counter_reader``.
        window: What of the power an update shows, if known; default: found.
        guess: What was found earlier; others are looked for only where this one leaves something unexplained.

    Returns:
        The states (curve and MHz), and the powers.

    Raises:
        TooLittleSeen: The counter moved too seldom.
    """
    work = work_of(limited)
    columns = work.columns
    everything = counter(None)
    seen = _Seen(work, counter, everything.period_s)
    if window is not None:
        return columns.states, _fitted(seen, window, 0)
    if guess is not None:
        # A guess of few iterations may be of all the period where a part of it is right.
        best = _best([_fitted(seen, one, _REFINEMENTS) for one in (guess, *_narrower([guess]))])
        if best.verdict.explained:
            return columns.states, best
    longest_s = _longest_s(seen, limited.did[-1].end_s - limited.did[0].begin_s)
    coarse = Timeline(work.edges_s, work.values @ parabolas(columns.curves, columns.clock, columns.plateaus))
    few = replace(seen, within=lambda reach_s: counter(reach_s).thinned(_ENOUGH))
    windows = find_windows(few.within(longest_s), coarse, longest_s / seen.period_s)
    best = _best([_settled(few, one) for one in (*windows, *_narrower(windows))])
    if len(everything.energy_j) >= 2 * _ENOUGH:  # some were left out
        best = _settled(seen, best.window)
    if best.verdict.explained:
        return columns.states, best
    trace = seen.within(best.window.reach * best.period_s)
    exposed_s = exposure(Timeline(work.edges_s, work.values), trace, best.window).sum(axis=0)
    held = [(key, min(mhz, limited.sustained_mhz.get(key, mhz))) for key, mhz in columns.states]
    return columns.states, replace(best, fit=power_law(held, exposed_s, float(trace.energy_j.sum())))


def _longest_s(seen: _Seen, lasted_s: float) -> float:
    """Return how far back windows may reach: between frequent evaluations long ones leave no increments."""
    longest_s, all_of_them = min(_LONGEST_S, _LONGEST_SHARE * lasted_s), len(seen.within(None).energy_j)
    while longest_s > 2.0 * seen.period_s:
        with suppress(TooLittleSeen):
            if len(seen.within(longest_s).energy_j) >= _LEFT * all_of_them:
                break
        longest_s /= 2.0
    return longest_s


def _settled(seen: _Seen, window: SampledWindow) -> Powers:
    """Fit until the increments that count are those of the window that was found."""
    found = _fitted(seen, window, _REFINEMENTS)
    for _ in range(_ROUNDS):
        reached, window = window.reach, found.window
        if window.reach <= _FURTHER * reached or not _tells(seen, window):
            break
        found = _fitted(seen, window, _REFINEMENTS)
    return found


def _tells(seen: _Seen, window: SampledWindow) -> bool:
    try:
        trace = seen.within(window.reach * seen.period_s)
    except TooLittleSeen:
        return False
    return len(trace.energy_j) >= _LEAST


def _best(fits: Sequence[Powers]) -> Powers:
    """Return a fit that leaves little noise: an explained one, if there is any, with the most evidence."""
    least = min(one.fit.noise for one in fits)
    alike = [one for one in fits if one.fit.noise <= _ALIKE * least]
    return max(alike, key=lambda one: (one.verdict.explained, one.fit.log_evidence))


def _narrower(windows: Sequence[SampledWindow]) -> Iterator[SampledWindow]:
    """Yield windows about as far back, but of a part of the period: behind a longer average, parabolas hardly tell."""
    for one in windows:
        if one.width > 2.0 * _PART and one.average + one.decay > 1.0:
            yield replace(one, width=_PART, offset=one.offset + (one.width - _PART) / 2.0)


def _fitted(seen: _Seen, window: SampledWindow, refinements: int) -> Powers:
    """Regress on the states, and on the window too for so many steps."""
    work = seen.work
    columns, width, leaning = work.columns, work.values.shape[1], work.leaning.shape[1]
    trace = seen.within(max(window.reach, 2.0) * seen.period_s)
    fine = Timeline(work.edges_s, work.values)
    exposed = exposure(fine, trace, window)
    mean_w = float(trace.energy_j.sum() / exposed.sum())
    waiting = Expected({len(columns.states): 1.0}, *WAITING)
    other = Expected({len(columns.states) + 2: 1.0}, *OTHER)
    limited = np.concatenate([*columns.plateaus, []]).astype(np.intp)

    def result(window: SampledWindow, design: Array) -> Powers:
        clock = np.append(columns.clock, np.zeros(design.shape[1] - width))
        last = design.shape[1] - leaning
        trends = np.arange(last - growing.shape[1], last) if design.shape[1] > width else np.arange(0)
        known = [waiting, other, *(Expected({int(n): 1.0}, 0.0, _GROWS) for n in trends)]
        known += [Expected({n: 1.0}, 0.0, _OWN) for n in columns.own]
        if len(trends):
            known += [Expected({last + n: 1.0}, 0.0, _LEANS) for n in range(leaning)]
        known += [Expected(weights, 0.0, _AS_FAST) for weights in alike(trends)]
        fit, evidence = regress(design, trace.energy_j, columns.curves, clock, known, columns.plateaus)
        grown_j = design[:, trends] @ fit.values[trends]
        free = design[:, limited].sum(axis=1) < _FELT * trace.period_s
        verdict = _verdict(power_of(fit), trace, window, grown_j, free)
        return Powers(trace.period_s, window, columns.waiting_mhz, fit, evidence, verdict, width)

    def alike(trends: NDArray[np.intp]) -> Iterator[dict[int, float]]:
        for weights in columns.alike:
            held = min(weights, key=weights.__getitem__)
            # A plateau's power is that of the end: by then all others have grown by half.
            grown = {int(n): -0.5 * float(tried[-1].fit.values[held]) / mean_w for n in trends[:1]}
            yield {**weights, **grown}

    def power_of(fit: CurveFit) -> Timeline:
        leans = fit.values[width:][-leaning:] / mean_w if len(fit.values) > width else np.zeros(leaning)
        return Timeline(work.edges_s, (work.values @ fit.values[:width] * (1.0 + work.leaning @ leans))[:, None])

    growing, at = _growing(columns, width)
    tried = [result(window, exposed)]
    for _ in range(refinements):
        power = power_of(tried[-1].fit)
        halves = Timeline(work.edges_s, (work.values @ tried[-1].fit.values[:width])[:, None] * work.leaning)
        grown = Timeline(work.edges_s, work.values @ (tried[-1].fit.values[:width, None] * growing))
        slopes, leans = _slopes(power, trace, window), exposure(halves, trace, window)
        unknown = np.column_stack([slopes, _trends(grown, trace, window, at), leans]) / mean_w
        tried.append(result(window, np.column_stack([exposed, unknown])))
        steps = tried[-1].fit.values[width : width + slopes.shape[1]] / mean_w
        if np.abs(steps).max() < _CLOSE:
            break
        window = _moved(window, steps)
        exposed = exposure(fine, trace, window)
    # Steps along what the increments hardly tell may lead away.
    return min(tried[1:] or tried, key=lambda one: (not one.verdict.explained, one.verdict.followed))


def _growing(columns: Columns, width: int) -> tuple[Array, list[float]]:
    """Return which columns grow together as the GPU gets warm, shape (width, 1 or 2), and see ``_trends``.

    However warm it is, the power limit is the same. But a cold GPU may not have come to it: what counts is the end.
    """
    limited = np.zeros(width)
    limited[len(columns.states) + 3 :] = 1.0
    for states in columns.plateaus:
        limited[states] = 1.0
    if not columns.plateaus:
        return np.ones((width, 1)), [0.0]
    return np.column_stack([1.0 - limited, limited]), [0.0, 0.5]


def _trends(powers: Timeline, trace: CounterTrace, window: SampledWindow, at: Sequence[float]) -> Array:
    """Return each increment times how late it is: GPUs that warm up leak, shape (n, powers).

    From begin to end it gets later by 1. Each power is as it is where that is ``at``, from -1/2 to 1/2.
    """
    seen_s = trace.updates_s[trace.last]
    late = (seen_s - (seen_s[0] + seen_s[-1]) / 2.0) / max(seen_s[-1] - seen_s[0], 1e-9)
    return exposure(powers, trace, window) * (late[:, None] - at)


def _verdict(
    power: Timeline, trace: CounterTrace, window: SampledWindow, grown_j: Array, free: NDArray[np.bool_]
) -> Verdict:
    def moved_j(shift: float) -> Array:
        return exposure(power, trace, window.moved(offset=shift))[:, 0] + grown_j

    return judge(moved_j(0.0), trace.energy_j, moved_j, free)


def _directions(window: SampledWindow) -> list[str]:
    """Return the names of what may be off about the window."""
    others = [name for name in ("average", "decay") if getattr(window, name) > 0.0]
    return ["offset", *["width"] * (window.width < 1.0), *others]


def _moved(window: SampledWindow, steps: Array) -> SampledWindow:
    shares = np.clip(steps, -_MOST_STEPS, _MOST_STEPS) * _STEP
    moved = window.moved(**dict(zip(_directions(window), shares.tolist(), strict=True)))
    return replace(moved, width=min(moved.width, 1.0))


def _slopes(power: Timeline, trace: CounterTrace, window: SampledWindow) -> Array:
    """Return how each increment changes with one step of each of the window's directions, shape (n, directions)."""

    def seen_j(name: str, steps: float) -> Array:
        return exposure(power, trace, window.moved(**{name: steps * _STEP}))[:, 0]

    return np.column_stack([seen_j(name, 0.5) - seen_j(name, -0.5) for name in _directions(window)])
