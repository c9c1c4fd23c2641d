"""Powers from what the driver shows between the updates of an energy counter that averages.

A counter that shows the mean of a second hardly tells forwards from backwards where they alternate. The driver also
shows a power that it samples ten times a second for some 25 ms (arXiv 2312.02741). Such readings are like a counter
that looks at a part of its period: what part, is found with the powers. How high they all are, the counter tells.
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
from perseus_ds.profiling.regression import CurveFit

__all__ = ["as_counter", "sharpened"]

_MISSED = 1.5  # periods between two readings from which on one was missed
_LEAST = 40
_BETTER = 0.8  # of the doubt of the counter's own powers


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
    """Return powers as the shown ones tell them, at the level that the energy counter tells.

    Args:
        counted: What the energy counter tells. Its window and period stay.
        limited: What the GPU did.
        shown: Reader of what ``as_counter`` returns.

    Returns:
        ``counted`` itself where the shown powers are not explained, or tell hardly more. Where the counter is not
        explained, what it has counted still tells the level.
    """
    try:
        states, found = fit_powers(limited, shown)
    except (TooLittleSeen, np.linalg.LinAlgError):
        return counted
    sharper = _doubt(found, len(states)) < _BETTER * _doubt(counted, len(states))
    if not found.verdict.explained or (counted.verdict.explained and not sharper):
        return counted
    level = _level(counted, found.fit.values)
    fit = CurveFit(level * found.fit.values, level * found.fit.sd, found.fit.noise, found.fit.log_evidence)
    return replace(counted, fit=fit, evidence=found.evidence.scaled(level), verdict=found.verdict)


def _doubt(found: Powers, states: int) -> float:
    return float(np.mean(found.fit.sd[:states] / found.fit.values[:states]))


def _level(counted: Powers, shown_w: np.ndarray) -> float:
    """Return by what all shown powers are to be multiplied, so that they add up to what was counted."""
    evidence = counted.evidence
    powers_w = np.zeros(len(evidence.moment))
    powers_w[: counted.columns] = shown_w[: counted.columns]
    return float(evidence.moment @ powers_w) / float(powers_w @ evidence.gram @ powers_w)
