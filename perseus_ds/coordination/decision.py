"""Input and output of the decision core at the begin of an iteration."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.coordination.events import Event
from perseus_ds.coordination.phases import Phase
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StragglerPlans
from perseus_ds.coordination.requests import Request
from perseus_ds.coordination.rounds import RoundResult

__all__ = ["Decision", "IterationInput"]


@dataclass(frozen=True)
class IterationInput:
    """All inputs of an iteration's decision.

    Attributes:
        iteration: The training iteration about to begin.
        microbatches: Its number of micro-batches.
        round_result: The statuses of all ranks after an earlier iteration; None in the first ones.
        arrived: Plan tables and straggler plans received on this rank since the last decision, by version.
    """

    iteration: int
    microbatches: int
    round_result: RoundResult | None = None
    arrived: tuple[PlanTable | StragglerPlans, ...] = ()


@dataclass(frozen=True)
class Decision:
    """The common decision of all ranks for the next iteration.

    Attributes:
        phase: Purpose of the iteration.
        plans: The plans of the pipelines, in order; empty at the default clocks.
        caution: The guard's position between the planned (0) and the highest clock (1).
        events: Events so far, in order.
        requests: Requests to carry out, in order.
    """

    phase: Phase
    plans: tuple[FrequencyPlan, ...]
    caution: float
    events: tuple[Event, ...]
    requests: tuple[Request, ...]
