"""Switch latencies of all ranks together: the usual one of each clock, their jitter, and the tail.

Latencies of real GPUs depend on the clock, and a few requests take far longer than the others to the same clock (arXiv
2502.20075). A clock is asked for ahead by its usual latency, so the tail makes instructions run at the clock before.

Of each request only bounds are known. A reading shows that a clock has come, and the one before that it had not; where
readings are renewed every 100 ms, that is all they tell. An instruction tells it as well as clocks change its time. A
clock that came in a wait shows only if it came late: what is known for certain would have too many late ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import NamedTuple

import numpy as np

from perseus_ds.pipeline.clocks import USUAL_JITTER

__all__ = ["DELAYS", "Bounds", "Spread", "latency_spread", "usual_latencies_s", "usual_latency_s"]

DELAYS = ("request_stall_s", "switch_tail_share", "switch_tail_s")
"""Fields of a profile that tell what clock requests delay, besides the usual latencies."""

Bounds = tuple[float, float]
"""Least and most seconds from a request to its clock."""

_OfRanks = Iterable[Mapping[int, Sequence[Bounds]]]

_FINE_S = 1e-4  # nothing is known better
_WRONG = 1e-9  # share of bounds that hold nothing
_RARE = 0.3  # share of a tail that needs that much more evidence than none, in log units
_SEEN = 0.5  # requests in the tail
_FAR = 3.0  # times the usual latency of all clocks: one request alone may be mistaken
_JITTERS, _TAILS = (0.3, 3.0), (1.0, 3.0)  # where the search begins: times the usual jitter, and latency


class Spread(NamedTuple):
    """How far latencies are from the usual ones of their clocks.

    Attributes:
        jitter_s: Standard deviation, of a clock with a usual latency.
        tail_share: Share of the requests that take far longer.
        tail_s: Their mean additional time, exponentially distributed.
    """

    jitter_s: float
    tail_share: float
    tail_s: float


def latency_spread(ranks: _OfRanks) -> Spread | None:
    """Return the most likely spread, given the bounds; without evidence the usual jitter and no tail.

    Args:
        ranks: For each rank: latencies by clock in MHz.

    Returns:
        The spread; None where nothing was seen.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, ndtr

    by_clock = _by_clock(ranks)
    usual_s = {mhz: max(_FINE_S, one_s) for mhz, one_s in usual_latencies_s([by_clock]).items()}
    if not usual_s:
        return None
    overall_s = median(usual_s.values())
    rows = [(least_s - _FINE_S, most_s + _FINE_S, usual_s[mhz]) for mhz in usual_s for least_s, most_s in by_clock[mhz]]
    least_s, most_s, own_s = np.array(rows).T

    def unlikely(parameters: np.ndarray) -> float:
        jitter, tail_s, share = np.exp(parameters[0]), np.exp(parameters[1]), expit(parameters[2])
        among_usual = ndtr((most_s / own_s - 1.0) / jitter) - ndtr((least_s / own_s - 1.0) / jitter)
        late = np.exp(-np.maximum(0.0, np.array([least_s, most_s]) - own_s) / tail_s)
        likelihood = (1.0 - share) * among_usual + share * (late[0] - late[1])
        doubts = (parameters[0] - np.log(USUAL_JITTER)) ** 2 / 2.0 + (parameters[1] - np.log(overall_s)) ** 2 / 4.0
        return float(doubts + share / _RARE - np.log(likelihood + _WRONG).sum())

    begins = [(np.log(jitter * USUAL_JITTER), np.log(tail * overall_s), -3.0) for jitter in _JITTERS for tail in _TAILS]
    found = min((minimize(unlikely, begin, method="Nelder-Mead") for begin in begins), key=lambda one: one.fun)
    jitter, tail_s, share = np.exp(found.x[0]), np.exp(found.x[1]), expit(found.x[2])
    jitter_s = float(jitter * overall_s)
    has_tail = share * len(rows) > _SEEN and tail_s > jitter_s
    return Spread(jitter_s, *((float(share), float(tail_s)) if has_tail else (0.0, 0.0)))


def usual_latencies_s(ranks: _OfRanks) -> dict[int, float]:
    """Return the usual time to each clock in MHz.

    Args:
        ranks: For each rank: latencies by clock in MHz.
    """
    by_clock = _by_clock(ranks)
    ends_s = [end_s for bounds in by_clock.values() for end_s in chain(*bounds) if math.isfinite(end_s)]
    if not ends_s:
        return {}
    overall_s = median(ends_s)
    usual_s = {mhz: usual_latency_s(bounds, overall_s) for mhz, bounds in by_clock.items() if bounds}
    far = {mhz for mhz, one_s in usual_s.items() if one_s > _FAR * overall_s}
    return usual_s | {mhz: usual_latency_s(by_clock[mhz], overall_s, requests=1) for mhz in far}


def usual_latency_s(bounds: Iterable[Bounds], expected_s: float, requests: int = 0) -> float:
    """Return the usual time to a clock: of all times the one that is least outside the bounds, in total.

    Args:
        bounds: Of requests for this clock.
        expected_s: What others tell; of times that are equally good the nearest to it counts.
        requests: As many requests it stands for itself.
    """
    # The distance to bounds is half the sum of the distances to both: the median of all is the nearest.
    return median([*chain.from_iterable(bounds), *[expected_s] * (2 * requests + 1)])


def _by_clock(ranks: _OfRanks) -> dict[int, list[Bounds]]:
    """Return all ranks' latencies together."""
    by_clock: dict[int, list[Bounds]] = defaultdict(list)
    for of_rank in ranks:
        for mhz, bounds in of_rank.items():
            by_clock[mhz] += bounds
    return by_clock
