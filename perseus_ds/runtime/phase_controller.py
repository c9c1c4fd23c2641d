"""Decides, in step with all other ranks, what the next iteration is for and which plan it runs.

Deterministic: every rank feeds it the same rounds and comes to the same decision at the same iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.plan_selector import PlanSelector
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StageSlowdowns, StragglerPlans
from perseus_ds.coordination.resume import Resumable
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.report.run_recorder import RunRecorder
from perseus_ds.report.run_stats import Phase
from perseus_ds.runtime.profiler import Profiler

__all__ = ["PhaseController"]


class PhaseController:
    """The phases of a job, and the plan in force.

    Args:
        config: The whole configuration.
        topology: Where this rank stands.
        bus: This rank's end of the bus.
        coordinator: On the coordinating rank, who solves.
        run_recorder: On the coordinating rank, who writes.
        sets_clocks: Whether every rank may set clocks; otherwise nothing is profiled or enforced.
        known: What need not be measured any more.

    Attributes:
        phase: What the present iteration is for.
        profiler: This rank's sweep, from the begin of profiling on.
        table: The plan table in force; None before the first.
        t_prime_s: Iteration time that the slowest pipeline can make; NaN before the first plan table.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        bus: Bus,
        coordinator: Coordinator | None,
        run_recorder: RunRecorder | None,
        sets_clocks: bool,
        known: Resumable = Resumable.NOTHING,
    ) -> None:
        self._config = config
        self._topology = topology
        self._bus = bus
        self._coordinator = coordinator
        self._run_recorder = run_recorder
        self._sets_clocks = sets_clocks
        self._known = known
        self._reaction = PlanSelector(config, topology.pipelines, topology.stages)
        self._coming: dict[int, Future[PlanTable | StragglerPlans]] = {}
        self._under_way: set[tuple[int, StageSlowdowns]] = set()
        self._unplanned = (0, 0)
        self._rescaled = 0  # version of the latest plan table that minds a drift, coming or in force
        self.phase = Phase.WARMUP
        self.profiler: Profiler | None = None
        self.table: PlanTable | None = None
        self.t_prime_s = math.nan
        if known is Resumable.ALL:
            self.phase = Phase.SOLVING
            self._request(lambda: self._solver().resume())

    @property
    def plans(self) -> tuple[FrequencyPlan, ...]:
        """The plan in force of each pipeline; empty while all run at the highest clock."""
        return self._reaction.plans

    @property
    def plan(self) -> FrequencyPlan | None:
        """The plan in force on this rank; None at the highest clock."""
        return self.plans[self._topology.pipeline] if self.plans and self.phase is Phase.ENFORCING else None

    @property
    def caution(self) -> float:
        """The part of the way from the planned to the highest clock that the throughput guard takes."""
        return self._reaction.caution

    def held_version(self) -> int:
        """Return the newest plan table or addition that has arrived here without a gap.

        Raises:
            Exception: What went wrong on the way to it; Perseus must go off.
        """
        version = self._version()
        while version + 1 in self._coming and self._coming[version + 1].done():
            self._coming[version + 1].result()
            version += 1
        return version

    def baseline_begins(self, iteration: int) -> bool:
        """Enter the baseline when the warm-up is over."""
        if self.phase is Phase.WARMUP and iteration >= self._config.warmup_iterations:
            self.phase = Phase.BASELINE
            return True
        return False

    def profiling_due(self, iteration: int) -> bool:
        """Whether the baseline is over and profiling, or solving with a known profile, begins with this iteration."""
        due = self._config.warmup_iterations + self._config.baseline_iterations
        possible = self._sets_clocks or self._known is not Resumable.NOTHING
        return possible and self.phase is Phase.BASELINE and iteration >= due

    def begin_profiling(self, profiler: Profiler) -> None:
        """Enter profiling; with a known profile go on to solving at once."""
        self.profiler = profiler
        self.phase = Phase.PROFILING
        if self._known is Resumable.PROFILE:
            self._begin_solving()

    def take(self, round_result: RoundResult, iteration: int) -> None:
        """Act on what all ranks have said.

        Args:
            round_result: The round.
            iteration: The one that is about to begin.
        """
        if self.phase is Phase.PROFILING and round_result.field("profiled").all():
            self._begin_solving()
        self._reaction.heed(round_result)
        while self._version() < round_result.version:
            self._adopt(self._coming.pop(self._version() + 1).result(), iteration)
        if self.table is not None:
            self._react(round_result, self.table, iteration)

    def begins(self, microbatches: int, recent_trace: Callable[[], StageTrace]) -> None:
        """An iteration begins; one of another size than planned for is, after a while, planned anew.

        Args:
            microbatches: How many it has.
            recent_trace: Returns the median trace of the latest ``baseline_iterations`` on this rank.
        """
        if self.table is None or microbatches == self.table.microbatches:
            self._unplanned = (microbatches, 0)
            return
        self._reaction.unplanned()
        same, count = self._unplanned
        self._unplanned = (microbatches, count + 1 if same == microbatches else 1)
        # One more than the trace needs: the first may still differ.
        if self._unplanned[1] == self._config.baseline_iterations + 2:
            trace = recent_trace()  # now: the iterations may be forgotten by the time that the bus comes to it
            gathered = self._bus.gather(lambda: (self._topology, trace))
            self._request(lambda: self._solver().retrace(gathered.result() or []))

    def _begin_solving(self) -> None:
        """Hand in this rank's profile and wait, off the trainer's thread, for the plans."""
        assert self.profiler is not None
        self.phase = Phase.SOLVING
        gathered = self._bus.gather(self.profiler.report)
        self._request(lambda: self._solver().solve(gathered.result() or []))

    def _request(self, solve: Callable[[], SolvedFrontiers]) -> int:
        """Have the coordinator solve, all ranks round, and the next version sent to all; off the trainer's thread.

        Returns:
            That version.
        """
        version = max([self._version(), *self._coming]) + 1
        bus, ranks = self._bus, self._topology.world_size
        draft = bus.broadcast(solve)
        shares = bus.gather(
            lambda: (self._coordinator or SolvedFrontiers).discretize_shard(draft.result(), bus.place, ranks)
        )
        self._coming[version] = bus.broadcast(
            lambda: self._solver().finish(version, draft.result(), shares.result() or []), prepare=_warm_up
        )
        return version

    def _adopt(self, arrived: PlanTable | StragglerPlans, iteration: int) -> None:
        """Put into force what every rank holds."""
        if isinstance(arrived, StragglerPlans):
            assert self.table is not None, "straggler_plans come after a plan table"
            self.table = self.table.with_straggler_plans(arrived)
            self._under_way.difference_update(arrived.routes)
            if self._run_recorder is not None:
                self._run_recorder.straggler_plans(arrived, iteration)
        else:
            self.table = arrived
            self.phase = Phase.ENFORCING if self._sets_clocks else Phase.OBSERVING
            self._reaction.adopt(arrived, iteration)
            if self._run_recorder is not None:
                self._run_recorder.table(arrived, iteration)
            self._heard_of_stragglers(arrived, iteration - 1, iteration)
        self._choose(self.table, iteration)

    def _react(self, round_result: RoundResult, table: PlanTable, iteration: int) -> None:
        heard = self._reaction.hear(round_result, table)
        if heard.condition:
            self._heard_of_stragglers(table, round_result.iteration, iteration)
            self._choose(table, iteration)
        if (drift := heard.drift) is not None and table.version >= self._rescaled:
            self._drifted(drift, iteration)
        if heard.caution and self.phase is Phase.ENFORCING:
            log.debug("rank %d: iteration %d: caution %.2f", self._topology.rank, iteration, self.caution)
            if self._run_recorder is not None:
                self._run_recorder.guard(self.caution, iteration)

    def _heard_of_stragglers(self, table: PlanTable, seen_iteration: int, iteration: int) -> None:
        """Tell who is slow now, and have the plans made that are missing for it."""
        slowdowns = self._reaction.slowdowns.copy()
        if self._run_recorder is not None:
            self._run_recorder.condition(table, slowdowns, self._reaction.lasted, seen_iteration, iteration)
        if missing := [one for one in table.missing(slowdowns) if one not in self._under_way]:
            self._under_way.update(missing)
            self._request(lambda: self._solver().straggler_plans(missing))

    def _drifted(self, drift: np.ndarray, iteration: int) -> None:
        """The profile fits no more: plan with what has become normal."""
        self._rescaled = self._request(lambda: self._solver().rescale(drift))
        if self._run_recorder is not None:
            self._run_recorder.drift(drift, iteration)

    def _choose(self, table: PlanTable, iteration: int) -> None:
        """Look up the pipelines' plans."""
        self.t_prime_s = table.t_prime_s(self._reaction.slowdowns)
        if self._reaction.choose(table):
            mine = self.plans[self._topology.pipeline]
            log.debug("rank %d: iteration %d: switches to %.6f s", self._topology.rank, iteration, mine.time_s)
            if self._run_recorder is not None:
                self._run_recorder.switched(self.plans, iteration)

    def _version(self) -> int:
        return self.table.version if self.table else 0

    def _solver(self) -> Coordinator:
        assert self._coordinator is not None, "only the coordinator makes what is broadcast"
        return self._coordinator


def _warm_up(arrived: PlanTable | StragglerPlans) -> None:
    """Load the compiled kernel that T' needs, so that the first straggler does not find the trainer's thread at it."""
    if isinstance(arrived, PlanTable):
        for peers in arrived.peers:
            peers.dag.makespan(peers.fastest_s)
