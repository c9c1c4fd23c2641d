"""Reads a run directory back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds import files
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.observed import observed_problem
from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.messages import PerseusError, one_line
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.latencies import DELAYS
from perseus_ds.profiling.table import CurveKey, Profile, read_profile
from perseus_ds.report.savings import SavingPoint, Savings
from perseus_ds.report.typical import typical_energies_j

__all__ = ["Interval", "RunData", "read_events", "read_json", "read_run", "telling_of_damage"]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval.

    Attributes:
        low: Lower end.
        high: Upper end.
    """

    low: float
    high: float


@dataclass(frozen=True)
class RunData:
    """The content of a run directory. Files that the run has not written yet are None or empty.

    Attributes:
        path: The directory.
        summary: ``summary.json``.
        events: The latest run's part of ``events.jsonl``.
        iterations: ``iterations.json``.
        provenance: ``config.json``: configuration, versions, GPU.
        frontier: ``frontier.json``.
        planned: ``plan.json``.
        profile: ``profile.csv``.
        traces: ``trace.json``: the baseline iteration, one per stage.
    """

    path: Path
    summary: dict[str, Any]
    events: Sequence[dict[str, Any]]
    iterations: Sequence[dict[str, Any]]
    provenance: dict[str, Any]
    frontier: dict[str, Any] | None
    planned: dict[str, Any] | None
    profile: Profile | None
    traces: Sequence[StageTrace]

    @cached_property
    def limited(self) -> frozenset[CurveKey]:
        """Curves whose highest clock no GPU holds at its power limit, as far as was planned."""
        rows = (self.frontier or {}).get("limited", [])
        return frozenset(CurveKey(row[0], Kind(row[1]), *row[2:]) for row in rows)

    @cached_property
    def problem(self) -> Problem | None:
        """The planned pipeline, rebuilt from trace, profile and frontier."""
        if self.profile is None or self.frontier is None or "blocking_power_w" not in self.frontier:
            return None
        if not self.traces:
            return None
        power_w, gpus = self.frontier["blocking_power_w"], self.frontier["gpus_per_stage"]
        delays = {name: float(self.frontier.get(name, 0.0)) for name in DELAYS}
        latency_s = {int(mhz): float(one_s) for mhz, one_s in self.frontier.get("switch_latency_s", {}).items()}
        profile = replace(self.profile, **delays, switch_latency_s=latency_s, limited=self.limited)
        return observed_problem(self.traces, profile, power_w, gpus)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of the healthy pipelines."""
        if self.problem is None or self.planned is None:
            return None
        mhz = dict(Instruction.from_row(row) for row in self.planned["frequency_mhz"])
        frequencies = np.array([mhz[instruction] for instruction in self.problem.dag.instructions])
        jitter_s, lower_bound_j = float(self.planned["switch_jitter_s"]), float(self.planned["lower_bound_j"])
        plan = evaluate_late(self.problem, frequencies, jitter_s, lower_bound_j)
        return replace(plan, energy_j=self.planned["energy_j"])  # which counts each wait at the clock that it runs at

    def confidence(self, quantity: str) -> Interval | None:
        """Return the interval of a change from baseline to plan.

        That of a saving follows from the savings at refreshed baselines, with fewer than three from the mean energies
        (Welch) and the doubts of counters. That of a slowdown is a bootstrap of median times.

        Args:
            quantity: ``"energy_j"`` for the saving, ``"iteration_time_s"`` for the slowdown.
        """
        points = self.savings() if quantity == "energy_j" else []
        if points and (half_width := points[-1].half_width) is not None:
            return Interval(points[-1].saving - half_width, points[-1].saving + half_width)
        before, after = self._steady("baseline", quantity), self._steady("enforcing", quantity)
        if len(before) < 2 or len(after) < 2:
            return None
        if quantity == "energy_j":
            return _saving_interval(before, after, points[-1].counter_sd if points else 0.0)
        random = np.random.default_rng(0)
        medians = [np.median(random.choice(values, (_RESAMPLES, len(values))), axis=1) for values in (before, after)]
        low, high = np.quantile(medians[1] / medians[0] - 1.0, (0.025, 0.975)).tolist()
        return Interval(low, high)

    def savings(self) -> list[SavingPoint]:
        """Return the saving over time: each refreshed baseline against the plan's iterations around it."""
        savings = Savings()
        return [point for event in self.events if (point := savings.take(event)) is not None]

    def _steady(self, phase: str, quantity: str) -> np.ndarray:
        rows = [row for row in self.iterations if row["phase"] == phase and row.get("steady", True)]
        if quantity == "energy_j":
            return np.array(typical_energies_j((row["iteration_time_s"], row["energy_j"]) for row in rows))
        values = [row[quantity] for row in rows]
        return np.array([value for value in values if value is not None and value == value])


def _saving_interval(before_j: np.ndarray, after_j: np.ndarray, counter_sd: float) -> Interval:
    """Return the interval of the saving from a few energies of each: a bootstrap of six values would be too narrow.

    An error that energies share does not show in their scatter: ``counter_sd`` is of the saving, a fraction.

    Source: Welch, Biometrika 34 (1947), on the logarithm of the ratio.
    """
    from scipy.stats import t as student

    errors = np.array([values.std(ddof=1) / (values.mean() * math.sqrt(len(values))) for values in (before_j, after_j)])
    ratio = after_j.mean() / before_j.mean()
    error = math.hypot(*errors, counter_sd / ratio)
    degrees = error**4 / max(1e-300, float((errors**4 / [len(before_j) - 1, len(after_j) - 1]).sum()))
    half_width = float(student.ppf(0.975, max(1.0, degrees))) * error
    return Interval(float(1.0 - ratio * math.exp(half_width)), float(1.0 - ratio * math.exp(-half_width)))


def read_run(path: str | Path) -> RunData:
    """Read the run directory of a finished or running job.

    Args:
        path: The directory.

    Raises:
        PerseusError: The directory is missing, or one of its files is damaged.
    """
    directory = Path(path)
    summary = read_json(directory / "summary.json")
    if summary is None:
        detail = "it has no summary.json yet" if directory.is_dir() else "no such directory"
        raise PerseusError("run-missing", path=directory, detail=detail)
    profile = directory / "profile.csv"
    return RunData(
        path=directory,
        summary=summary,
        events=read_events(directory),
        iterations=read_json(directory / "iterations.json") or [],
        provenance=read_json(directory / "config.json") or {},
        frontier=read_json(directory / "frontier.json"),
        planned=read_json(directory / "plan.json"),
        profile=read_profile(profile) if profile.exists() else None,
        traces=[StageTrace.from_json(one) for one in read_json(directory / "trace.json") or []],
    )


@contextmanager
def telling_of_damage(directory: Path) -> Iterator[None]:
    """Say in one line that a run directory's files do not hold what Perseus has written.

    Raises:
        PerseusError: Something in them is missing, or of another type.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PerseusError("run-file-damaged", file=directory, detail=one_line(error)) from error


def read_json(file: Path) -> Any:
    """Return the content of a JSON file, None if the file is missing.

    Raises:
        PerseusError: The file is damaged.
    """
    try:
        return files.read_json(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PerseusError("run-file-damaged", file=file, detail=error) from error


def read_events(directory: Path) -> list[dict[str, Any]]:
    """Return the latest run's lines of ``events.jsonl``, without half-written ones.

    Raises:
        PerseusError: The file is not readable.
    """
    file = directory / "events.jsonl"
    events = []
    try:
        for line in files.read_text(file).splitlines():
            with suppress(ValueError):
                event = files.parse_json(line)
                events += [event] if isinstance(event, dict) and "event" in event else []
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise PerseusError("run-file-damaged", file=file, detail=error) from error
    begins = [number for number, event in enumerate(events) if event["event"] == "start"]
    return events[begins[-1] :] if begins else events
