"""How long a GPU stands still for each clock request, from requests that change next to nothing else.

A sweep begins with iterations that toggle between two neighbouring clocks. An instruction takes nearly equally long at
both, so what it takes longer with a request under way is the request's cost. It goes up as often as down: where in an
instruction the clock changes has no effect on the mean of both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import isnan
from statistics import median

from perseus_ds.profiling.spans import Change, Span
from perseus_ds.profiling.table import CurveKey, ProfilePoint

__all__ = ["LANDS_WITHIN", "request_stall_s", "toggling"]

LANDS_WITHIN = 0.75
"""Part of an instruction: a request sent later may reach the GPU after it."""

_ALIKE = 0.025  # clocks whose times differ by no more
_ENOUGH = 3  # of each
_RUN = 6  # instructions in a row, each at the clock of the one before the last: no other sweep does that


def request_stall_s(
    spans: Sequence[Span], changed: Sequence[Change], points: Mapping[CurveKey, Sequence[ProfilePoint]]
) -> float | None:
    """Return the seconds that a working GPU loses with each clock request; None where too few requests tell.

    Args:
        spans: Work in order of time.
        changed: The changes of the clock asked for, in order of time.
        points: The time of each instruction at each clock.
    """
    times_s = {(key, point.frequency_mhz): point.time_s for key, row in points.items() for point in row}
    asked_s = [change.asked_s for change in changed]
    up_s: list[float] = []
    down_s: list[float] = []
    for span in spans:
        if span.key is None or isnan(span.longer):
            continue
        first = bisect_left(asked_s, span.begin_s)
        last = bisect_left(asked_s, span.begin_s + LANDS_WITHIN * span.lasted_s)
        if last == first or bisect_left(asked_s, span.end_s) > last:
            continue
        clocks = {span.frequency_mhz, *(change.mhz for change in changed[max(0, first - 1) : last])}
        known = [times_s.get((span.key, mhz)) for mhz in clocks]
        usual_s = [time_s for time_s in known if time_s is not None]
        if len(usual_s) == len(known) and max(usual_s) <= (1.0 + _ALIKE) * min(usual_s):
            loss_s = (span.lasted_s - span.longer * (max(usual_s) + min(usual_s)) / 2.0) / (last - first)
            (up_s if changed[last - 1].mhz > span.frequency_mhz else down_s).append(loss_s)
    told = min(len(up_s), len(down_s)) >= _ENOUGH
    return max(0.0, (median(up_s) + median(down_s)) / 2.0) if told else None


def toggling(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Return begin and end of the times in which the clock toggles: too fast for the energy of each clock.

    Args:
        spans: Work in order of time.
    """
    work = [span for span in spans if span.key is not None]
    found: list[tuple[float, float]] = []
    first = 0
    for index in range(2, len(work) + 1):
        mhz = [span.frequency_mhz for span in work[index - 2 : index + 1]]
        if len(mhz) == 3 and mhz[0] == mhz[2] != mhz[1]:
            continue
        if index - first >= _RUN:
            found.append((work[first].begin_s, work[index - 1].end_s))
        first = index - 1
    return found
