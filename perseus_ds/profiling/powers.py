"""The power of every instruction at every clock, of waiting and of other work, from the counter's increments.

Linear in all powers, so that their intervals follow. What the counter's window is, is found with them: first with a
parabola for each curve's power, then, with every clock's own, by one step of Gauss and Newton whose unknowns stay in
the regression. The window's doubt is so part of every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.counter import CounterTrace, counter_trace
from perseus_ds.profiling.judge import Verdict, judge
from perseus_ds.profiling.law import WAITING, power_law
from perseus_ds.profiling.priors import parabolas, unit_clocks
from perseus_ds.profiling.regression import CurveFit, Evidence, Expected, regress
from perseus_ds.profiling.spans import Between, Segment
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.timeline import Timeline
from perseus_ds.profiling.window import SampledWindow, exposure, find_windows

__all__ = ["CounterReader", "Powers", "TooLittleSeen", "counter_reader", "fit_powers"]

Array = NDArray[np.float64]

# Windows that reach back further than this, or than this share of what was seen, are not looked for.
_LONGEST_S = 6.0
_LONGEST_SHARE = 0.3
_BEFORE_S = 1.0
# How far the window may be off, in periods (width and average: of themselves).
_STEP = 0.02
_MOST_STEPS = 3.0
_REFINEMENTS = 8
_CLOSE = 0.2
# A window that came to reach further by this factor has other increments: they are fitted again, if so many are left.
_FURTHER = 1.03
_ROUNDS = 4
_LEAST = 40
# Fits whose noise differs by less than this factor explain the counter equally well.
_ALIKE = 1.05
# Where less than this share of the increments saw nothing doubtful, doubtful times count too.
_ENOUGH_SURE = 0.6

CounterReader = Callable[[float | None], CounterTrace]
"""Returns the increments whose window, with a reach in seconds, saw nothing unknown; None: a window of a period."""


class TooLittleSeen(Exception):
    """The counter hardly moved."""


@dataclass(frozen=True)
class Powers:
    """What the counter's increments were fitted with.

    Attributes:
        period_s: Update period of the counter.
        window: What of the power an update shows.
        waiting_mhz: The mean clock while waiting.
        fit: Of each state; then waiting at that clock, what waiting takes more at the highest clock than at the
            lowest, other work, how far off the window's offset, width and average may be, and how much all has grown.
        evidence: What they were fitted to.
        verdict: What the residuals say of it.
    """

    period_s: float
    window: SampledWindow
    waiting_mhz: float
    fit: CurveFit
    evidence: Evidence
    verdict: Verdict


@dataclass(frozen=True)
class _Columns:
    """The unknowns of the regression.

    Attributes:
        states: Curve and MHz of the first ones; waiting, its slope and other work follow.
        curves: For each curve its columns.
        clock: Scaled to 0 ... 1, of every column.
        waiting_mhz: The mean clock while waiting.
    """

    states: tuple[tuple[CurveKey, int], ...]
    curves: list[NDArray[np.intp]]
    clock: Array
    waiting_mhz: float


@dataclass(frozen=True)
class _Seen:
    """What ran, and what the counter said.

    Attributes:
        columns: The unknowns.
        edges_s: Borders of the segments.
        values: How much of each column's power every segment draws.
        within: The counter.
        period_s: Its update period.
    """

    columns: _Columns
    edges_s: Array
    values: Array
    within: CounterReader
    period_s: float


def counter_reader(
    did: Sequence[Segment],
    samples: Sequence[tuple[float, float]],
    excluded: Sequence[tuple[float, float]] = (),
    doubtful: Sequence[tuple[float, float]] = (),
) -> CounterReader:
    """Return the counter as a function of how far back its window reaches.

    Args:
        did: What the GPU did, in order of time.
        samples: (monotonic time, joules) of each changed point of the counter.
        excluded: (begin, end) of times that do not count.
        doubtful: (begin, end) of times that do not count where the others are enough.
    """

    def without(reach_s: float | None, left_out: Sequence[tuple[float, float]]) -> CounterTrace | None:
        return counter_trace(samples, did[0].begin_s, did[-1].end_s, left_out, reach_s)

    def within(reach_s: float | None) -> CounterTrace:
        everything = without(reach_s, excluded)
        if everything is None:
            raise TooLittleSeen
        sure = without(reach_s, [*excluded, *doubtful]) if doubtful else everything
        enough = sure is not None and len(sure.energy_j) >= _ENOUGH_SURE * len(everything.energy_j)
        return sure if sure is not None and enough else everything

    return within


def fit_powers(
    did: Sequence[Segment],
    counter: CounterReader,
    window: SampledWindow | None = None,
    guess: SampledWindow | None = None,
) -> tuple[tuple[tuple[CurveKey, int], ...], Powers]:
    """Fit powers to a counter's increments.

    Args:
        did: What the GPU did, in order of time.
        counter: Result of ``counter_reader``.
        window: What of the power an update shows, if known; default: found.
        guess: What was found earlier; others are looked for only where this one leaves something unexplained.

    Returns:
        The states (curve and MHz), and the powers.

    Raises:
        TooLittleSeen: The counter moved too seldom.
    """
    columns = _columns(did)
    seen = _Seen(columns, *_shares(did, columns), counter, counter(None).period_s)
    if window is not None:
        return columns.states, _fitted(seen, window, 0)
    if guess is not None and (fitted := _fitted(seen, guess, _REFINEMENTS)).verdict.explained:
        return columns.states, fitted
    longest_s = min(_LONGEST_S, _LONGEST_SHARE * (did[-1].end_s - did[0].begin_s))
    coarse = Timeline(seen.edges_s, seen.values @ parabolas(columns.curves, columns.clock))
    windows = find_windows(seen.within(longest_s), coarse, longest_s / seen.period_s)
    best = _best([_settled(seen, one) for one in windows])
    if best.verdict.explained:
        return columns.states, best
    trace = seen.within(best.window.reach * best.period_s)
    exposed_s = exposure(Timeline(seen.edges_s, seen.values), trace, best.window).sum(axis=0)
    return columns.states, replace(best, fit=power_law(columns.states, exposed_s, float(trace.energy_j.sum())))


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
    """Return the fit that leaves the least noise; of those that leave the same an explained one of a simple window."""
    least = min(one.fit.noise for one in fits)
    alike = [one for one in fits if one.fit.noise <= _ALIKE * least]
    return min(alike, key=lambda one: (not one.verdict.explained, len(_directions(one.window)), one.fit.noise))


def _fitted(seen: _Seen, window: SampledWindow, refinements: int) -> Powers:
    """Regress on the states, and on the window too for so many steps."""
    columns, width = seen.columns, seen.values.shape[1]
    trace = seen.within(max(window.reach, 2.0) * seen.period_s)
    fine = Timeline(seen.edges_s, seen.values)

    def result(window: SampledWindow, design: Array) -> Powers:
        clock = np.append(columns.clock, np.zeros(design.shape[1] - width))
        fit, evidence = regress(design, trace.energy_j, columns.curves, clock, Expected(len(columns.states), *WAITING))
        verdict = _verdict(power_of(fit), trace, window)
        return Powers(trace.period_s, window, columns.waiting_mhz, fit, evidence, verdict)

    def power_of(fit: CurveFit) -> Timeline:
        return Timeline(seen.edges_s, seen.values @ fit.values[:width, None])

    tried = [result(window, exposure(fine, trace, window))]
    for _ in range(refinements):
        exposed = exposure(fine, trace, window)
        mean_w = float(trace.energy_j.sum() / exposed.sum())
        power = power_of(tried[-1].fit)
        unknown = np.column_stack([_slopes(power, trace, window), _trend(power, trace, window)]) / mean_w
        tried.append(result(window, np.column_stack([exposed, unknown])))
        steps = tried[-1].fit.values[width:-1] / mean_w
        if np.abs(steps).max() < _CLOSE:
            break
        window = _moved(window, steps)
    # Steps along what the increments hardly tell may lead away.
    return min(tried[1:] or tried, key=lambda one: (not one.verdict.explained, one.verdict.followed))


def _trend(power: Timeline, trace: CounterTrace, window: SampledWindow) -> Array:
    """Return each increment times how late it is, from -1/2 to 1/2: GPUs that warm up leak, shape (n,)."""
    seen_s = trace.updates_s[trace.last]
    late = (seen_s - (seen_s[0] + seen_s[-1]) / 2.0) / max(seen_s[-1] - seen_s[0], 1e-9)
    return exposure(power, trace, window)[:, 0] * late


def _verdict(power: Timeline, trace: CounterTrace, window: SampledWindow) -> Verdict:
    def moved_j(shift: float) -> Array:
        return exposure(power, trace, window.moved(offset=shift))[:, 0]

    return judge(moved_j(0.0), trace.energy_j, moved_j)


def _columns(did: Sequence[Segment]) -> _Columns:
    states = tuple(sorted({(one.what, one.clock_mhz) for one in did if isinstance(one.what, CurveKey)}))
    keys = sorted({key for key, _ in states})
    curves = [np.array([at for at, state in enumerate(states) if state[0] == key]) for key in keys]
    waits = np.array([(one.end_s - one.begin_s, one.clock_mhz) for one in did if one.what is Between.WAITING])
    waiting_mhz = float(waits[:, 0] @ waits[:, 1] / waits[:, 0].sum()) if len(waits) else float(states[-1][1])
    return _Columns(states, curves, np.append(unit_clocks([mhz for _, mhz in states]), np.zeros(3)), waiting_mhz)


def _shares(did: Sequence[Segment], columns: _Columns) -> tuple[Array, Array]:
    """Return segment borders, and how much of each column's power every segment draws; waiting before and after."""
    at = {state: index for index, state in enumerate(columns.states)}
    span_mhz = max(max(mhz for _, mhz in at) - min(mhz for _, mhz in at), 1)
    waiting, slope, other = range(len(at), len(at) + 3)
    edges_s = [did[0].begin_s - _BEFORE_S, did[0].begin_s]
    values = np.zeros((2 * len(did) + 1, other + 1))
    values[0, waiting] = 1.0
    for row, one in enumerate(did):
        edges_s += [max(one.begin_s, edges_s[-1]), max(one.end_s, edges_s[-1])]
        here = values[2 * row + 2]
        if isinstance(one.what, CurveKey):
            here[at[one.what, one.clock_mhz]] = 1.0
        elif one.what is Between.OTHER:
            here[other] = 1.0
        else:
            here[waiting] = 1.0
            here[slope] = (one.clock_mhz - columns.waiting_mhz) / span_mhz
    # Row 2 r + 1 lies between two segments, where there should be nothing.
    values[1:-1:2] = values[2::2]
    return np.array(edges_s), values


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
