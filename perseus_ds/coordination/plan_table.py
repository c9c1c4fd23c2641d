"""The coordinator's broadcast: every rank's clocks for every point of the frontier.

Once all ranks hold the table, any switch is a local look-up with the same result everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perseus_ds.coordination.plan_set import FrequencyPlan, PlanSet, StageSlowdowns
from perseus_ds.coordination.stage_condition import ceiling_mhz, time_up_to_s
from perseus_ds.pipeline.dag import PipelineDag
from perseus_ds.profiling.table import CurveKey

__all__ = [
    "KEPT_STRAGGLER_PLANS",
    "FrequencyPlan",
    "GroupCondition",
    "PipelineGroup",
    "PlanSet",
    "PlanTable",
    "StageSlowdowns",
    "StragglerPlans",
    "is_slow",
    "stage_slowdowns",
]

GroupCondition = tuple[int, StageSlowdowns]
"""Group number, and condition of a pipeline in it."""

KEPT_STRAGGLER_PLANS = 16
"""Number of recurring conditions to remember."""


@dataclass(frozen=True)
class StragglerPlans:
    """An addition to the current plan table: for pipelines with slow stages, or one more plan for the healthy ones.

    Attributes:
        version: Counted together with the plan tables'.
        plan_sets: By group number and condition.
    """

    version: int
    plan_sets: Mapping[GroupCondition, PlanSet]


@dataclass(frozen=True)
class PipelineGroup:
    """Common data of all pipelines with the same GPUs.

    Attributes:
        dag: DAG of one of them, for T' of a slowed one.
        fastest_s: Per instruction of ``dag``, its shortest duration.
        base: Frontier of a healthy one.
        max_energy_j: Predicted energy of its iteration at the highest clock.
        max_time_s: Predicted iteration time at the highest clock.
        waiting_w: Its power while it waits for the other pipelines.
        expected_times_s: Measured time by (curve, SM clock).
        straggler_plans: Frontiers of slowed ones, by condition.
        uniform_caps: Predicted time and energy with one cap on all its clocks, fastest first.
        microbatch_spread: By how much an instruction's time differs from micro-batch to micro-batch, relative standard
            deviation; 0: they are alike.
        limited: Curves that run at the power limit at their highest clock.
        switch_latency_s: Usual time from a request to each clock in MHz, where it is known.
    """

    dag: PipelineDag
    fastest_s: np.ndarray
    base: PlanSet
    max_energy_j: float
    max_time_s: float
    waiting_w: float
    expected_times_s: Mapping[tuple[CurveKey, int], float]
    straggler_plans: Mapping[StageSlowdowns, PlanSet] = field(default_factory=dict)
    uniform_caps: tuple[tuple[float, float], ...] = ()
    microbatch_spread: float = 0.0
    limited: frozenset[CurveKey] = frozenset()
    switch_latency_s: Mapping[int, float] = field(default_factory=dict)

    def plan_set(self, condition: StageSlowdowns) -> PlanSet:
        """Return the frontier for a condition: its straggler plans if there are any, else the base."""
        return self.straggler_plans.get(condition, self.base)

    def expected_s(self, key: CurveKey, frequency_mhz: int) -> float:
        """Return an instruction's measured time at a clock, in seconds; 0 if not measured."""
        return self.expected_times_s.get((key, frequency_mhz), 0.0)

    def begins_s(self, plan: FrequencyPlan, stage: int) -> tuple[float, ...]:
        """Return when a stage's instructions begin under a plan.

        Args:
            plan: Of a pipeline of this group.
            stage: The stage.

        Returns:
            Seconds from the iteration's begin, in the order of the plan's clocks; empty where the time of a clock was
            not measured.
        """
        instructions = self.dag.instructions
        times_s = [self.expected_s(CurveKey.of(one), plan.clocks_mhz[one.stage][one.operation]) for one in instructions]
        if not all(times_s):
            return ()
        starts_s = self.dag.starts_s(times_s)
        begins_s = {one.operation: float(starts_s[row]) for row, one in enumerate(instructions) if one.stage == stage}
        return tuple(begins_s[operation] for operation in plan.clocks_mhz[stage])

    def fastest_with_s(self, condition: StageSlowdowns) -> float:
        """Return the shortest iteration time, in seconds, in a condition."""
        if not is_slow(condition):
            return self.base.t_min_s
        times_s = self.fastest_s.copy()
        for row, instruction in enumerate(self.dag.instructions):
            slowdown = condition[instruction.stage]
            if (held_mhz := ceiling_mhz(slowdown)) is None:
                times_s[row] *= slowdown
            else:
                times_s[row] = time_up_to_s(self.expected_times_s, CurveKey.of(instruction), held_mhz)
        return self.dag.makespan(times_s)

    def choose(self, condition: StageSlowdowns, t_prime_s: float, ordered_s: float | None = None) -> FrequencyPlan:
        """Return the plan for a condition, given the times of ``PlanSet.t_opt_s``."""
        plan_set = self.plan_set(condition)
        if plan_set is self.base and is_slow(condition):
            # No plan of its own yet: a straggler must not slow down further.
            return plan_set.points[0]
        return plan_set.point(plan_set.t_opt_s(t_prime_s, ordered_s))

    def with_straggler_plans(self, more: Mapping[StageSlowdowns, PlanSet]) -> PipelineGroup:
        """Return a copy with more straggler plans, without the oldest of many; a healthy one is the base."""
        kept = {condition: known for condition, known in self.straggler_plans.items() if condition not in more}
        slow = {condition: plan_set for condition, plan_set in more.items() if is_slow(condition)}
        latest = list((kept | slow).items())[-max(KEPT_STRAGGLER_PLANS, len(slow)) :]
        base = next((plan_set for condition, plan_set in more.items() if not is_slow(condition)), self.base)
        return replace(self, base=base, straggler_plans=dict(latest))


@dataclass(frozen=True)
class PlanTable:
    """The ranks' complete knowledge of the plans.

    Attributes:
        version: Increases with every broadcast.
        microbatches: Planned micro-batches per iteration.
        baseline_s: Measured iteration time at the default clocks.
        groups: One for all pipelines with the same GPUs.
        group_of: Group number of each pipeline.
        baseline_energies_j: Measured energy of one pipeline in each iteration of the baseline, with what the counter
            has missed; empty if an earlier run has measured it.
        counter_lag_s: How long the energy counters take to show a change of the power; 0: not known.
    """

    version: int
    microbatches: int
    baseline_s: float
    groups: tuple[PipelineGroup, ...]
    group_of: tuple[int, ...]
    baseline_energies_j: Mapping[int, float] = field(default_factory=dict)
    counter_lag_s: float = 0.0

    @property
    def max_time_s(self) -> float:
        """Predicted iteration time of the job at the highest clock."""
        return max(group.max_time_s for group in self.groups)

    @property
    def uniform_caps(self) -> tuple[tuple[float, float], ...]:
        """Predicted time and energy of a pipeline with one cap on the clocks of all GPUs; none where GPUs differ."""
        return self.groups[0].uniform_caps if len(self.groups) == 1 else ()

    def of(self, pipeline: int) -> PipelineGroup:
        """Return a pipeline's group."""
        return self.groups[self.group_of[pipeline]]

    def with_straggler_plans(self, more: StragglerPlans) -> PlanTable:
        """Return a copy with more straggler plans."""
        added: list[dict[StageSlowdowns, PlanSet]] = [{} for _ in self.groups]
        for (number, condition), plan_set in more.plan_sets.items():
            added[number][condition] = plan_set
        groups = tuple(one.with_straggler_plans(mine) for one, mine in zip(self.groups, added, strict=True))
        return replace(self, version=more.version, groups=groups)

    def missing(self, slowdowns: np.ndarray) -> list[GroupCondition]:
        """Return the groups and conditions that still need straggler plans.

        Args:
            slowdowns: Array (pipelines, stages).
        """
        return sorted(
            (number, condition)
            for number, condition in set(self.conditions(slowdowns))
            if is_slow(condition) and condition not in self.groups[number].straggler_plans
        )

    def t_prime_s(self, slowdowns: np.ndarray) -> float:
        """Return the shortest iteration time of the slowest pipeline.

        Args:
            slowdowns: Array (pipelines, stages).

        Returns:
            Seconds; without a straggler the fastest time of the slowest healthy pipeline.
        """
        return max(
            self.groups[number].fastest_with_s(condition) for number, condition in set(self.conditions(slowdowns))
        )

    def choose(self, slowdowns: np.ndarray, ordered_s: float | None = None) -> tuple[FrequencyPlan, ...]:
        """Return the plan of each pipeline, given the condition of all.

        Args:
            slowdowns: Array (pipelines, stages).
            ordered_s: The job's iteration time where an order has replaced the configured objective.
        """
        conditions = self.conditions(slowdowns)
        chosen = self.chosen(set(conditions), self.t_prime_s(slowdowns), ordered_s)
        return tuple(chosen[one] for one in conditions)

    def chosen(
        self, conditions: Collection[GroupCondition], t_prime_s: float, ordered_s: float | None = None
    ) -> dict[GroupCondition, FrequencyPlan]:
        """Return the plan by condition, given all conditions and the times of ``PlanSet.t_opt_s``."""
        chosen = {one: self.groups[one[0]].choose(one[1], t_prime_s, ordered_s) for one in conditions}
        # An objective may make a plan slower than T': nobody needs to be faster than that one.
        slowest_s = max(t_prime_s, *(plan.time_s for plan in chosen.values()))
        return {one: self.groups[one[0]].choose(one[1], slowest_s, ordered_s) for one in chosen}

    def predicted(self, plans: Sequence[FrequencyPlan]) -> tuple[float, float]:
        """Return the time of the job's iteration, and its energy as ``energy_j`` does.

        Args:
            plans: One per pipeline.
        """
        return max(plan.time_s for plan in plans), self.energy_j(plans)

    def energy_j(self, plans: Sequence[FrequencyPlan]) -> float:
        """Return the energy of one pipeline's iteration, the mean over pipelines, including waiting.

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
        groups = [self.of(pipeline) for pipeline in range(len(self.group_of))]
        energies = [one.max_energy_j + one.waiting_w * (self.max_time_s - one.max_time_s) for one in groups]
        return sum(energies) / len(energies)

    @property
    def highest(self) -> tuple[float, float]:
        """Time and energy of the job's iteration at the highest clock, as ``predicted`` tells them of plans."""
        return self.max_time_s, self.max_energy_j

    def conditions(self, slowdowns: np.ndarray) -> list[GroupCondition]:
        """Return the group and condition of each pipeline."""
        return [(number, stage_slowdowns(row)) for number, row in zip(self.group_of, slowdowns, strict=True)]


def stage_slowdowns(slowdowns: np.ndarray) -> StageSlowdowns:
    """Return the condition of a pipeline from its row of slowdowns."""
    return tuple(slowdowns.tolist())


def is_slow(condition: StageSlowdowns) -> bool:
    """Whether any stage of a pipeline is slower than profiled."""
    return any(slowdown > 1.0 or slowdown < 0.0 for slowdown in condition)
