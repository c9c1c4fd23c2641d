"""Which part of the past an energy counter's update tells of: found from the job itself.

Some GPUs look at the power in a part of the update period only (A100 and H100: about 25 %, arXiv 2312.02741); some
look at an average over a second. What the counter integrates nobody documents, but only with the right answer do the
increments fit what ran: a few smooth power curves, of which the likelihood of each answer is profiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.counter import CounterTrace
from perseus_ds.profiling.timeline import Timeline

__all__ = ["FULL_PERIOD", "SampledWindow", "exposure", "find_windows"]

Array = NDArray[np.float64]

_WIDTHS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175, 0.125)
_OFFSETS = tuple(np.arange(0.0, 1.01, 0.05).tolist())
_LATE = tuple(np.arange(1.0, 8.1, 0.25).tolist())
_AVERAGES = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 6.5, 9.5, 14.0, 20.0, 30.0, 45.0)
_MIXED = (0.1, 0.3, 0.6)
_FADED = 4.0
_EVIDENCE = 12.0
# Where the noise of an increment comes out larger by this exponent half, moving the window will not mend it.
_HOPELESS = 1.0
# Likewise, where parabolas do not decide between two windows: the powers of all clocks do.
_OPEN = 1.0
# No counter knows the future; by this part of a period its updates may be noticed too early.
_AHEAD = 0.25
# A step that explains less more than this is none: along a valley there is no end of them.
_GAIN = 0.02


@dataclass(frozen=True)
class SampledWindow:
    """What of the power an update shows; times are fractions of the update period.

    Attributes:
        offset: From the end of the window to the update that shows it.
        width: The window's length; 1 when all the period counts.
        average: The window shows the power's mean over this time before; 0: the power itself.
        decay: What it shows forgets, besides, with this time constant; 0: it does not.
    """

    offset: float
    width: float
    average: float = 0.0
    decay: float = 0.0

    @property
    def reach(self) -> float:
        """How long before an update the power may have been drawn that it shows."""
        return self.offset + self.width + self.average + _FADED * self.decay

    @property
    def is_over(self) -> bool:
        """Whether the window has begun before the update that shows it, and hardly ends after it."""
        return self.offset >= -_AHEAD and self.offset + self.width > 0.0

    @property
    def averages(self) -> bool:
        """Whether it shows the power's mean over more than a period."""
        return self.average + self.decay > 1.0

    def moved(self, **shares: float) -> SampledWindow:
        """Return a window that differs: the offset by a share of the period, the others by shares of themselves."""
        offset = self.offset + shares.pop("offset", 0.0)
        return replace(
            self, offset=offset, **{name: getattr(self, name) * (1.0 + share) for name, share in shares.items()}
        )


FULL_PERIOD = SampledWindow(0.0, 1.0)


def exposure(timeline: Timeline, trace: CounterTrace, window: SampledWindow) -> Array:
    """Return what each increment of ``trace`` saw, in seconds scaled to whole periods, shape (n, c)."""
    seen = trace.seen
    period_s = np.diff(trace.updates_s)[seen]
    end_s = trace.updates_s[1:][seen] - window.offset * period_s
    over_s, decay_s = window.average * trace.period_s, window.decay * trace.period_s
    begin = timeline.averaged(end_s - window.width * period_s, over_s, decay_s)
    shown = (timeline.averaged(end_s, over_s, decay_s) - begin) / window.width
    summed = np.vstack([np.zeros((1, shown.shape[1])), np.cumsum(shown, axis=0)])
    return summed[np.searchsorted(seen, trace.last)] - summed[np.searchsorted(seen, trace.first)]


def find_windows(trace: CounterTrace, timeline: Timeline, longest: float = 0.0) -> list[SampledWindow]:
    """Find the sampled windows under which the increments fit the timeline.

    Args:
        trace: The increments.
        timeline: What ran, with few values (a smooth power curve per instruction kind).
        longest: Windows that reach back further are not tried, in periods; the trace has no increment that
            saw anything unknown within it. 0: no averages are tried.

    Returns:
        The best one of each form that may be right, the best first; averages only where they explain the increments
        clearly better than a simple window does.
    """
    known: dict[SampledWindow, float] = {}

    def score(window: SampledWindow) -> float:
        if window not in known:
            misfit = _misfit(exposure(timeline, trace, window), trace.energy_j)
            known[window] = len(trace.energy_j) * float(np.log(misfit))
        return known[window]

    def refined(tried: Iterable[SampledWindow], hopeless: float) -> SampledWindow:
        best, step = min((one for one in tried if one.reach <= longest), key=score, default=chosen), 0.05
        while score(best) < hopeless and step > 0.005:
            near = (one for one in _near(best, step) if one.reach <= max(longest, 2.0) and one.is_over)
            better = min(near, key=score, default=best)
            step = step / 2 if score(better) > score(best) - _GAIN else step
            best = min(best, better, key=score)
        return best

    chosen = min(_sampled(longest), key=score)
    chosen = refined([chosen], np.inf)
    simple = chosen if score(chosen) < score(FULL_PERIOD) - _EVIDENCE else FULL_PERIOD
    hopeless = score(chosen) + _HOPELESS * len(trace.energy_j)
    flat = refined(_averages(False), hopeless)
    fading = refined(_averages(True), hopeless)
    either = min(flat, fading, key=score)
    mixed = [replace(either, average=a * either.reach, decay=b * either.reach) for a in _MIXED for b in _MIXED]
    both = refined(mixed, score(either) + _HOPELESS * len(trace.energy_j))
    others = [one for one in (flat, fading, both) if score(one) < score(simple) - _EVIDENCE]
    least = min(map(score, [simple, *others]))
    open_ones = [one for one in (simple, *others) if score(one) < least + _OPEN * len(trace.energy_j)]
    return sorted(open_ones, key=score)


def _sampled(longest: float) -> Iterator[SampledWindow]:
    for width in _WIDTHS:
        yield from (SampledWindow(offset, width) for offset in _OFFSETS if offset + width <= 1.5)
    yield from (SampledWindow(offset, 1.0) for offset in _LATE if offset + 1.0 <= longest)


def _averages(fading: bool) -> Iterator[SampledWindow]:
    for average, width, offset in product(_AVERAGES, (1.0, 0.25), (0.0, 0.5, 1.0, 2.5, 5.0)):
        yield SampledWindow(offset, width, 0.0 if fading else average, average if fading else 0.0)


def _near(window: SampledWindow, step: float) -> Iterator[SampledWindow]:
    for shift in (-step, step):
        yield window.moved(offset=shift)
        if window.width * (1.0 + 2.0 * shift) <= 1.0:
            yield window.moved(width=2.0 * shift)
        if window.average:
            yield window.moved(average=4.0 * shift)
            yield window.moved(average=-2.0 * shift, offset=shift)
        if window.decay:
            yield window.moved(decay=4.0 * shift)
            yield window.moved(decay=-2.0 * shift, offset=shift)
        if window.average and window.decay:
            yield window.moved(average=4.0 * shift, decay=-4.0 * shift)


def _misfit(exposed: Array, energy_j: Array) -> float:
    """Return the mean squared relative residual of a least-squares fit, the largest tenth left out."""
    design = exposed / energy_j[:, None]
    target: Any = np.ones(len(energy_j))
    solution = np.linalg.lstsq(design, target, rcond=1e-9)[0]
    squares = np.sort((design @ solution - target) ** 2)
    return float(np.mean(squares[: 1 + len(squares) * 9 // 10])) + 1e-12
