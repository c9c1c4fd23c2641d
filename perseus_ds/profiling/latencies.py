"""Switch latencies of all ranks together: the usual one of each clock, and the tail.

Latencies of real GPUs depend on the clock, and a few requests take far longer than the others to the same clock (arXiv
2502.20075). A clock is asked for ahead by its usual latency, so the tail makes instructions run at the clock before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

__all__ = ["DELAYS", "switch_tail", "usual_latencies_s", "usual_latency_s"]

DELAYS = ("request_stall_s", "switch_tail_share", "switch_tail_s")
"""Fields of a profile that tell what clock requests delay, besides the usual latencies."""

_ENOUGH = 3  # latencies of a clock that tell its median
_FAR = 4 * 1.4826  # median deviations that are four standard deviations of a normal distribution
_MOST_UNSEEN = 2.0  # times the tail that was seen: as much there may be in all


def switch_tail(latencies_s: Iterable[Mapping[int, Sequence[float]]]) -> tuple[float, float]:
    """Return the share of switches in the tail, and their mean additional time in seconds; zeros without a tail.

    The additional time is taken as exponentially distributed. So the part of the tail that hides among usual
    deviations follows from the part beyond them.

    Args:
        latencies_s: For each rank: times from a request to a clock, by clock in MHz.
    """
    by_clock = _by_clock(latencies_s)
    excesses = [
        (one_s - median(some_s), median(some_s))
        for some_s in by_clock.values()
        if len(some_s) >= _ENOUGH
        for one_s in some_s
    ]
    # The medians' own are 0 by definition.
    shares = [abs(excess_s) / typical_s for excess_s, typical_s in excesses if excess_s and typical_s]
    if not shares:
        return 0.0, 0.0
    far = _FAR * median(shares)
    beyond_s = [excess_s - far * typical_s for excess_s, typical_s in excesses if excess_s > far * typical_s]
    if not beyond_s:
        return 0.0, 0.0
    tail_s = fmean(beyond_s)
    seen = fmean(math.exp(-far * typical_s / tail_s) for _, typical_s in excesses)
    return len(beyond_s) / len(excesses) * min(_MOST_UNSEEN, 1.0 / seen if seen else math.inf), tail_s


def usual_latencies_s(latencies_s: Iterable[Mapping[int, Sequence[float]]]) -> dict[int, float]:
    """Return the usual time to each clock in MHz.

    Args:
        latencies_s: See ``switch_tail``.
    """
    return {mhz: usual_latency_s(some_s) for mhz, some_s in _by_clock(latencies_s).items() if some_s}


def usual_latency_s(latencies_s: Sequence[float]) -> float:
    """Return the usual time to a clock: the median, of one or two the shorter one, as the tail is heavy.

    Args:
        latencies_s: Of requests for this clock, in seconds; at least one.
    """
    return median(latencies_s) if len(latencies_s) >= _ENOUGH else min(latencies_s)


def _by_clock(latencies_s: Iterable[Mapping[int, Sequence[float]]]) -> dict[int, list[float]]:
    """Return all ranks' latencies together."""
    by_clock: dict[int, list[float]] = defaultdict(list)
    for of_rank in latencies_s:
        for mhz, some_s in of_rank.items():
            by_clock[mhz] += some_s
    return by_clock
