"""A run directory, read back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perseus_ds.frontier.plan import Plan
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.switching import evaluate_delayed
from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.table import Profile, read_profile

__all__ = ["Interval", "RunData", "read_events", "read_json", "read_run"]

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
    """What a run directory holds; what the run has not come to is None or empty.

    Attributes:
        path: The directory.
        summary: ``summary.json``.
        events: Of ``events.jsonl``, the latest run's.
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
    def problem(self) -> Problem | None:
        """The pipeline that was planned, rebuilt from trace, profile and frontier."""
        if self.profile is None or self.frontier is None or "blocking_power_w" not in self.frontier:
            return None
        if not self.traces:
            return None
        power_w, gpus = self.frontier["blocking_power_w"], self.frontier["gpus_per_stage"]
        return Problem(dag_from_traces(self.traces), self.profile, power_w, gpus)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan that healthy pipelines ran."""
        if self.problem is None or self.planned is None:
            return None
        mhz = dict(Instruction.from_row(row) for row in self.planned["frequency_mhz"])
        frequencies = np.array([mhz[instruction] for instruction in self.problem.dag.instructions])
        latency_s, lower_bound_j = self.planned["switch_latency_s"], self.planned["lower_bound_j"]
        return evaluate_delayed(self.problem, frequencies, latency_s, lower_bound_j)

    def confidence(self, quantity: str) -> Interval | None:
        """Return the interval of a change from the baseline to the plan: bootstrap of both medians.

        Args:
            quantity: ``"energy_j"`` (the interval is of the saving) or ``"iteration_time_s"`` (of the slowdown).
        """
        before, after = self._steady("baseline", quantity), self._steady("enforcing", quantity)
        if len(before) < 2 or len(after) < 2:
            return None
        random = np.random.default_rng(0)
        medians = [np.median(random.choice(values, (_RESAMPLES, len(values))), axis=1) for values in (before, after)]
        ratio = medians[1] / medians[0]
        change = 1.0 - ratio if quantity == "energy_j" else ratio - 1.0
        low, high = np.quantile(change, (0.025, 0.975)).tolist()
        return Interval(low, high)

    def _steady(self, phase: str, quantity: str) -> np.ndarray:
        rows = [row[quantity] for row in self.iterations if row["phase"] == phase and row.get("steady", True)]
        return np.array([value for value in rows if value is not None and value == value])


def read_run(path: str | Path) -> RunData:
    """Read a run directory, of a run that is over or not.

    Args:
        path: The directory.

    Raises:
        PerseusError: There is none, or a file of it is damaged.
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


def read_json(file: Path) -> Any:
    """Return a JSON file's content; None when there is no such file.

    Raises:
        PerseusError: It is damaged.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PerseusError("run-file-damaged", file=file, detail=error) from error


def read_events(directory: Path) -> list[dict[str, Any]]:
    """Return the latest run's lines of ``events.jsonl``; half-written ones are left out.

    Raises:
        PerseusError: The file cannot be read.
    """
    file = directory / "events.jsonl"
    events = []
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                events.append(json.loads(line))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PerseusError("run-file-damaged", file=file, detail=error) from error
    begins = [number for number, event in enumerate(events) if event["event"] == "start"]
    return events[begins[-1] :] if begins else events
