"""Instruction times per kind and clock, from instances without a clock change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from perseus_ds.profiling.priors import unit_clocks
from perseus_ds.profiling.regression import CONFIDENCE, regress
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.profiling.visits import Settled, at_their_clocks, far_apart, undisturbed_s

__all__ = ["instruction_times"]

_OUTLIER = 4.0
_AGREEING = 2


def instruction_times(
    durations: Iterable[Settled],
) -> tuple[dict[CurveKey, tuple[ProfilePoint, ...]], dict[tuple[CurveKey, int], int]]:
    """Estimate the duration of each instruction at each clock.

    Time is as smooth in the clock as power is. Without this knowledge the noise of the fastest points would decide
    which clock is fastest, at the plan's expense.

    Args:
        durations: The instances.

    Returns:
        Points of each curve by frequency descending, without energies, and the number of instances of each.
    """
    grouped: dict[tuple[CurveKey, int], list[float]] = defaultdict(list)
    for one in at_their_clocks(durations):
        grouped[one.key, one.mhz].append(one.seconds)
    if not grouped:
        return {}, {}
    kept = _without_outliers(grouped)
    states = sorted(kept)
    keys = sorted({key for key, _ in states})
    curves = [np.array([i for i, state in enumerate(states) if state[0] == key]) for key in keys]
    level = np.empty(len(states))
    for members in curves:
        level[members] = np.mean([kept[states[i]].mean() for i in members])
    counts = [len(kept[state]) for state in states]
    exposure = np.repeat(np.eye(len(states)), counts, axis=0)
    relative = np.concatenate([kept[state] for state in states]) / np.repeat(level, counts)
    fit, _ = regress(exposure, relative, curves, unit_clocks([mhz for _, mhz in states]))
    # A step in a curve is no noise: where several instances contradict the smooth curve, they are right.
    own = np.array([kept[state].mean() for state in states]) / level
    own_sd = fit.noise * own / np.sqrt(counts)
    contradicted = (np.array(counts) >= _AGREEING) & (np.abs(own - fit.values) > _OUTLIER * own_sd)
    seconds = np.where(contradicted, own, fit.values) * level
    half_width = CONFIDENCE * np.where(contradicted, own_sd, fit.sd) * level
    points = {
        key: tuple(ProfilePoint(states[i][1], float(seconds[i]), 0.0, float(half_width[i])) for i in members[::-1])
        for key, members in zip(keys, curves, strict=True)
    }
    return points, dict(zip(states, counts, strict=True))


def _without_outliers(
    grouped: Mapping[tuple[CurveKey, int], list[float]],
) -> dict[tuple[CurveKey, int], np.ndarray]:
    """Drop delayed instances, judged by the spread of all instances of the same curve."""
    kept: dict[tuple[CurveKey, int], np.ndarray] = {}
    for key in {key for key, _ in grouped}:
        mine = {state: seconds for state, seconds in grouped.items() if state[0] == key}
        limit = far_apart(mine.values())
        for state, seconds in mine.items():
            usual_s = undisturbed_s(seconds)
            kept[state] = np.array([one for one in seconds if abs(one / usual_s - 1.0) <= limit])
    return kept
