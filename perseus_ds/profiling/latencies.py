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
_APART = 0.5  # how far clocks' latencies are apart, in log units; on virtual GPUs like measured ones 0.4 to 0.6
_OFF = np.linspace(-1.5, 1.5, 121)  # how far a usual latency may be off, in log units


class Spread(NamedTuple):
    """How far latencies are from the usual ones of their clocks.

    Attributes:
        jitter_s: Standard deviation, of a clock with a usual latency.
        doubt_s: How far off its usual latency itself may be.
        tail_share: Share of the requests that take far longer.
        tail_s: Their mean additional time, exponentially distributed.
    """

    jitter_s: float
    doubt_s: float
    tail_share: float
    tail_s: float

    @property
    def off_s(self) -> float:
        """How far from its expected time a clock comes, without the tail: standard deviation."""
        return math.hypot(self.jitter_s, self.doubt_s)


class _Law(NamedTuple):
    """How likely a latency is; the jitter is a part of the usual latency."""

    jitter: float
    tail_share: float
    tail_s: float

    def likelihood(self, least_s: np.ndarray, most_s: np.ndarray, usual_s: np.ndarray) -> np.ndarray:
        """Return the share of latencies within bounds."""
        from scipy.special import ndtr

        among_usual = ndtr((most_s / usual_s - 1.0) / self.jitter) - ndtr((least_s / usual_s - 1.0) / self.jitter)
        at_least, at_most = (np.exp(-np.maximum(0.0, end_s - usual_s) / self.tail_s) for end_s in (least_s, most_s))
        return (1.0 - self.tail_share) * among_usual + self.tail_share * (at_least - at_most)


def latency_spread(ranks: _OfRanks) -> Spread | None:
    """Return the most likely spread, given the bounds; without evidence the usual jitter and no tail.

    Args:
        ranks: For each rank: latencies by clock in MHz.

    Returns:
        The spread; None where nothing was seen.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    by_clock = _by_clock(ranks)
    usual_s = {mhz: max(_FINE_S, one_s) for mhz, one_s in usual_latencies_s([by_clock]).items()}
    if not usual_s:
        return None
    overall_s = median(usual_s.values())
    rows = [(least_s - _FINE_S, most_s + _FINE_S, usual_s[mhz]) for mhz in usual_s for least_s, most_s in by_clock[mhz]]
    least_s, most_s, own_s = np.array(rows).T

    def law(parameters: np.ndarray) -> _Law:
        return _Law(np.exp(parameters[0]), expit(parameters[2]), np.exp(parameters[1]))

    def unlikely(parameters: np.ndarray) -> float:
        one = law(parameters)
        doubts = (parameters[0] - np.log(USUAL_JITTER)) ** 2 / 2.0 + (parameters[1] - np.log(overall_s)) ** 2 / 4.0
        return float(doubts + one.tail_share / _RARE - np.log(one.likelihood(least_s, most_s, own_s) + _WRONG).sum())

    begins = [(np.log(jitter * USUAL_JITTER), np.log(tail * overall_s), -3.0) for jitter in _JITTERS for tail in _TAILS]
    found = law(min((minimize(unlikely, begin, method="Nelder-Mead") for begin in begins), key=lambda one: one.fun).x)
    jitter_s = float(found.jitter * overall_s)
    doubt_s = overall_s * _doubt(by_clock, usual_s, found)
    has_tail = found.tail_share * len(rows) > _SEEN and found.tail_s > jitter_s
    return Spread(jitter_s, doubt_s, *((float(found.tail_share), float(found.tail_s)) if has_tail else (0.0, 0.0)))


def _doubt(by_clock: Mapping[int, Sequence[Bounds]], usual_s: Mapping[int, float], law: _Law) -> float:
    """Return how far usual latencies may be off, as a share of them: root mean square of all clocks."""
    apart = np.log(median(usual_s.values()))
    law = law._replace(jitter=max(law.jitter, _OFF[1] - _OFF[0]))  # nothing between two steps is missed
    off_s = []
    for mhz, own_s in usual_s.items():
        least_s, most_s = (np.array(by_clock[mhz]) + np.array((-_FINE_S, _FINE_S))).T[:, :, None]
        may_be_s = own_s * np.exp(_OFF)
        likely = np.log(law.likelihood(least_s, most_s, may_be_s) + _WRONG).sum(axis=0)
        likely -= ((np.log(may_be_s) - apart) / _APART) ** 2 / 2.0
        weights = np.exp(likely - likely.max())
        off_s.append(math.sqrt(np.average((may_be_s - own_s) ** 2, weights=weights)))
    return float(np.linalg.norm(off_s) / np.linalg.norm([*usual_s.values()]))


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
