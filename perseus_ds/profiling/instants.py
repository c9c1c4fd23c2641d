"""Powers from what the driver shows between the updates of an energy counter that averages.

A counter that shows the mean of a second hardly tells forwards from backwards where they alternate. The driver also
shows a power that it samples ten times a second for some 25 ms (arXiv 2312.02741). Such readings are like a counter
that looks at a part of its period: what part, is found with the powers. How high they all are, the counter tells.
What both tell of the powers is taken together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np

from perseus_ds.profiling.achieved import Limited
from perseus_ds.profiling.counter import CounterReader, TooLittleSeen
from perseus_ds.profiling.powers import Powers, fit_powers
from perseus_ds.profiling.regression import CurveFit, Evidence, refit
from perseus_ds.profiling.window import SampledWindow

__all__ = ["as_counter", "sharpened"]

_MISSED = 1.5  # periods between two readings from which on one was missed
_LEAST = 40
_UNSURE = 0.01  # of a power, as a standard deviation: from this doubt on, the shown ones may tell more than a counter
_WORSE = 2.0  # times the counter's doubt: shown powers that leave more tell nothing
_NOISY = 0.2  # standard deviation of one: an H200's, in short instructions and beside reads of its counter, have 0.4
# As published; another one is looked for where it does not explain the shown powers.
_PUBLISHED = SampledWindow(0.0, 0.25)


def as_counter(shown_w: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a counter that counts each power for a whole period.

    After a reading that was missed the counter stands still for once, which no increment of a counter does: it does
    not count.

    Args:
        shown_w: (monotonic time, watts) of each renewal of the power, in order of time.
    """
    if len(shown_w) < _LEAST:
        return []
    period_s = median(after_s - before_s for (before_s, _), (after_s, _) in pairwise(shown_w))
    samples, counted_j = [(shown_w[0][0], 0.0)], 0.0
    for (before_s, _), (time_s, power_w) in pairwise(shown_w):
        counted_j += power_w * period_s if time_s - before_s < _MISSED * period_s else 0.0
        samples.append((time_s, counted_j))
    return samples


def sharpened(counted: Powers, limited: Limited, shown: CounterReader) -> Powers:
    """Return powers as the counter and the shown ones tell them together, at the level that the counter tells.

    Args:
        counted: What the energy counter tells. Its window and period stay.
        limited: What the GPU did.
        shown: Reader of what ``as_counter`` returns.

    Returns:
        ``counted`` itself where the counter leaves little in doubt, and where the shown powers are not explained, are
        noisy, or tell much less. Where the counter is not explained, the shown ones alone: what has been counted still
        tells the level.
    """
    if counted.verdict.explained and _doubt(counted) < _UNSURE and not counted.window.averages:
        return counted
    try:
        _, found = fit_powers(limited, shown, guess=_PUBLISHED)
    except (TooLittleSeen, np.linalg.LinAlgError):
        return counted
    clear = found.verdict.explained and found.fit.noise < _NOISY
    if not clear or _doubt(found) > _WORSE * _doubt(counted):
        return counted
    level = _level(counted, found.fit.values)
    evidence, fit = found.evidence.scaled(level), found.fit
    if counted.verdict.explained:
        evidence = _together(_of_powers(counted, counted.evidence), _of_powers(found, evidence))
        fit = refit(evidence)
    else:
        fit = CurveFit(level * fit.values, level * fit.sd, fit.noise, fit.log_evidence)
    return replace(counted, fit=fit, evidence=evidence, verdict=found.verdict)


def _of_powers(found: Powers, evidence: Evidence) -> Evidence:
    """Return what the amounts say of the powers, whatever else was unknown."""
    return replace(evidence.of_first(found.columns), noise=found.fit.noise)


def _together(one: Evidence, other: Evidence) -> Evidence:
    """Return the evidence of all amounts, in units of the first ones' noise."""
    weight = (one.noise / other.noise) ** 2
    return replace(
        one,
        gram=one.gram + weight * other.gram,
        moment=one.moment + weight * other.moment,
        square=one.square + weight * other.square,
        count=one.count + other.count,
    )


def _doubt(found: Powers) -> float:
    states = np.concatenate([*found.evidence.curves, *found.evidence.plateaus])
    return float(np.mean(found.fit.sd[states] / found.fit.values[states]))


def _level(counted: Powers, shown_w: np.ndarray) -> float:
    """Return by what all shown powers are to be multiplied, so that they add up to what was counted."""
    powers_w = np.zeros(len(counted.evidence.moment))
    powers_w[: counted.columns] = shown_w[: counted.columns]
    return counted.evidence.level(powers_w)
