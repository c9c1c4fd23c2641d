"""Histories of a job as its ranks' decision cores live through them: no file, thread or clock."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from made_up_plans import MICROBATCHES, STAGES, first_table, route_of

from perseus_ds.config import Config
from perseus_ds.coordination.decision import Decision, IterationInput
from perseus_ds.coordination.orders import Order
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.phases import Phase, Resumable
from perseus_ds.coordination.plan_table import PlanTable, StragglerPlans
from perseus_ds.coordination.requests import BeginProfiling, PlanRequest, RetraceIteration, RoundPlan, SolveStragglers
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense

T_MIN_S = route_of((1.0,) * STAGES).t_min_s
SHORT = {"warmup_iterations": 2, "baseline_iterations": 3}


class Job:
    """Every rank's decision core, fed with the same rounds; answers reach each rank after a time of its own.

    Args:
        pipelines: How many there are.
        sets_clocks: Whether the ranks may set clocks.
        known: What an earlier run has left.
        lag: Iterations from a request to its answer on a rank, at least 1.
        **config: Settings of the configuration.
    """

    def __init__(
        self,
        pipelines: int = 2,
        sets_clocks: bool = True,
        known: Resumable = Resumable.NOTHING,
        lag: Callable[[int], int] = lambda rank: 1,
        **config: Any,
    ) -> None:
        settings = Config(run_dir="unused", **config)
        self.pipelines, self.ranks, self.lag = pipelines, range(pipelines * STAGES), lag
        self.cores = [PhaseController(settings, pipelines, STAGES, sets_clocks, known) for _ in self.ranks]
        self.iteration = 0
        self.decisions: list[Decision] = []  # the first rank's
        self.held = [0 for _ in self.ranks]
        self.held_by_all: list[int] = []  # by iteration, the version that all ranks hold as far as it is known
        self._coming: list[list[tuple[int, PlanTable | StragglerPlans]]] = [[] for _ in self.ranks]
        self._said: tuple[list[RankStatus], Mapping[int, Order]] | None = None
        self._round: RoundResult | None = None

    def runs(
        self,
        iterations: int = 1,
        slow: Mapping[tuple[int, int], float] | None = None,
        microbatches: int = MICROBATCHES,
        time_s: float | None = None,
        orders: Mapping[int, Order] | None = None,
        of_rank: Mapping[int, Mapping[str, float]] | None = None,
        **status: float,
    ) -> Decision:
        """Live through some iterations; all ranks must decide alike.

        Args:
            iterations: How many.
            slow: Slowdown by pipeline and stage.
            microbatches: Of each iteration.
            time_s: How long each lasts; the time of the plan in force by default.
            orders: What ranks have to tell, in every one of the rounds.
            of_rank: What single ranks say of themselves.
            **status: What else every rank says of itself.
        """
        for _ in range(iterations):
            arrived = [self._arrived(rank) for rank in self.ranks]
            heard, self._round = self._round, self._said and self._meet(*self._said)
            self.held_by_all.append(heard.version if heard else 0)
            seen = [IterationInput(self.iteration, microbatches, heard, plans) for plans in arrived]
            decided = [core.decide(one) for core, one in zip(self.cores, seen, strict=True)]
            assert all(digest(one) == digest(decided[0]) for one in decided)
            self.decisions.append(decided[0])
            for request in decided[0].requests:
                self._answer(request, microbatches)
            lasted_s = time_s or max((plan.time_s for plan in decided[0].plans), default=T_MIN_S)
            self._said = (self._statuses(slow or {}, lasted_s, of_rank or {}, status), orders or {})
            self.iteration += 1
        return self.decisions[-1]

    def enforces(self) -> "Job":
        """Live through everything up to the first plans."""
        for _ in range(100):
            if self.runs(profiled=1.0).plans:
                return self
        raise AssertionError("no plans")

    def events(self, kind: type | tuple[type, ...]) -> list[Any]:
        """Return all events of a kind, or several, so far."""
        return [event for decision in self.decisions for event in decision.events if isinstance(event, kind)]

    def requests(self, *kinds: type) -> list[Any]:
        """Return all requests of some kinds so far."""
        return [request for decision in self.decisions for request in decision.requests if isinstance(request, kinds)]

    def _arrived(self, rank: int) -> tuple[PlanTable | StragglerPlans, ...]:
        arrived = []
        while self._coming[rank] and self._coming[rank][0][0] <= self.iteration:
            arrived.append(self._coming[rank].pop(0)[1])
            self.held[rank] = arrived[-1].version
        return tuple(arrived)

    def _answer(self, request: Any, microbatches: int) -> None:
        if isinstance(request, BeginProfiling):
            return
        answer = self._plans(request, microbatches)
        for rank, coming in enumerate(self._coming):
            coming.append((self.iteration + self.lag(rank), answer))

    def _plans(self, request: PlanRequest, microbatches: int) -> PlanTable | StragglerPlans:
        if isinstance(request, SolveStragglers):
            return StragglerPlans(request.version, {which: route_of(which[1]) for which in request.missing})
        if isinstance(request, RoundPlan):
            healthy = route_of((1.0,) * STAGES)
            made = replace(healthy.point(request.time_s), time_s=request.time_s)
            points = tuple(sorted((*healthy.points, made), key=lambda plan: plan.time_s))
            return StragglerPlans(request.version, {(0, (1.0,) * STAGES): replace(healthy, points=points)})
        table = replace(first_table(self.pipelines), version=request.version)
        return replace(table, microbatches=microbatches) if isinstance(request, RetraceIteration) else table

    def _statuses(
        self,
        slow: Mapping[tuple[int, int], float],
        time_s: float,
        of_rank: Mapping[int, Mapping[str, float]],
        status: Mapping[str, float],
    ) -> list[RankStatus]:
        """What the ranks have measured of this iteration."""
        return [
            RankStatus(
                self.iteration,
                time_s,
                slowdown=slow.get(divmod(rank, STAGES), 1.0),
                **{**status, **of_rank.get(rank, {})},
            )
            for rank in self.ranks
        ]

    def _meet(self, statuses: list[RankStatus], orders: Mapping[int, Order]) -> RoundResult:
        """The round in which the ranks say so, one iteration later, together with what they hold by then."""
        rows = []
        for rank, status in enumerate(statuses):
            one = replace(status, version=self.held[rank])
            rows.append((one.with_order(orders[rank]) if rank in orders else one).row())
        by_pipeline = np.array(rows).reshape(self.pipelines, STAGES, -1)
        return RoundResult(np.array([condense(rows, STAGES) for rows in by_pipeline]), STAGES)


def digest(decision: Decision) -> tuple:
    """What two ranks' decisions must have in common: all but the identity of tables and rounds."""
    plans = [plan.time_s for plan in decision.plans]
    events = [(type(event).__name__, event.iteration) for event in decision.events]
    return decision.phase, plans, decision.caution, events, decision.requests


def phases(job: Job) -> list[Phase]:
    """The phase of each iteration."""
    return [decision.phase for decision in job.decisions]
