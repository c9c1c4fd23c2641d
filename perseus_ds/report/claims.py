"""Compares the claims of a run on virtual GPUs with the truth that these have stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from math import nan
from statistics import fmean, median

import numpy as np

from perseus_ds.profiling.table import CurveKey, Profile
from perseus_ds.report.rundata import RunData
from perseus_ds.report.typical import typical_energies_j
from perseus_ds.simulator.truth import Truth, read_truth

__all__ = ["Claims", "CurveErrors", "claims_of", "true_costs"]


@dataclass(frozen=True)
class CurveErrors:
    """Relative errors of the profile's points against the true cost of the same instructions.

    GPUs draw more as they get warm. The profile tells of the midst of the time in which it was measured, so the true
    energies are of that warmth. Where the profile says that the power limit holds, the highest clock's point is what
    the limit makes of whole iterations, and the truth is that of those just after the profiling.

    Attributes:
        points: Number of compared points.
        time_rms: Root mean square of the time errors.
        time_worst: Largest time error.
        energy_rms: Root mean square of the energy errors.
        energy_worst: Largest energy error.
        time_told: Mean half width of the 95 % intervals of all the profile's times, as shares of them.
        energy_told: The same of energies.
    """

    points: int
    time_rms: float
    time_worst: float
    energy_rms: float
    energy_worst: float
    time_told: float
    energy_told: float


@dataclass(frozen=True)
class Claims:
    """Claimed and true figures, NaN if unknown.

    Attributes:
        claimed_saving: ``saving`` of the summary, a fraction.
        true_saving: The same from the true energies of the same iterations.
        claimed_slowdown: ``slowdown`` of the summary, a fraction.
        true_slowdown: The same from the true times.
        true_time_s: Median true time of the iterations under the plan, in s.
        true_energy_j: Mean true energy of one pipeline in them, in J.
        curves: Errors of the profile; None without a profile.
        host_ahead: Largest lead of a rank's host over its GPU, in instructions.
    """

    claimed_saving: float
    true_saving: float
    claimed_slowdown: float
    true_slowdown: float
    true_time_s: float
    true_energy_j: float
    curves: CurveErrors | None
    host_ahead: int

    def rows(self) -> list[tuple[str, str, str]]:
        """Return title, claim and truth as text, for tables."""
        rows = [
            ("energy saved", _percent(self.claimed_saving), _percent(self.true_saving)),
            ("slowdown", _percent(self.claimed_slowdown), _percent(self.true_slowdown)),
        ]
        if self.curves is not None:
            one = self.curves
            time, energy = (
                f"rms {100 * rms:.2f} %, worst {100 * worst:.2f} %"
                for rms, worst in ((one.time_rms, one.time_worst), (one.energy_rms, one.energy_worst))
            )
            told = (f"±{100 * half_width:.2f} %" for half_width in (one.time_told, one.energy_told))
            titles = f"error of {one.points} points in time", "the same in energy"
            rows += zip(titles, told, (time, energy), strict=True)
        return rows


def claims_of(data: RunData) -> Claims | None:
    """Return claims and truth of a run; None if its GPUs are real or their states are gone."""
    directory = data.path / "gpus"
    numbers = [row["iteration"] for row in data.iterations]
    truths: list[Truth] = []
    with suppress(ValueError):  # left by another version
        truths = read_truth(directory, [*numbers, *(number + 1 for number in numbers[-1:])])
    if not data.summary["simulated"] or not truths:
        return None
    before_s, before_j = _typical(data, truths, "baseline")
    after_s, after_j = _typical(data, truths, "enforcing")
    return Claims(
        _or_nan(data.summary["saving"]),
        1.0 - after_j / before_j,
        _or_nan(data.summary["slowdown"]),
        after_s / before_s - 1.0,
        after_s,
        after_j,
        _curve_errors(data.profile, true_costs(data, truths)) if data.profile else None,
        max(truth.host_ahead for truth in truths),
    )


def true_costs(data: RunData, truths: Sequence[Truth]) -> dict[tuple[CurveKey, int], tuple[float, float]]:
    """Return time in s and energy in J of each point of a run's profile whose instructions ran, by curve and clock.

    Args:
        data: A run that has a profile.
        truths: Of all its virtual GPUs, in all its iterations.
    """
    if data.profile is None:
        return {}
    profiling, at_highest = _measured(data)
    midst = profiling[len(profiling) // 2]
    sums, held = (defaultdict[tuple[CurveKey, int], np.ndarray](lambda: np.zeros(3)) for _ in range(2))
    highest_mhz = max(point.frequency_mhz for points in data.profile.curves.values() for point in points)
    for truth in truths:
        warmth = truth.begins[midst].warmth if midst in truth.begins else 1.0
        for place, one in truth.instructions.items():
            sums[place] += one.instances * np.array([1.0, one.time_s, warmth * one.energy_j])
        for number in truth.highest.keys() & set(at_highest):
            for key, one in truth.highest[number].items():
                held[key, highest_mhz] += one.instances * np.array([1.0, one.time_s, one.energy_j])
    costs = {}
    for key, points in data.profile.curves.items():
        for point in points:
            place = (key, point.frequency_mhz)
            is_held = point is points[0] and key in data.limited
            found = held[place] if is_held or not sums[place][0] else sums[place]
            if found[0]:
                costs[place] = (float(found[1] / found[0]), float(found[2] / found[0]))
    return costs


def _typical(data: RunData, truths: Sequence[Truth], phase: str) -> tuple[float, float]:
    """Return median time in s and typical energy in J per pipeline of a phase's steady iterations, both true."""
    wanted = [row["iteration"] for row in data.iterations if row["phase"] == phase and row.get("steady", True)]
    whole = [number for number in wanted if all({number, number + 1} <= truth.begins.keys() for truth in truths)]
    if not whole:
        return nan, nan
    lasted = [[_between(truth, number) for truth in truths] for number in whole]
    times_s = [fmean(time_s for time_s, _ in one) for one in lasted]
    energies_j = [sum(energy_j for _, energy_j in one) / data.summary["pipelines"] for one in lasted]
    typical_j = typical_energies_j(zip(times_s, energies_j, strict=True))
    return median(times_s), fmean(typical_j) if typical_j else nan


def _between(truth: Truth, number: int) -> tuple[float, float]:
    begin, end = truth.begins[number], truth.begins[number + 1]
    return end.time_s - begin.time_s, end.energy_j - begin.energy_j


def _measured(data: RunData) -> tuple[list[int], list[int]]:
    """Return the iterations of the profiling, and those at the highest clock after it.

    Of a profile of an earlier run: all, and all of the baseline.
    """
    phases = {row["iteration"]: row["phase"] for row in data.iterations}
    profiling = [number for number, phase in phases.items() if phase == "profiling"]
    if not profiling:
        return list(phases), [number for number, phase in phases.items() if phase == "baseline"]
    after = [number for number in phases if number > profiling[-1]]
    return profiling, list(takewhile(lambda number: phases[number] == "baseline", after))


def _curve_errors(profile: Profile, costs: Mapping[tuple[CurveKey, int], tuple[float, float]]) -> CurveErrors | None:
    """Compare the points of the profile with the true cost of the same instructions."""
    measured = [point for points in profile.curves.values() for point in points]
    errors = [
        (point.time_s / cost[0] - 1.0, point.energy_j / cost[1] - 1.0)
        for key, points in profile.curves.items()
        for point in points
        if (cost := costs.get((key, point.frequency_mhz)))
    ]
    if not errors:
        return None
    time_rms, energy_rms = np.sqrt(np.mean(np.square(errors), axis=0)).tolist()
    time_worst, energy_worst = np.abs(errors).max(axis=0).tolist()
    time_told = fmean(point.time_ci_s / point.time_s for point in measured)
    energy_told = fmean(point.energy_ci_j / point.energy_j for point in measured)
    return CurveErrors(len(errors), time_rms, time_worst, energy_rms, energy_worst, time_told, energy_told)


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def _percent(fraction: float) -> str:
    return "–" if fraction != fraction else f"{100 * fraction:+.2f} %"
