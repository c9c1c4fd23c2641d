"""Events of a job, for its writers: the run directory, the metrics, the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseus_ds.coordination.job_curve import JobTarget
from perseus_ds.coordination.orders import Order
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StageSlowdowns, StragglerPlans
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.frontier.objectives import Objective
from perseus_ds.profiling.breakdown import RankEnergy

__all__ = [
    "BaselineRefreshed",
    "CheckpointSaved",
    "DriftFound",
    "EndedForGood",
    "EnergySplitKnown",
    "Event",
    "GuardStepped",
    "IterationBegan",
    "JobEnded",
    "ObjectiveChanged",
    "OrderPlaced",
    "OrderSent",
    "PhaseEntered",
    "PlanSwitched",
    "PlansAdopted",
    "RanksBack",
    "RanksLost",
    "RoundHeard",
    "StragglerChanged",
    "StragglerPlansAdopted",
]


@dataclass(frozen=True)
class RoundHeard:
    """All ranks have reported an iteration.

    Attributes:
        iteration: The one about to begin.
        round_result: Their statuses.
        plans: Current plans, one per pipeline; none at the default clocks.
        t_prime_s: Shortest iteration time of the slowest pipeline; NaN while unknown.
    """

    iteration: int
    round_result: RoundResult
    plans: tuple[FrequencyPlan, ...]
    t_prime_s: float


@dataclass(frozen=True)
class OrderPlaced:
    """The program or an operator has given the job an order."""

    iteration: int
    order: Order


@dataclass(frozen=True)
class OrderSent:
    """This rank puts an order on the bus; the other ranks have no such event.

    Attributes:
        iteration: The one about to begin.
        order: The order, with who has given it.
    """

    iteration: int
    order: Order


@dataclass(frozen=True)
class ObjectiveChanged:
    """Another objective holds.

    Attributes:
        iteration: Its first iteration.
        objective: The objective; None: the configured one.
        order: The order.
        expected: Time and power to expect, before and after; None before the first plans.
    """

    iteration: int
    objective: Objective | None
    order: Order
    expected: tuple[JobTarget, JobTarget] | None


@dataclass(frozen=True)
class PlansAdopted:
    """A plan table takes effect.

    Attributes:
        iteration: Its first iteration.
        table: The table.
        replaced: The previous table; None for the first.
    """

    iteration: int
    table: PlanTable
    replaced: PlanTable | None


@dataclass(frozen=True)
class StragglerPlansAdopted:
    """Frontiers for slowed pipelines take effect."""

    iteration: int
    straggler_plans: StragglerPlans


@dataclass(frozen=True)
class StragglerChanged:
    """A stage has become slow, or normal again.

    Attributes:
        iteration: The one about to begin.
        seen_iteration: The latest one considered.
        slowdowns: Condition by pipeline and stage; 1.0 is as profiled, see ``stage_condition``.
        lasted: By pipeline and stage, the number of slow iterations before detection.
        t_prime_s: Shortest iteration time of the slowest pipeline.
    """

    iteration: int
    seen_iteration: int
    slowdowns: tuple[StageSlowdowns, ...]
    lasted: tuple[tuple[int, ...], ...]
    t_prime_s: float


@dataclass(frozen=True)
class DriftFound:
    """The profile no longer fits: these are the factors per stage."""

    iteration: int
    factors: tuple[float, ...]


@dataclass(frozen=True)
class GuardStepped:
    """The throughput guard has taken a step: its caution goes from the planned (0) to the highest clock (1)."""

    iteration: int
    caution: float


@dataclass(frozen=True)
class PlanSwitched:
    """The plans, one per pipeline, change at this iteration."""

    iteration: int
    plans: tuple[FrequencyPlan, ...]


@dataclass(frozen=True)
class PhaseEntered:
    """A phase begins with this iteration."""

    iteration: int
    phase: Phase


@dataclass(frozen=True)
class IterationBegan:
    """An iteration begins.

    Attributes:
        iteration: Its number.
        phase: Its phase.
        planned: Whether it follows the current table, which is for iterations of its size.
        plans: Current plans, one per pipeline; none at the default clocks.
    """

    iteration: int
    phase: Phase
    planned: bool
    plans: tuple[FrequencyPlan, ...]


@dataclass(frozen=True)
class RanksLost:
    """A failure: the ranks go on without each other, at the default clocks.

    Attributes:
        iteration: The latest one on this rank.
        cause: For people.
    """

    iteration: int
    cause: str


@dataclass(frozen=True)
class RanksBack:
    """All ranks go on together, with this iteration."""

    iteration: int


@dataclass(frozen=True)
class EndedForGood:
    """Perseus stays off for the rest of the run.

    Attributes:
        iteration: The latest one on this rank.
        cause: For people.
    """

    iteration: int
    cause: str


@dataclass(frozen=True)
class EnergySplitKnown:
    """The energy of recent iterations has been split up.

    Attributes:
        iteration: The one about to begin.
        ranks: Every rank's energies, on the coordinator; none elsewhere.
        told: The same for people, on all ranks; of many ranks only the means of each stage.
        energies_j: Joules of one pipeline's iteration, by kind.
    """

    iteration: int
    ranks: tuple[RankEnergy, ...]
    told: tuple[RankEnergy, ...]
    energies_j: Mapping[str, float]


@dataclass(frozen=True)
class BaselineRefreshed:
    """A refreshed baseline has been measured, and the plan's iterations just before and after it.

    Attributes:
        iterations: Those at the default clocks.
        energies_j: Of one pipeline, a mean over all, in these and those around them; see ``whole_energies``.
        sd_j: Standard deviation of the baseline iterations' sum, beyond what they scatter.
    """

    iterations: range
    energies_j: Mapping[int, float]
    sd_j: float


@dataclass(frozen=True)
class CheckpointSaved:
    """The framework has saved a checkpoint.

    Attributes:
        folder: Its folder for the data of a later run.
    """

    folder: Path


@dataclass(frozen=True)
class JobEnded:
    """Perseus has ended on this rank.

    Attributes:
        phase: The last one.
        clocks: The GPU's response to its clock requests, as JSON.
    """

    phase: Phase
    clocks: Mapping[str, Any]


Event = (
    RoundHeard
    | OrderPlaced
    | OrderSent
    | ObjectiveChanged
    | PlansAdopted
    | StragglerPlansAdopted
    | StragglerChanged
    | DriftFound
    | GuardStepped
    | PlanSwitched
    | PhaseEntered
    | IterationBegan
    | RanksLost
    | RanksBack
    | EndedForGood
    | EnergySplitKnown
    | BaselineRefreshed
    | CheckpointSaved
    | JobEnded
)
