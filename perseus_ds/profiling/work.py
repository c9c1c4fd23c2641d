"""What a GPU did, as the regression of its powers sees it: one column for each unknown power."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.achieved import Limited
from perseus_ds.profiling.priors import unit_clocks
from perseus_ds.profiling.spans import Between, Segment
from perseus_ds.profiling.table import CurveKey

__all__ = ["Columns", "Work", "work_of"]

Array = NDArray[np.float64]

_BEFORE_S = 1.0
_RESTED_S = 0.003  # a shorter wait is no rest
_SURGE_S = 0.02  # what an instruction draws more after a rest, it draws within about this time


@dataclass(frozen=True)
class Columns:
    """The unknowns of the regression.

    Attributes:
        states: Curve and MHz of the first ones. Waiting, its slope and other work follow, which has this slope, too.
            Where there are plateaus, the surge after a rest follows, and how a plateau's power follows how fast an
            instruction was: in a line and, beyond it, a parabola for all, and each curve's own line beyond that.
        curves: For each curve its columns, up to the clock that it can hold.
        plateaus: For each curve that cannot hold the highest clock the columns above: whatever is asked for there, the
            power limit decides.
        clock: Scaled to 0 ... 1, of every column.
        waiting_mhz: The mean clock while waiting.
        own: Of each curve's own line.
        alike: Weights of columns whose sum is about 0: an instruction that the limit makes as fast as a clock that can
            be held draws the same. The column with -1 is that clock's.
    """

    states: tuple[tuple[CurveKey, int], ...]
    curves: list[NDArray[np.intp]]
    plateaus: list[NDArray[np.intp]]
    clock: Array
    waiting_mhz: float
    own: range
    alike: Sequence[Mapping[int, float]]


@dataclass(frozen=True)
class Work:
    """What a GPU did, each segment in two halves.

    Attributes:
        columns: The unknowns.
        edges_s: Borders of the halves, shape (m + 1,).
        values: How much of each column's power every half draws, shape (m, columns).
        leaning: 1 in the first half of an instruction of each curve, -1 in the second, shape (m, curves).
    """

    columns: Columns
    edges_s: Array
    values: Array
    leaning: Array


def work_of(limited: Limited) -> Work:
    """Return what ran; before and after it, the GPU waited.

    Args:
        limited: What the GPU did, in order of time.
    """
    did, sustained, faster = limited.did, limited.sustained_mhz, limited.faster
    keys = sorted({one.what for one in did if isinstance(one.what, CurveKey)})
    curve = {key: number for number, key in enumerate(keys)}
    columns = _columns(limited, keys)
    surges = _surges(did, sustained) if columns.plateaus else []
    at = {state: index for index, state in enumerate(columns.states)}
    span_mhz = max(max(mhz for _, mhz in at) - min(mhz for _, mhz in at), 1)
    waiting, slope, other, surge, line, bend = range(len(at), len(at) + 6)
    edges_s = [did[0].begin_s - _BEFORE_S, did[0].begin_s]
    values = np.zeros((3 * len(did) + 1, len(columns.clock)))
    leaning = np.zeros((3 * len(did) + 1, len(curve)))
    values[0, waiting] = 1.0
    for row, one in enumerate(did):
        begin_s = max(one.begin_s, edges_s[-1])
        end_s = max(one.end_s, begin_s)
        edges_s += [begin_s, (begin_s + end_s) / 2.0, end_s]
        halves = slice(3 * row + 2, 3 * row + 4)
        waits = 1.0 if isinstance(one.what, Between) else 1.0 - 1.0 / one.slowed
        values[halves, slope] = waits * (one.clock_mhz - columns.waiting_mhz) / span_mhz
        values[halves, other if one.what is Between.OTHER else waiting] = waits
        if isinstance(one.what, CurveKey):
            values[halves, at[one.what, one.clock_mhz]] = 1.0 / one.slowed
            if columns.plateaus:
                begins, usual = surges[row]
                share = _SURGE_S / max(end_s - begin_s, _SURGE_S)
                values[halves, surge] = (begins - usual / 2.0) * share, -usual / 2.0 * share
                if faster[row]:
                    values[halves, [line, columns.own[curve[one.what]]]] = faster[row]
                    values[halves, bend] = faster[row] ** 2 - limited.squares.get(one.what, 0.0)
            leaning[halves, curve[one.what]] = 1.0, -1.0
    # Row 3 r + 1 lies between two segments, where there should be nothing.
    values[1:-1:3] = values[2::3]
    return Work(columns, np.array(edges_s), values, leaning)


def _surges(did: Sequence[Segment], sustained: Mapping[CurveKey, int]) -> list[tuple[float, float]]:
    """Return how far above the held clock each instruction begins, and its like on average, as a share of the most.

    At the power limit it begins at the clock asked for if the GPU has rested, until the limit notices.
    """
    highest_mhz = max(one.clock_mhz for one in did)
    begins: list[float] = []
    rested_s = inf
    for one in did:
        if not isinstance(one.what, CurveKey):
            rested_s += one.end_s - one.begin_s
            begins.append(0.0)
            continue
        held_mhz = sustained.get(one.what, highest_mhz)
        above = max(one.clock_mhz - held_mhz, 0) / max(highest_mhz - held_mhz, 1)
        begins.append(above if rested_s >= _RESTED_S else 0.0)
        rested_s = 0.0
    alike = defaultdict[tuple[object, int], list[float]](list)
    for one, begin in zip(did, begins, strict=True):
        alike[one.what, one.clock_mhz].append(begin)
    usual = {state: fmean(some) for state, some in alike.items()}
    return [(begin, usual[one.what, one.clock_mhz]) for one, begin in zip(did, begins, strict=True)]


def _columns(limited: Limited, keys: Sequence[CurveKey]) -> Columns:
    did, sustained = limited.did, limited.sustained_mhz
    states = tuple(sorted({(one.what, one.clock_mhz) for one in did if isinstance(one.what, CurveKey)}))
    of_limit = np.array([mhz > sustained.get(key, inf) for key, mhz in states])
    of_curve = [np.array([state[0] == key for state in states]) for key in keys]
    curves = [np.flatnonzero(mine & ~of_limit) for mine in of_curve if (mine & ~of_limit).any()]
    plateaus = [np.flatnonzero(mine & of_limit) for mine in of_curve if (mine & of_limit).any()]
    if not curves:  # nothing has run at a clock that can be held
        curves, plateaus = plateaus, []
    waits = np.array([(one.end_s - one.begin_s, one.clock_mhz) for one in did if one.what is Between.WAITING])
    waiting_mhz = float(waits[:, 0] @ waits[:, 1] / waits[:, 0].sum()) if len(waits) else float(states[-1][1])
    line = len(states) + 4
    own = range(line + 2, line + 2 + len(keys)) if plateaus else range(0)
    clock = np.append(unit_clocks([mhz for _, mhz in states]), np.zeros((own.stop or len(states) + 3) - len(states)))
    alike = list(_alike(limited, states, dict(zip(keys, own, strict=True)), line)) if plateaus else []
    return Columns(states, curves, plateaus, clock, waiting_mhz, own, alike)


def _alike(
    limited: Limited, states: Sequence[tuple[CurveKey, int]], own: Mapping[CurveKey, int], line: int
) -> Iterator[dict[int, float]]:
    """Yield the weights of ``Columns.alike``."""
    at = {state: index for index, state in enumerate(states)}
    highest_mhz = max(mhz for _, mhz in states)
    for key, shares in limited.held.items():
        for mhz, share in shares.items():
            if {(key, highest_mhz), (key, mhz)} <= at.keys():
                speed = {line: share, line + 1: share**2 - limited.squares.get(key, 0.0), own[key]: share}
                yield {at[key, highest_mhz]: 1.0, at[key, mhz]: -1.0, **speed}
