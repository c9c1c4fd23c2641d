"""What loads cost on the lab's virtual GPU: time and energy at every clock."""

from __future__ import annotations

import itertools

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.silicon.lab import Load

__all__ = ["CLOCKS_MHZ", "IDLE_W", "UNITS_S", "load_curves"]

CLOCKS_MHZ = tuple(range(1980, 344, -15))
"""Clocks of the virtual GPU."""

UNITS_S = (0.1, 0.01, 0.001, 0.0001)
"""Lengths of the pieces that work is made of."""

IDLE_W = 126.0
"""Power of a context that does nothing; this and what spinning adds are an H100's."""

_POWERS_W = {Load.MATRIX: (120.0, 900.0, 1.0), Load.GENTLE: (120.0, 330.0, 1.0), Load.MEMORY: (180.0, 200.0, 0.1)}
_SPINNING = (1, 4, 16, 32)
_SPIN_W = 0.7


def _points(seconds: float, base_w: float, more_w: float, clock_share: float) -> list[ProfilePoint]:
    """Return time and energy at every clock: part of the time follows it, and the power its square."""
    points = []
    for mhz in CLOCKS_MHZ:
        speed = mhz / CLOCKS_MHZ[0]
        time_s = seconds * (1.0 + clock_share * (1.0 / speed - 1.0))
        points.append(ProfilePoint(mhz, time_s, time_s * (base_w + more_w * speed**2)))
    return points


def load_curves() -> dict[tuple[Load, int, float], tuple[CurveKey, list[ProfilePoint]]]:
    """Return the curves of all loads by load, blocks and length."""
    laws = {(load, 1): law for load, law in _POWERS_W.items()}
    laws |= {(Load.SPIN, blocks): (IDLE_W + _SPIN_W * blocks, 0.0, 0.0) for blocks in _SPINNING}
    keys = itertools.product(laws, UNITS_S)
    return {
        (load, blocks, unit_s): (CurveKey(number, Kind.FORWARD), _points(unit_s, *laws[load, blocks]))
        for number, ((load, blocks), unit_s) in enumerate(keys)
    }
