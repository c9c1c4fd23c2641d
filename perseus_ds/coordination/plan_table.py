"""What the coordinator broadcasts: every rank's clocks for every point of the frontier.

Once a rank holds the table, any switch is a local look-up, and all ranks look up the same thing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perseus_ds.pipeline.dag import PipelineDag
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.profiling.table import CurveKey

__all__ = [
    "FrequencyPlan",
    "PipelineGroup",
    "PlanSet",
    "PlanTable",
    "StageSlowdowns",
    "StragglerPlans",
    "is_slow",
    "stage_slowdowns",
]

StageSlowdowns = tuple[float, ...]
"""How slow each stage of a pipeline is; 1.0 is as profiled."""

StageClocks = Mapping[Operation, int]
"""SM clock by instruction, in the stage's program order."""

# StragglerPlans kept for conditions that may come back.
_KEPT_STRAGGLER_PLANS = 16


@dataclass(frozen=True)
class FrequencyPlan:
    """One plan of the frontier, as the ranks need it.

    Attributes:
        time_s: Predicted iteration time.
        energy_j: Predicted energy of one pipeline's iteration.
        lower_bound_j: No plan that is as fast uses less.
        clocks_mhz: Per stage, SM clock by instruction, in program order.
        switches: Clock switches per iteration, all stages together.
        switch_latency_s: How late clocks change in ``time_s`` and ``energy_j``; 0 where it does not show.
    """

    time_s: float
    energy_j: float
    lower_bound_j: float
    clocks_mhz: tuple[StageClocks, ...]
    switches: int
    switch_latency_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``plan.json``; its rows are those of ``Instruction.to_row``."""
        rows = [
            Instruction.of(stage, operation).to_row(mhz)
            for stage, clocks in enumerate(self.clocks_mhz)
            for operation, mhz in clocks.items()
        ]
        names = ("time_s", "energy_j", "lower_bound_j", "switches", "switch_latency_s")
        return {**{name: getattr(self, name) for name in names}, "frequency_mhz": rows}


@dataclass(frozen=True)
class PlanSet:
    """The frontier of one pipeline in one condition.

    Attributes:
        slowdowns: Per stage, the slowdown that it was made for; all 1 for a healthy pipeline.
        t_min_s: Fastest iteration time.
        t_star_s: Iteration time of least energy.
        t_objective_s: Iteration time that the user's objective asks for.
        points: Plans by increasing time.
    """

    slowdowns: StageSlowdowns
    t_min_s: float
    t_star_s: float
    t_objective_s: float
    points: tuple[FrequencyPlan, ...]

    def t_opt_s(self, t_prime_s: float) -> float:
        """Return min(T*, max(T', T_min, the objective's T)), in seconds (paper section 3.2)."""
        return min(max(t_prime_s, self.t_objective_s, self.t_min_s), max(self.t_star_s, self.t_objective_s))

    def point(self, t_s: float) -> FrequencyPlan:
        """Return the slowest plan that takes no longer than ``t_s``, else the fastest one."""
        index = bisect_right(self.points, t_s * (1 + 1e-9), key=lambda point: point.time_s)
        return self.points[max(index - 1, 0)]


@dataclass(frozen=True)
class StragglerPlans:
    """Frontiers for pipelines with slow stages, an addition to the plan table in force.

    Attributes:
        version: Counted together with the plan tables'.
        routes: By the number of the peers and the condition.
    """

    version: int
    routes: Mapping[tuple[int, StageSlowdowns], PlanSet]


@dataclass(frozen=True)
class PipelineGroup:
    """What pipelines with the same GPUs have in common.

    Attributes:
        dag: What one of them runs, for T' of a slowed one.
        fastest_s: Per instruction of ``dag``, its shortest duration.
        base: Frontier of a healthy one.
        max_energy_j: Predicted energy of its iteration at the highest clock.
        max_time_s: Predicted iteration time at the highest clock.
        waiting_w: What it draws while it waits for the other pipelines.
        expected_times_s: Measured time by (curve, SM clock).
        straggler_plans: Frontiers of slowed ones, by condition.
    """

    dag: PipelineDag
    fastest_s: np.ndarray
    base: PlanSet
    max_energy_j: float
    max_time_s: float
    waiting_w: float
    expected_times_s: Mapping[tuple[CurveKey, int], float]
    straggler_plans: Mapping[StageSlowdowns, PlanSet] = field(default_factory=dict)

    def route(self, condition: StageSlowdowns) -> PlanSet:
        """Return the frontier for a pipeline in a condition: its straggler plans where there are any, else the base."""
        return self.straggler_plans.get(condition, self.base)

    def expected_s(self, key: CurveKey, frequency_mhz: int) -> float:
        """Return an instruction's measured time at a clock, in seconds; 0 when it was not measured."""
        return self.expected_times_s.get((key, frequency_mhz), 0.0)

    def fastest_with_s(self, condition: StageSlowdowns) -> float:
        """Return the shortest iteration time, in seconds, in a condition."""
        if not is_slow(condition):
            return self.base.t_min_s
        factors = np.array(condition)[[instruction.stage for instruction in self.dag.instructions]]
        return self.dag.makespan(self.fastest_s * factors)

    def choose(self, condition: StageSlowdowns, t_prime_s: float) -> FrequencyPlan:
        """Return the plan for a condition when the slowest pipeline takes ``t_prime_s``."""
        route = self.route(condition)
        if route is self.base and is_slow(condition):
            # No plan of its own yet: a straggler must not slow down further.
            return route.points[0]
        return route.point(route.t_opt_s(t_prime_s))

    def with_straggler_plans(self, more: Mapping[StageSlowdowns, PlanSet]) -> PipelineGroup:
        """Return the peers with straggler plans added; the oldest are dropped when there are many."""
        kept = {condition: route for condition, route in self.straggler_plans.items() if condition not in more}
        latest = list((kept | dict(more)).items())[-max(_KEPT_STRAGGLER_PLANS, len(more)) :]
        return replace(self, straggler_plans=dict(latest))


@dataclass(frozen=True)
class PlanTable:
    """All that a rank needs to know of the plans.

    Attributes:
        version: Increases with every broadcast.
        microbatches: Micro-batches per iteration that the plans are for.
        baseline_s: Measured iteration time at the highest clock.
        peers: Pipelines with the same GPUs share an entry.
        peers_of: By pipeline, its entry's number.
    """

    version: int
    microbatches: int
    baseline_s: float
    peers: tuple[PipelineGroup, ...]
    peers_of: tuple[int, ...]

    @property
    def max_time_s(self) -> float:
        """Predicted iteration time of the job at the highest clock."""
        return max(peers.max_time_s for peers in self.peers)

    def of(self, pipeline: int) -> PipelineGroup:
        """Return what belongs to a pipeline."""
        return self.peers[self.peers_of[pipeline]]

    def with_straggler_plans(self, more: StragglerPlans) -> PlanTable:
        """Return the table with straggler plans added."""
        added: list[dict[StageSlowdowns, PlanSet]] = [{} for _ in self.peers]
        for (number, condition), route in more.routes.items():
            added[number][condition] = route
        peers = tuple(one.with_straggler_plans(routes) for one, routes in zip(self.peers, added, strict=True))
        return replace(self, version=more.version, peers=peers)

    def missing(self, slowdowns: np.ndarray) -> list[tuple[int, StageSlowdowns]]:
        """Return the numbers of peers, and the conditions, that need straggler plans and have none.

        Args:
            slowdowns: Array (pipelines, stages).
        """
        return sorted(
            (number, condition)
            for number, condition in set(self._conditions(slowdowns))
            if is_slow(condition) and condition not in self.peers[number].straggler_plans
        )

    def t_prime_s(self, slowdowns: np.ndarray) -> float:
        """Return the iteration time that the slowest pipeline can make.

        Args:
            slowdowns: Array (pipelines, stages).

        Returns:
            Seconds; the slowest healthy pipeline's fastest time when nobody is slow.
        """
        return max(
            self.peers[number].fastest_with_s(condition) for number, condition in set(self._conditions(slowdowns))
        )

    def choose(self, slowdowns: np.ndarray) -> tuple[FrequencyPlan, ...]:
        """Return the plan that each pipeline should run, given everybody's condition.

        Args:
            slowdowns: Array (pipelines, stages).
        """
        t_prime_s = self.t_prime_s(slowdowns)
        conditions = self._conditions(slowdowns)
        chosen = {one: self.peers[one[0]].choose(one[1], t_prime_s) for one in set(conditions)}
        # An objective may make a plan slower than T': nobody needs to be faster than that one.
        slowest_s = max(t_prime_s, *(plan.time_s for plan in chosen.values()))
        chosen = {one: self.peers[one[0]].choose(one[1], slowest_s) for one in chosen}
        return tuple(chosen[one] for one in conditions)

    def energy_j(self, plans: Sequence[FrequencyPlan]) -> float:
        """Return the energy of one pipeline's iteration, the mean over pipelines, waiting included.

        Args:
            plans: One per pipeline.
        """
        end_s = max(plan.time_s for plan in plans)
        energies = [
            plan.energy_j + self.of(pipeline).waiting_w * (end_s - plan.time_s) for pipeline, plan in enumerate(plans)
        ]
        return sum(energies) / len(energies)

    @property
    def max_energy_j(self) -> float:
        """Predicted energy of one pipeline's iteration at the highest clock, the mean over pipelines."""
        peers = [self.of(pipeline) for pipeline in range(len(self.peers_of))]
        energies = [one.max_energy_j + one.waiting_w * (self.max_time_s - one.max_time_s) for one in peers]
        return sum(energies) / len(energies)

    def _conditions(self, slowdowns: np.ndarray) -> list[tuple[int, StageSlowdowns]]:
        """Return each pipeline's peers' number and condition."""
        return [(number, stage_slowdowns(row)) for number, row in zip(self.peers_of, slowdowns, strict=True)]


def stage_slowdowns(slowdowns: np.ndarray) -> StageSlowdowns:
    """Return the condition of a pipeline from its row of slowdowns."""
    return tuple(slowdowns.tolist())


def is_slow(condition: StageSlowdowns) -> bool:
    """Whether any stage of a pipeline is slower than profiled."""
    return any(slowdown > 1.0 for slowdown in condition)
