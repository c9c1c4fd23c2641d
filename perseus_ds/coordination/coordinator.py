"""Plans the whole job, on the coordinating rank, off the trainer thread."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.coordination.derived_profiles import scaled_profile
from perseus_ds.coordination.kept_frontiers import KeptFrontiers
from perseus_ds.coordination.plan_files import PlanFiles
from perseus_ds.coordination.plan_table import (
    FrequencyPlan,
    GroupCondition,
    PipelineGroup,
    PlanSet,
    PlanTable,
    StageSlowdowns,
    StragglerPlans,
    is_slow,
)
from perseus_ds.coordination.resume import ResumeData
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.coordination.stage_report import StageReport, group_profiles, group_traces, pipeline_energies_j
from perseus_ds.frontier import Frontier, Problem
from perseus_ds.frontier.beyond import uniform_caps
from perseus_ds.frontier.objective_forms import objective_from_json
from perseus_ds.frontier.observed import at_highest, observed_problem
from perseus_ds.frontier.power_objectives import JobPower
from perseus_ds.frontier.switching import SwitchCost
from perseus_ds.frontier.waiting import with_waiting
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.latencies import latency_spread
from perseus_ds.profiling.table import Profile
from perseus_ds.rundir import RunDirectory
from perseus_ds.worker_process import Call, call_here

__all__ = ["Coordinator"]


class Coordinator:
    """Solves frontiers, and assembles plan tables from the plans that the ranks have rounded.

    Pipelines with the same GPUs form a group: they share a profile and a frontier. The coordinator keeps frontiers
    while profile and iteration stay the same.

    Args:
        config: The whole configuration.
        topology: The coordinator's.
        directory: Receives ``profile.csv``, ``trace.json`` and ``frontier.json``.
        depends: Inputs of the profile, of each group.
        knowledge: Results of earlier runs, of each group.
        group_of: Group number of each pipeline.
        switch_jitter_s: Standard deviation of a clock's arrival until it is measured.
        call: Makes the heavy calls.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        directory: RunDirectory,
        depends: Sequence[Mapping[str, str]],
        knowledge: Sequence[ResumeData],
        group_of: Sequence[int],
        switch_jitter_s: float = 0.0,
        call: Call = call_here,
    ) -> None:
        planner = config.planner
        self._tolerance = planner.tolerance
        self._switch_cost = SwitchCost(planner.switch_penalty_j, planner.max_switches)
        self._jitter_s = switch_jitter_s
        self._spares_switches = planner.max_switches is not None or planner.switch_penalty_j > 0
        self._shard_size = topology.shard_size
        self._files = PlanFiles(config, directory, depends)
        self._knowledge = knowledge
        self._group_of = tuple(group_of)
        objective = objective_from_json(config.objective.model_dump())
        self._follows_power = isinstance(objective, JobPower)
        if isinstance(objective, JobPower):
            objective = objective.per_pipeline(len(group_of))
        self._objective = objective
        self._call = call
        self._kept = KeptFrontiers()
        self._baseline_s = 0.0
        self._baseline_energies_j: dict[int, float] = {}
        self._counter_lag_s = self._begin_s = 0.0

    def solve(self, reports: Sequence[StageReport]) -> SolvedFrontiers:
        """Solve the problem given by the ranks' reports.

        Args:
            reports: One per rank.

        Raises:
            PerseusError: The profiles or traces do not form a pipeline.
        """
        ranks = (one.baseline_energies_j for one in reports)
        self._baseline_energies_j = pipeline_energies_j([*ranks], len(self._group_of))
        self._counter_lag_s = max(report.counter_lag_s for report in reports)
        if spread := latency_spread(report.latencies_s for report in reports):
            self._jitter_s = spread.off_s
        traces = group_traces([(report.topology, report.trace) for report in reports], self._group_of)
        return self._first(group_profiles(reports, self._group_of, self._knowledge), traces)

    def resume(self) -> SolvedFrontiers:
        """Solve the problem left by an earlier run."""
        profiles = []
        for found in self._knowledge:
            assert found.profile is not None, "nothing to resume from"
            assert found.blocking_power_w is not None, "nothing to resume from"
            profiles.append((found.profile, found.blocking_power_w))
        return self._first(profiles, [found.traces for found in self._knowledge])

    def know(self, knowledge: Sequence[ResumeData]) -> None:
        """Take what the run has left so far, of each group."""
        self._knowledge = knowledge

    def straggler_plans(self, missing: Sequence[GroupCondition]) -> SolvedFrontiers:
        """Solve for pipelines with slow stages.

        Args:
            missing: Group numbers, and the slowdowns by stage.
        """
        return self._draft(self._kept.solve(missing))

    def one_more(self, t_s: float) -> SolvedFrontiers:
        """Prepare the plan for one more iteration time; no frontier is solved again.

        Args:
            t_s: The iteration time of the job.
        """
        frontiers = self._kept.solve(self._kept.healthy)
        times_s = {which: (frontier.clamp(t_s),) for which, frontier in frontiers.items()}
        return replace(self._draft(frontiers), times_s=times_s, adds=True)

    def rescale(self, drift: Sequence[float] | np.ndarray) -> SolvedFrontiers:
        """Solve for a drifted profile.

        Args:
            drift: Per stage, factor on the times.
        """
        factors = np.asarray(drift)
        before = self._kept.problems
        after = [replace(one, profile=scaled_profile(one.profile, factors)) for one in before]
        self._baseline_s *= _highest_s(after) / _highest_s(before)
        for number, problem in enumerate(after):
            self._files.profile(number, problem.profile)
        log.info("%s", user_message("drift", factor=float(np.median(factors))))
        return self._solved(after)

    def retrace(self, traces: Sequence[tuple[Topology, StageTrace]]) -> SolvedFrontiers:
        """Solve for iterations with another number of micro-batches.

        Args:
            traces: Every rank's.
        """
        by_group = group_traces(traces, self._group_of)
        self._baseline_s = _baseline_s(by_group)
        for number, ours in enumerate(by_group):
            self._files.traces(number, ours)
        return self._solved(
            [
                observed_problem(ours, problem.profile, problem.blocking_power_w, problem.gpus_per_stage)
                for problem, ours in zip(self._kept.problems, by_group, strict=True)
            ]
        )

    def discretize_shard(self, draft: SolvedFrontiers, place: int, places: int) -> dict[int, FrequencyPlan]:
        """Round the coordinator's own share of a draft's plans, and show the progress.

        Args:
            draft: Result of one of the other methods.
            place: Number of the share, from 0.
            places: Number of shares.

        Returns:
            Plans by their number in the whole.
        """
        if draft.adds or not _is_table(draft.frontiers):
            return self._call(SolvedFrontiers.discretize_shard, draft, place, places)
        count = len(draft.share(place, places))
        with self._files.progress("rounding, plans on this rank", count, every=5) as show:
            return self._call(SolvedFrontiers.discretize_shard, draft, place, places, on_progress=show)

    def finish(
        self, version: int, draft: SolvedFrontiers, shares: Sequence[Mapping[int, FrequencyPlan]]
    ) -> PlanTable | StragglerPlans:
        """Build the broadcast value from a draft and its rounded plans.

        Args:
            version: Of the plan table or addition.
            draft: Result of one of the other methods.
            shares: Every rank's plans.

        Returns:
            A plan table if the draft has the healthy pipelines' frontiers, else an addition to the one in force.
        """
        if draft.adds:
            return StragglerPlans(
                version, {which: self._kept.with_plan(which, *plans) for which, plans in draft.plans(shares).items()}
            )
        plan_sets = {
            which: self._kept.plan_set(which, rounded, partial(self._call, SolvedFrontiers.beyond, draft))
            for which, rounded in draft.plans(shares).items()
        }
        if not _is_table(plan_sets):
            return StragglerPlans(version, plan_sets)
        groups = []
        for healthy, problem in zip(self._kept.healthy, self._kept.problems, strict=True):
            number = healthy[0]
            slow = {condition: one for (of, condition), one in plan_sets.items() if of == number and is_slow(condition)}
            groups.append(_group(problem, plan_sets[healthy], slow))
            self._files.frontier(number, draft.frontiers[healthy], groups[number])
        log.info("plans ready after %.1f s", time.monotonic() - self._begin_s)
        microbatches = 1 + max(instruction.microbatch for instruction in groups[0].dag.instructions)
        told = self._baseline_energies_j, self._counter_lag_s
        return PlanTable(version, microbatches, self._baseline_s, tuple(groups), self._group_of, *told)

    def _first(
        self, profiles: Sequence[tuple[Profile, float]], traces: Sequence[Sequence[StageTrace]]
    ) -> SolvedFrontiers:
        """Solve for the first time, from each group's profile, blocking power, and traces of one pipeline."""
        self._baseline_s = _baseline_s(traces)
        draft = self._solved(
            [observed_problem(ours, *profile, self._shard_size) for profile, ours in zip(profiles, traces, strict=True)]
        )
        for number, (profile, ours) in enumerate(zip(profiles, traces, strict=True)):
            self._files.profile(number, profile[0])
            self._files.traces(number, ours)
            self._files.remember(number, *profile)
        return draft

    def _solved(self, problems: Sequence[Problem]) -> SolvedFrontiers:
        """Solve changed problems."""
        self._begin_s = time.monotonic()
        if spread := max(one.uneven.spread if one.uneven is not None else 0.0 for one in problems):
            log.info("%s", user_message("microbatches-differ", percent=round(100.0 * spread)))
        self._kept = KeptFrontiers(problems, self._tolerance, self._call)
        with self._files.progress("solving, percent", 100, every=20) as show:
            frontiers = self._kept.solve(self._kept.healthy, lambda part: show(round(100 * part)))
            show(100)
        return self._draft(frontiers)

    def _draft(self, frontiers: Mapping[GroupCondition, Frontier]) -> SolvedFrontiers:
        times_s = {
            which: (self._asked_s(frontier, which[1]), *self._kept.missing_times_s(which))
            for which, frontier in frontiers.items()
        }
        return SolvedFrontiers(frontiers, times_s, self._switch_cost, self._spares_switches, self._jitter_s)

    def _asked_s(self, frontier: Frontier, condition: StageSlowdowns) -> float:
        """Return the iteration time for the objective, or the closest possible one with a warning."""
        try:
            return self._objective.target_time_s(frontier)
        except PerseusError as problem:
            if not is_slow(condition) and not self._follows_power:
                log.warning("%s", user_message("objective-closest", problem=problem))
            return self._objective.closest_time_s(frontier)


def _is_table(conditions: Mapping[GroupCondition, object]) -> bool:
    """Whether the draft covers healthy pipelines, perhaps besides others."""
    return not all(is_slow(condition) for _, condition in conditions)


def _group(problem: Problem, base: PlanSet, slow: Mapping[StageSlowdowns, PlanSet]) -> PipelineGroup:
    """Return the ranks' view of a pipeline group."""
    highest = with_waiting(problem, at_highest(problem))
    fastest_s = np.array([min(point.time_s for point in curve) for curve in problem.curves])
    return PipelineGroup(
        dag=problem.dag,
        fastest_s=fastest_s[problem.curve_of],
        base=base,
        max_energy_j=highest.energy_j,
        max_time_s=highest.time_s,
        waiting_w=problem.energy_j(0.0, 1.0),
        expected_times_s={(key, p.frequency_mhz): p.time_s for key, row in problem.profile.curves.items() for p in row},
        straggler_plans=slow,
        uniform_caps=tuple((plan.time_s, plan.energy_j) for plan in uniform_caps(problem)),
        microbatch_spread=problem.uneven.spread if problem.uneven is not None else 0.0,
        limited=problem.profile.limited,
        switch_latency_s=problem.profile.switch_latency_s,
    )


def _baseline_s(traces: Sequence[Sequence[StageTrace]]) -> float:
    return median(trace.iteration_time_s for ours in traces for trace in ours)


def _highest_s(problems: Sequence[Problem]) -> float:
    return max(at_highest(problem).time_s for problem in problems)
