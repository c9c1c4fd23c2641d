"""One pipeline's profile from what every rank measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean, median

from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.pooling import pool
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, make_profile

__all__ = ["merge_profiles"]


def merge_profiles(ranks: Iterable[tuple[int, Attribution]], source: str = "profile") -> tuple[Profile, float]:
    """Merge the ranks' measurements.

    Tensor-parallel ranks of a stage wait for their slowest: the longest time, and the mean energy of one GPU
    (their sum is the mean times the GPUs per stage). Of data-parallel replicas the median, so that one
    straggler among several does not count.

    Args:
        ranks: (pipeline, attribution) of every rank.
        source: Where the profile comes from, for messages.

    Returns:
        The profile, energies per GPU, and the blocking power of one GPU in watts.

    Raises:
        PerseusError: A stage lacks its forward or its backward.
    """
    pipelines, attributions = zip(*ranks, strict=True)
    measured = list(zip(pipelines, pool(attributions), strict=True))
    per_pipeline: dict[tuple[CurveKey, int], dict[int, list[ProfilePoint]]] = defaultdict(lambda: defaultdict(list))
    shards: dict[tuple[CurveKey, int], int] = defaultdict(int)
    for pipeline, attribution in measured:
        for key, points in attribution.curves.items():
            shards[key, pipeline] += 1
            for point in points:
                per_pipeline[key, pipeline][point.frequency_mhz].append(point)
    replicas: dict[CurveKey, dict[int, list[ProfilePoint]]] = defaultdict(lambda: defaultdict(list))
    for (key, pipeline), by_clock in per_pipeline.items():
        for mhz, points in by_clock.items():
            # A clock that some tensor-parallel rank has not measured lacks the slowest time.
            if len(points) == shards[key, pipeline]:
                replicas[key][mhz].append(_one_stage(mhz, points))
    rows = {key: [_typical(mhz, points) for mhz, points in row.items()] for key, row in replicas.items()}
    blocking_power_w = median(attribution.blocking_power_w for _, attribution in measured)
    return make_profile(rows, source), blocking_power_w


def _one_stage(mhz: int, points: Sequence[ProfilePoint]) -> ProfilePoint:
    slowest = max(points, key=lambda point: point.time_s)
    energy_ci_j = sum(point.energy_ci_j**2 for point in points) ** 0.5 / len(points)
    return ProfilePoint(mhz, slowest.time_s, mean(p.energy_j for p in points), slowest.time_ci_s, energy_ci_j)


def _typical(mhz: int, points: Sequence[ProfilePoint]) -> ProfilePoint:
    shrink = len(points) ** 0.5
    return ProfilePoint(
        mhz,
        median(point.time_s for point in points),
        median(point.energy_j for point in points),
        mean(point.time_ci_s for point in points) / shrink,
        mean(point.energy_ci_j for point in points) / shrink,
    )
