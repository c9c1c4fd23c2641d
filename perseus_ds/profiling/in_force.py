"""Which clock request was in force when: what the likely courses have in common.

Clocks come in the order of their requests, some of them long after the next one was made. An instruction tells by its
time which request may have been in force as it began, and which as it ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import inf, log1p
from typing import NamedTuple

from perseus_ds.profiling.spans import Change, Span

__all__ = ["PENDING", "USUALLY_S", "Border", "Takes", "borders"]

PENDING = 16
"""Requests that may be under way at once: an older one is taken to have come."""

USUALLY_S = 0.3
"""Up to so long after its request a clock comes as likely at any time; GPUs take far less, and now and then longer."""

# Costs are twice the negative logarithm of a likelihood.
_CHANCE = 2.5066  # standard deviations: about as many times are likely where no clock changes
_SHORTEST = 0.01  # of an instruction: shorter waits count as so long
_DISTURBED = 16.0  # cost of a time that no clock explains
_UNSEEN = 1.0  # cost of each clock that came and went at once
_RARE_S = 0.1  # later than usually by so much: half as likely
_LIKELY = 4.0  # a course that costs so much more than the best one is likely
_HOPELESS = 20.0  # one that costs so much more is not looked at further

_Costs = dict[int, float]
_Step = Mapping[tuple[int, int], float]


class Takes(NamedTuple):
    """The time of an instruction with one clock in force.

    Attributes:
        seconds: How long it takes.
        off: Standard deviation of that, as a share.
    """

    seconds: float
    off: float


class Border(NamedTuple):
    """Begin or end of an instruction.

    Attributes:
        at_s: When.
        least: The first request that may be in force, counted from 0; -1: none has come.
        most: The last one.
    """

    at_s: float
    least: int
    most: int


def borders(
    work: Sequence[Span],
    lasted_s: Sequence[float],
    asked: Sequence[Change],
    takes: Callable[[Span, int], Takes | None],
) -> list[Border]:
    """Return begin and end of each instruction, in order of time.

    Args:
        work: Instructions in order of time.
        lasted_s: How long each of them was at work.
        asked: The changes asked for, in order of time.
        takes: Tells how long an instruction takes with a request in force, -1: with none; None: not known.
    """
    if not work:
        return []
    requests_s = [change.asked_s for change in asked]
    # The first clock has always been there.
    costs: _Costs = {0 if asked and asked[0].mhz == work[0].frequency_mhz else -1: 0.0}
    ended_s = -inf
    steps: list[_Step] = []
    so_far: list[_Costs] = []
    for span, seconds in zip(work, lasted_s, strict=True):
        wait_s = max(span.begin_s - ended_s, _SHORTEST * seconds)
        last = bisect_left(requests_s, span.begin_s) - 1
        between = _between(costs, last, seconds / wait_s, _delays(costs, last, ended_s, requests_s))
        so_far.append(_after(costs, between, last))
        steps.append(_worth_keeping(costs, between, so_far[-1]))
        last = bisect_left(requests_s, span.end_s) - 1
        delays = _delays(so_far[-1], last, span.begin_s, requests_s)
        known = {one: takes(span, one) for one in range(min(so_far[-1]), _furthest(max(so_far[-1]), last) + 1)}
        within = _within(so_far[-1], last, seconds, known, delays)
        so_far.append(_after(so_far[-1], within, last))
        steps.append(_worth_keeping(so_far[-2], within, so_far[-1]))
        costs, ended_s = so_far[-1], span.end_s
    at_s = (at_s for span in work for at_s in (span.begin_s, span.end_s))
    return [Border(at, *ends) for at, ends in zip(at_s, _likely(so_far, steps), strict=True)]


def _delays(costs: _Costs, last: int, from_s: float, requests_s: Sequence[float]) -> dict[int, float]:
    """Return the cost of each clock that comes from a time on: one of an iteration before is not likely to.

    Without it, where all iterations of a plan are alike, each clock may as well have come an iteration late.
    """
    furthest = range(min(costs), _furthest(max(costs), last) + 1)
    late_s = {new: from_s - requests_s[new] - USUALLY_S for new in furthest if new >= 0}
    return {new: 2.0 * log1p(one / _RARE_S) if 0.0 < one < inf else 0.0 for new, one in late_s.items()}


def _between(costs: _Costs, last: int, rarity: float, delays: Mapping[int, float]) -> _Step:
    """Return the costs of the requests in force before and after a wait; it is the rarer, the shorter it lasts."""
    return {
        (old, new): 0.0 if new == old else 2.0 * log1p(rarity) + _UNSEEN * (new - old - 1) + delays[new]
        for old in costs
        for new in range(old, _furthest(old, last) + 1)
    }


def _furthest(old: int, last: int) -> int:
    return max(old, min(last, old + PENDING))


def _within(
    costs: _Costs, last: int, seconds: float, known: Mapping[int, Takes | None], delays: Mapping[int, float]
) -> _Step:
    """Return the costs of the requests in force as an instruction of so many seconds began and ended."""
    found: dict[tuple[int, int], float] = {}
    for old in costs:
        shortest_s, longest_s, off, told = inf, 0.0, 0.0, True
        for new in range(old, _furthest(old, last) + 1):
            found[old, new] = 0.0 if new == old else _UNSEEN * (new - old - 1) + delays[new]
            # Beyond a clock of which no time is known, any time may be.
            if (one := known[new] if told else None) is None:
                told = False
                continue
            shortest_s, longest_s, off = min(shortest_s, one.seconds), max(longest_s, one.seconds), max(off, one.off)
            near_s = min(max(seconds, shortest_s), longest_s)
            # A change may come at any time of it, so just this time is a coincidence.
            coincidence = 2.0 * log1p((longest_s - shortest_s) / (_CHANCE * off * near_s))
            found[old, new] += min(((seconds / near_s - 1.0) / off) ** 2 + coincidence, _DISTURBED)
    return found


def _after(costs: _Costs, step: _Step, last: int) -> _Costs:
    """Return the least cost of each request that may be in force after a step, of the latest ones."""
    after: _Costs = {}
    oldest = min(last - PENDING, max(new for _, new in step))
    for (old, new), cost in step.items():
        if new >= oldest:
            after[new] = min(after.get(new, inf), costs[old] + cost)
    least = min(after.values())
    return {new: cost for new, cost in after.items() if cost <= least + _HOPELESS}


def _worth_keeping(before: _Costs, step: _Step, after: _Costs) -> _Step:
    """Return what of a step a likely course may go through: all of it takes twice as much memory, or nearly so."""
    return {
        (old, new): cost
        for (old, new), cost in step.items()
        if new in after and before[old] + cost <= after[new] + _LIKELY
    }


def _likely(so_far: Sequence[_Costs], steps: Sequence[_Step]) -> list[tuple[int, int]]:
    """Return the first and the last request that may be in force after each step, given all steps."""
    found: list[tuple[int, int]] = []
    to_come = dict.fromkeys(so_far[-1], 0.0)
    for costs, step in zip(reversed(so_far), [{}, *reversed(steps[1:])], strict=True):
        if step:
            before: _Costs = {}
            for (old, new), cost in step.items():
                if new in to_come:
                    before[old] = min(before.get(old, inf), cost + to_come[new])
            to_come = before
        whole = {one: cost + to_come[one] for one, cost in costs.items() if one in to_come}
        best = min(whole.values())
        likely = [one for one, cost in whole.items() if cost <= best + _LIKELY]
        found.append((min(likely), max(likely)))
    return found[::-1]
