"""What a GPU did, as the regression of its powers sees it: one column for each unknown power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profiling.priors import unit_clocks
from perseus_ds.profiling.spans import Between, Segment
from perseus_ds.profiling.table import CurveKey

__all__ = ["Columns", "Work", "work_of"]

Array = NDArray[np.float64]

_BEFORE_S = 1.0


@dataclass(frozen=True)
class Columns:
    """The unknowns of the regression.

    Attributes:
        states: Curve and MHz of the first ones; waiting, its slope and other work follow.
        curves: For each curve its columns.
        clock: Scaled to 0 ... 1, of every column.
        waiting_mhz: The mean clock while waiting.
    """

    states: tuple[tuple[CurveKey, int], ...]
    curves: list[NDArray[np.intp]]
    clock: Array
    waiting_mhz: float


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


def work_of(did: Sequence[Segment]) -> Work:
    """Return what ran; before and after it, the GPU waited.

    Args:
        did: What the GPU did, in order of time.
    """
    columns = _columns(did)
    at = {state: index for index, state in enumerate(columns.states)}
    curve = {columns.states[members[0]][0]: number for number, members in enumerate(columns.curves)}
    span_mhz = max(max(mhz for _, mhz in at) - min(mhz for _, mhz in at), 1)
    waiting, slope, other = range(len(at), len(at) + 3)
    edges_s = [did[0].begin_s - _BEFORE_S, did[0].begin_s]
    values = np.zeros((3 * len(did) + 1, other + 1))
    leaning = np.zeros((3 * len(did) + 1, len(curve)))
    values[0, waiting] = 1.0
    for row, one in enumerate(did):
        begin_s = max(one.begin_s, edges_s[-1])
        end_s = max(one.end_s, begin_s)
        edges_s += [begin_s, (begin_s + end_s) / 2.0, end_s]
        halves = slice(3 * row + 2, 3 * row + 4)
        if isinstance(one.what, CurveKey):
            values[halves, at[one.what, one.clock_mhz]] = 1.0
            leaning[halves, curve[one.what]] = 1.0, -1.0
        elif one.what is Between.OTHER:
            values[halves, other] = 1.0
        else:
            values[halves, waiting] = 1.0
            values[halves, slope] = (one.clock_mhz - columns.waiting_mhz) / span_mhz
    # Row 3 r + 1 lies between two segments, where there should be nothing.
    values[1:-1:3] = values[2::3]
    return Work(columns, np.array(edges_s), values, leaning)


def _columns(did: Sequence[Segment]) -> Columns:
    states = tuple(sorted({(one.what, one.clock_mhz) for one in did if isinstance(one.what, CurveKey)}))
    keys = sorted({key for key, _ in states})
    curves = [np.array([at for at, state in enumerate(states) if state[0] == key]) for key in keys]
    waits = np.array([(one.end_s - one.begin_s, one.clock_mhz) for one in did if one.what is Between.WAITING])
    waiting_mhz = float(waits[:, 0] @ waits[:, 1] / waits[:, 0].sum()) if len(waits) else float(states[-1][1])
    return Columns(states, curves, np.append(unit_clocks([mhz for _, mhz in states]), np.zeros(3)), waiting_mhz)
