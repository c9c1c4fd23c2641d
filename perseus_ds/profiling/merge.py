"""Merges the measurements of all ranks into the profile of one pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean, median

from perseus_ds.console import log
from perseus_ds.messages import user_message
from perseus_ds.profiling.energy import Attribution
from perseus_ds.profiling.pooling import borrow, pool
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, make_profile

__all__ = ["merge_profiles"]

_UNCERTAIN = 0.02
"""Half width of an energy's 95 % interval, as a share of it, from which the log says so: two deviations of 1 %."""


def merge_profiles(ranks: Iterable[tuple[int, Attribution]], source: str = "profile") -> tuple[Profile, float]:
    """Merge the ranks' measurements.

    The tensor-parallel ranks of a stage wait for their slowest. The merge takes their longest time and the mean
    energy of one GPU. Over data-parallel replicas it takes the median, so a single straggler does not count.

    Args:
        ranks: (pipeline, attribution) of every rank.
        source: Origin of the profile, for messages.

    Returns:
        The profile, energies per GPU, and the blocking power of one GPU in watts.

    Raises:
        PerseusError: A stage lacks its forward or its backward.
    """
    pipelines, attributions = zip(*ranks, strict=True)
    sharpened, source = _sharpened(attributions, source)
    doubts = [one.doubt for one in sharpened if one.verdict.explained]
    if uncertain := [doubt for doubt in doubts if doubt > _UNCERTAIN]:
        percent = round(100.0 * max(uncertain))
        log.warning("%s", user_message("energy-uncertain", gpus=len(uncertain), all=len(doubts), percent=percent))
    measured = list(zip(pipelines, sharpened, strict=True))
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
    # A GPU's own waiting is known better than the others' help could tell, if it is known at all.
    waiting = [own if own.verdict.explained else one for own, one in zip(attributions, sharpened, strict=True)]
    slope = median(one.waiting_slope_w_per_mhz for one in waiting)
    waiting_mhz = mean(one.waiting_mhz for one in waiting)
    # Of each GPU at the same clock.
    blocking_power_w = median(one.blocking_power_w + slope * (waiting_mhz - one.waiting_mhz) for one in waiting)
    # Where something lies between any two instructions, no request comes upon one.
    stalls_s = [one.request_stall_s for one in attributions if one.request_stall_s is not None]
    profile = replace(
        make_profile(rows, source),
        waiting_slope_w_per_mhz=slope,
        waiting_mhz=waiting_mhz,
        request_stall_s=median(stalls_s) if stalls_s else 0.0,
        limited=frozenset(key for one in attributions for key in one.sustained_mhz),
    )
    return profile, blocking_power_w


def _sharpened(attributions: Sequence[Attribution], source: str) -> tuple[list[Attribution], str]:
    """Let the GPUs help each other; return their attributions, and the source with what was not measured."""
    known = pool([one for one in attributions if one.verdict.explained])
    pooled = iter(known)
    found = [next(pooled) if one.verdict.explained else borrow(one, known) for one in attributions]
    lacking = sum(one is None for one in found)
    borrowing = len(found) - len(known) - lacking
    if borrowing:
        log.warning("%s", user_message("energy-borrowed", gpus=borrowing, all=len(attributions)))
        source = f"{source}, energies of {borrowing} of {len(attributions)} GPUs from the others"
    if lacking:
        log.warning("%s", user_message("energy-unknown", gpus=lacking, all=len(attributions)))
        source = f"{source}, energies by the published power law"
    return [one or by_law for one, by_law in zip(found, attributions, strict=True)], source


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
