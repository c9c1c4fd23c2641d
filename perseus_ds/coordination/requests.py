"""The decision core's requests, as data. All ranks make the same request at the same iteration."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.coordination.plan_table import StageSlowdowns

__all__ = [
    "BeginProfiling",
    "PlanRequest",
    "Request",
    "RescaleProfile",
    "ResumePlans",
    "RetraceIteration",
    "RoundPlan",
    "SolveProfile",
    "SolveStragglers",
]


@dataclass(frozen=True)
class BeginProfiling:
    """Build the sweep; it starts with the next iteration, unless the profile is known.

    Attributes:
        least_iteration_s: The shortest iteration so far, as reported to all ranks.
        baseline: Iterations at the default clocks before it.
    """

    least_iteration_s: float
    baseline: range


@dataclass(frozen=True)
class SolveProfile:
    """Gather every rank's profile and solve.

    Attributes:
        version: Of the plan table.
        baseline: Iterations at the default clocks that the plans are compared with.
    """

    version: int
    baseline: range


@dataclass(frozen=True)
class ResumePlans:
    """Solve the problem left by an earlier run."""

    version: int


@dataclass(frozen=True)
class SolveStragglers:
    """Solve for pipelines with slow stages.

    Attributes:
        version: Of the straggler plans.
        missing: Group number, and slowdowns by stage.
    """

    version: int
    missing: tuple[tuple[int, StageSlowdowns], ...]


@dataclass(frozen=True)
class RoundPlan:
    """Make the plan for one more iteration time, from the frontiers that are solved already.

    Attributes:
        version: Of the addition to the plan table.
        time_s: The iteration time.
    """

    version: int
    time_s: float


@dataclass(frozen=True)
class RescaleProfile:
    """Solve for a drifted profile.

    Attributes:
        version: Of the plan table.
        factors: Per stage, the factor on its times.
    """

    version: int
    factors: tuple[float, ...]


@dataclass(frozen=True)
class RetraceIteration:
    """Gather traces of the latest iterations, with a new number of micro-batches, and solve."""

    version: int


PlanRequest = SolveProfile | ResumePlans | SolveStragglers | RoundPlan | RescaleProfile | RetraceIteration
"""Answered by a plan table or an addition to it, of the requested version."""

Request = BeginProfiling | PlanRequest
