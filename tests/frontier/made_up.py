"""Profiles made up for tests."""

from __future__ import annotations

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, make_profile

__all__ = ["convex_points", "curve", "same_everywhere"]


def curve(*points: tuple[int, float, float]) -> list[ProfilePoint]:
    return [ProfilePoint(mhz, time_s, energy_j) for mhz, time_s, energy_j in points]


def same_everywhere(stages: int, points: list[ProfilePoint]) -> Profile:
    return make_profile(
        {CurveKey(stage, kind): points for stage in range(stages) for kind in (Kind.FORWARD, Kind.BACKWARD)}
    )


def convex_points(count: int) -> list[ProfilePoint]:
    """Points all of which lie on the lower hull: slower saves less and less."""
    return curve(*((1410 - 15 * i, 0.05 + 0.002 * i, 20 / (1 + 0.05 * i) + 2) for i in range(count)))
