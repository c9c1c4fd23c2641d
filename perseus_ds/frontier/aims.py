"""Where clocks that jitter are best asked to come: mostly within the instruction whose time depends less on the clock.

A clock that comes late lets its instruction begin at the clock before. One that comes early lets the instruction before
end at the new clock. Either changes a time, and all later begins. Where a backward hardly gets slower at a lower clock
and a forward does, clocks had better change within backwards: then jitter hardly shows. The change grows linearly to
either side, so its mean is least where the clock comes late in a certain share of cases (the newsvendor problem;
Edgeworth, The mathematical theory of banking, 1888).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from statistics import median

import numpy as np
from numba import njit

__all__ = ["aim", "aims_s", "spread"]

# Seconds that a second at the wrong clock changes a time by. Where these differ by less between both instructions, it
# hardly matters where the clock comes, and measured curves tell no better.
_DIFFER = 0.05
_LEAST = 0.01  # of these
_LOGISTIC = 1.702  # a normal quantile is about that of a logistic distribution, divided by this
_MOST = 2.0
_LEAST_SPREAD = 0.01  # of a clock that comes at once: moves divide by it


@njit(cache=True, nogil=True)
def aim(before_own_s: float, before_new_s: float, old_s: float, new_s: float) -> float:
    """Return how long after an instruction's begin its clock is to come.

    Args:
        before_own_s: Time of the instruction before it at its own clock.
        before_new_s: The same at the clock to come.
        old_s: Time of the instruction itself at the clock of the one before.
        new_s: The same at the clock to come.

    Returns:
        In standard deviations of the clock's jitter; negative: before the begin.
    """
    early, late = abs(before_new_s / before_own_s - 1.0), abs(1.0 - new_s / old_s)
    if abs(early - late) < _DIFFER:
        return 0.0
    early, late = max(early, _LEAST), max(late, _LEAST)
    return max(-_MOST, min(_MOST, log(early / late) / _LOGISTIC))


@njit(cache=True, nogil=True)
def aims_s(nodes, clock, deviation_s):
    """Return how long after each instruction's begin its clock is to come, as ``aim`` tells; negative: before.

    A stage's first clock is not asked for ahead.

    Args:
        nodes: A ``Neighbours``.
        clock: Index of each instruction's clock.
        deviation_s: Usual standard deviation of a clock's jitter.
    """
    found_s, later = np.zeros(clock.size), np.zeros(clock.size, dtype=np.bool_)
    for node in nodes.order:
        if node >= clock.size:
            continue
        before, own = nodes.before[node], clock[node]
        later[nodes.after[node]] = True
        if own == clock[before] or not later[node] or deviation_s == 0.0:
            continue
        old_s, new_s = nodes.option_s[nodes.row[before]], nodes.option_s[nodes.row[node]]
        deviations = aim(old_s[clock[before]], old_s[own], new_s[clock[before]], new_s[own])
        found_s[node] = deviations * nodes.spread[own] * deviation_s
        if nodes.latency_s[own] > 0.0:
            found_s[node] = min(found_s[node], nodes.latency_s[own])  # it is asked for no later than the begin
    return found_s


def spread(latency_s: Mapping[int, float], mhz: int) -> float:
    """Return a clock's jitter as a multiple of the usual one: it is in proportion to the latency.

    Args:
        latency_s: Usual latency by clock in MHz, where it is known.
        mhz: The clock.
    """
    usual_s = median(latency_s.values()) if latency_s else 0.0
    return max(_LEAST_SPREAD, latency_s.get(mhz, usual_s) / usual_s) if usual_s else 1.0
