"""The decision core: the phase of the next iteration, and its plans.

It is a state machine without files, threads, clocks or bus. The statuses of all ranks go in, a decision comes out.
Every rank feeds it the same rounds and reaches the same decision at the same iteration.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.baseline import after_sweep, before_sweep
from perseus_ds.coordination.decision import Decision, IterationInput
from perseus_ds.coordination.events import (
    DriftFound,
    Event,
    GuardStepped,
    IterationBegan,
    ObjectiveChanged,
    OrderPlaced,
    PhaseEntered,
    PlansAdopted,
    PlanSwitched,
    RoundHeard,
    StragglerChanged,
    StragglerPlansAdopted,
)
from perseus_ds.coordination.orders import ORDER_KINDS, Announcement, NewObjective, Order, objective_order
from perseus_ds.coordination.phases import Phase, Resumable
from perseus_ds.coordination.plan_selector import PlanSelector
from perseus_ds.coordination.plan_table import PlanTable, StageSlowdowns, StragglerPlans, stage_slowdowns
from perseus_ds.coordination.refresh import BaselineRefresh, RefreshStep
from perseus_ds.coordination.requests import (
    BeginProfiling,
    PlanRequest,
    Request,
    RescaleProfile,
    ResumePlans,
    RetraceIteration,
    RoundPlan,
    SolveProfile,
    SolveStragglers,
)
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.frontier.objectives import Objective
from perseus_ds.messages import PerseusError

__all__ = ["PhaseController"]


class PhaseController:
    """The phases of a job, and its current plans.

    Args:
        config: The whole configuration.
        pipelines: Number of pipelines.
        stages: Number of stages per pipeline.
        sets_clocks: Whether every rank may set clocks; otherwise nothing is profiled or enforced.
        known: Results of an earlier run.

    Attributes:
        phase: Purpose of the current iteration.
        table: The current plan table; None before the first.
    """

    def __init__(
        self, config: Config, pipelines: int, stages: int, sets_clocks: bool, known: Resumable = Resumable.NOTHING
    ) -> None:
        self._config = config
        self._pipelines, self._stages = pipelines, stages
        self._sets_clocks = sets_clocks
        self._known = known
        self._selector = PlanSelector(config, pipelines, stages)
        self._refresh = BaselineRefresh(config.baseline_every)
        self._held: deque[PlanTable | StragglerPlans] = deque()  # arrived here, not yet on all ranks
        self._newest = 0  # the newest version asked for
        self._rounding = 0  # version of the latest single plan asked for
        self._rescaled = 0  # version of the latest plan table that minds a drift, coming or in force
        self._under_way: set[tuple[int, StageSlowdowns]] = set()
        self._unplanned = (0, 0)  # micro-batches of the latest iterations without a plan, and how many there were
        self._told_slowdowns = self._selector.slowdowns
        self._told_phase: Phase | None = None
        self._first = 0  # warm-up and baseline count from this iteration
        self._swept: int | None = None  # the first iteration at the default clocks after the sweep
        self._least_iteration_s = math.inf
        self._t_prime_s = math.nan
        self._events: list[Event] = []
        self._requests: list[Request] = []
        self.phase = Phase.WARMUP
        self.table: PlanTable | None = None
        if known is Resumable.ALL:
            self.phase = Phase.SOLVING
            self._ask(ResumePlans)

    def decide(self, seen: IterationInput) -> Decision:
        """Decide on the next iteration.

        Args:
            seen: Everything heard and received since the last decision.

        Raises:
            PerseusError: Perseus has failed on another rank.
        """
        self._held.extend(seen.arrived)
        if seen.round_result is not None:
            self._hear(seen.round_result, seen.iteration)
        self._advance(seen.iteration)
        planned = self._is_planned(seen.microbatches)
        if self.phase is not self._told_phase:
            self._told_phase = self.phase
            self._events.append(PhaseEntered(seen.iteration, self.phase))
        refresh = self._refresh.step(seen.iteration, planned and self._is_quiet)
        phase = Phase.BASELINE if refresh is RefreshStep.MEASURES else self.phase
        planned = planned and refresh is RefreshStep.NONE
        if planned and self.table is not None and self._selector.follows_power:
            self._choose(self.table, seen.iteration)
        self._events.append(IterationBegan(seen.iteration, phase, planned, self._selector.plans))
        events, self._events = tuple(self._events), []
        requests, self._requests = tuple(self._requests), []
        plans = self._selector.plans if planned and self.phase is Phase.ENFORCING else ()
        if plans and self.table is not None:
            self._selector.began(seen.iteration, self.table)
        return Decision(phase, plans, self._selector.caution, events, requests)

    def afresh(self, known: Resumable) -> PhaseController:
        """Return a core that begins anew and obeys the same orders: the ranks had no plans when they lost each other.

        Args:
            known: What the run has left so far.
        """
        fresh = PhaseController(self._config, self._pipelines, self._stages, self._sets_clocks, known)
        fresh._selector = self._selector
        return fresh

    def together_again(self, iteration: int) -> None:
        """The ranks have lost each other, and now go on with the same core.

        Plans in force stay. What was under way is lost, and asked for again where it is needed.

        Args:
            iteration: The first one together, about to begin.
        """
        self._first = iteration
        self._told_phase = None
        if (table := self.table) is None:
            return
        for lost in (self._held, self._under_way, self._events, self._requests):
            lost.clear()
        self._newest = self._rounding = self.version
        self._rescaled = min(self._rescaled, self.version)
        self._unplanned = (0, 0)
        self._selector.together_again(iteration)
        self._answer_stragglers(table, iteration - 1, iteration)

    def _hear(self, round_result: RoundResult, iteration: int) -> None:
        """Process the statuses of all ranks."""
        if round_result.failed_rank is not None:
            raise PerseusError("failed-elsewhere", ranks=f"rank {round_result.failed_rank}")
        self._events.append(RoundHeard(iteration, round_result, self._selector.plans, self._t_prime_s))
        self._least_iteration_s = min(self._least_iteration_s, round_result.iteration_time_s)
        if self.phase is Phase.PROFILING and round_result.field("profiled").all():
            self.phase, self._swept = Phase.BASELINE, iteration
        for order in round_result.orders:
            self._obey(order, iteration)
        while self.version < round_result.version:
            self._adopt(self._held.popleft(), iteration)
        if self.table is not None:
            self._react(round_result, self.table, iteration)

    def _advance(self, iteration: int) -> None:
        """Move on to the baseline, to profiling or to solving when it is time."""
        begin, count = self._first + self._config.warmup_iterations, self._config.baseline_iterations
        if self.phase is Phase.WARMUP and iteration >= begin:
            self.phase = Phase.BASELINE
        if self.phase is not Phase.BASELINE:
            return
        profiled = self._known is Resumable.PROFILE
        if self._swept is not None:
            if iteration > (baseline := after_sweep(self._swept, count)).stop:  # the counter has caught up
                self._solve(baseline)
        elif iteration >= (baseline := before_sweep(begin, count, profiled)).stop and (self._sets_clocks or profiled):
            self.phase = Phase.PROFILING
            self._requests.append(BeginProfiling(self._least_iteration_s, baseline))
            if profiled:
                self._solve(baseline)

    def _is_planned(self, microbatches: int) -> bool:
        """Whether a plan fits the iteration's size; repeated iterations of another size are planned anew."""
        if self.table is None or microbatches == self.table.microbatches:
            self._unplanned = (microbatches, 0)
            return self.table is not None
        self._selector.unplanned()
        same, count = self._unplanned
        self._unplanned = (microbatches, count + 1 if same == microbatches else 1)
        # One more than the trace needs: the first may still differ.
        if self._unplanned[1] == self._config.baseline_iterations + 2:
            self._ask(RetraceIteration)
        return False

    def _solve(self, baseline: range) -> None:
        self.phase = Phase.SOLVING
        self._ask(partial(SolveProfile, baseline=baseline))

    def _ask(self, make: Callable[[int], PlanRequest]) -> int:
        """Request the next version and return its number."""
        self._newest += 1
        self._requests.append(make(self._newest))
        return self._newest

    def _obey(self, order: Order, iteration: int) -> None:
        """Carry out the orders of the program or an operator."""
        effect = ORDER_KINDS[order.kind].effect(order)
        self._events.append(OrderPlaced(iteration, order))
        if isinstance(effect, Announcement):
            self._selector.announce(effect)
        elif isinstance(effect, NewObjective):
            self._pursue(effect.objective, order, iteration)
        else:
            self._ask(effect)

    def _pursue(self, objective: Objective | None, order: Order, iteration: int) -> None:
        """Take another objective: at once where there are plans, else with the first ones."""
        before = self._selector.expected(self.table) if self.table else None
        self._selector.pursue(objective, self.table)
        objective = objective or self._selector.pursued_power  # the configured one may be a power, too
        expected = (before, self._selector.expected(self.table)) if before and self.table else None
        self._events.append(ObjectiveChanged(iteration, objective, order, expected))
        if self.table is not None:
            self._refresh.soon()
            self._choose(self.table, iteration)

    def _adopt(self, arrived: PlanTable | StragglerPlans, iteration: int) -> None:
        """Adopt everything that all ranks have received."""
        if isinstance(arrived, StragglerPlans):
            assert self.table is not None, "straggler plans come after a plan table"
            self.table = self.table.with_straggler_plans(arrived)
            self._under_way.difference_update(arrived.plan_sets)
            self._events.append(StragglerPlansAdopted(iteration, arrived))
        else:
            self._events.append(PlansAdopted(iteration, arrived, self.table))
            is_first = self.table is None
            self.table = arrived
            self._refresh.soon()
            self.phase = Phase.ENFORCING if self._sets_clocks else Phase.OBSERVING
            self._selector.adopt(arrived, iteration)
            if is_first and (power := self._selector.pursued_power) is not None:
                self._pursue(power, objective_order(power, "before the first plans"), iteration)
            self._answer_stragglers(arrived, iteration - 1, iteration)
        self._choose(self.table, iteration)

    def _react(self, round_result: RoundResult, table: PlanTable, iteration: int) -> None:
        """Respond to stragglers, a drift, and an iteration time above the plan's."""
        heard = self._selector.hear(round_result, table, self._refresh.covers(round_result.iteration))
        self._refresh.wanted = heard.wants_baseline
        if heard.condition:
            self._answer_stragglers(table, round_result.iteration, iteration)
            self._choose(table, iteration)
        if (drift := heard.drift) is not None and table.version >= self._rescaled:
            factors = tuple(drift.tolist())
            self._rescaled = self._ask(partial(RescaleProfile, factors=factors))
            self._events.append(DriftFound(iteration, factors))
        if heard.caution and self.phase is Phase.ENFORCING:
            self._events.append(GuardStepped(iteration, self._selector.caution))

    def _answer_stragglers(self, table: PlanTable, seen_iteration: int, iteration: int) -> None:
        """Report the stragglers, and request missing plans for them."""
        slowdowns = self._selector.slowdowns.copy()
        if not np.array_equal(slowdowns, self._told_slowdowns):
            self._told_slowdowns = slowdowns
            by_pipeline = tuple(stage_slowdowns(row) for row in slowdowns)
            lasted = tuple(tuple(row) for row in self._selector.lasted.tolist())
            t_prime_s = table.t_prime_s(slowdowns)
            self._events.append(StragglerChanged(iteration, seen_iteration, by_pipeline, lasted, t_prime_s))
        if missing := tuple(one for one in table.missing(slowdowns) if one not in self._under_way):
            self._under_way.update(missing)
            self._ask(partial(SolveStragglers, missing=missing))

    def _choose(self, table: PlanTable, iteration: int) -> None:
        """Look up the pipelines' plans."""
        self._t_prime_s = table.t_prime_s(self._selector.slowdowns)
        if self._selector.choose(table):
            self._events.append(PlanSwitched(iteration, self._selector.plans))
        if self._rounding <= self.version and (missing_s := self._selector.missing_s(table)) is not None:
            self._rounding = self._ask(partial(RoundPlan, time_s=missing_s))

    @property
    def _is_quiet(self) -> bool:
        """Whether plans without a straggler, caution or power limit are in force, so that a refresh is welcome."""
        undisturbed = self._selector.caution == 0.0 and bool((self._selector.slowdowns == 1.0).all())
        return self.phase is Phase.ENFORCING and undisturbed and not self._selector.limits_power

    @property
    def version(self) -> int:
        """The current version of the plans; 0 before the first."""
        return self.table.version if self.table else 0
