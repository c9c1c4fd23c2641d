"""Profiles derived from a measured one: for slow stages, and for changed work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.coordination.stage_condition import ceiling_mhz
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

__all__ = ["scaled_profile", "slowed_profile"]


def slowed_profile(profile: Profile, slowdowns: np.ndarray, blocking_power_w: np.ndarray) -> Profile:
    """Return a profile with slower stages.

    With a factor, an instruction spends the extra time waiting, at blocking power. Below a ceiling all is as profiled.
    The highest clock then stands for the ceiling: whoever requests it sees at once when the GPU has cooled down.

    Args:
        profile: The healthy profile.
        slowdowns: Condition of each stage; see ``stage_condition``.
        blocking_power_w: Per stage.
    """

    def slowed(key: CurveKey, point: ProfilePoint) -> ProfilePoint:
        extra_s = point.time_s * (slowdowns[key.stage] - 1.0)
        extra_j = blocking_power_w[key.stage] * extra_s
        return ProfilePoint(point.frequency_mhz, point.time_s + extra_s, point.energy_j + extra_j)

    def changed(key: CurveKey, points: tuple[ProfilePoint, ...]) -> tuple[ProfilePoint, ...]:
        if (held_mhz := ceiling_mhz(slowdowns[key.stage])) is None:
            return tuple(slowed(key, point) for point in points)
        top, *lower = [point for point in points if point.frequency_mhz <= held_mhz] or points[-1:]
        return (top._replace(frequency_mhz=points[0].frequency_mhz), *lower)

    curves = {key: changed(key, points) for key, points in profile.curves.items()}
    return replace(profile, curves=curves, source=f"{profile.source}, slowed")


def scaled_profile(profile: Profile, factors: np.ndarray) -> Profile:
    """Return a profile of more or less work: times and energies scale alike.

    Args:
        profile: The measured profile.
        factors: Per stage.
    """

    def scaled(key: CurveKey, point: ProfilePoint) -> ProfilePoint:
        factor = float(factors[key.stage])
        return ProfilePoint(point.frequency_mhz, *(value * factor for value in point[1:]))

    curves = {key: tuple(scaled(key, point) for point in points) for key, points in profile.curves.items()}
    return replace(profile, curves=curves, source=f"{profile.source}, rescaled")
