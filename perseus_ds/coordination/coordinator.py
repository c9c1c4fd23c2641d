"""Solves for the whole job, on the coordinating rank, off the trainer's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from perseus_ds.config import Config
from perseus_ds.console import ProgressLine, log
from perseus_ds.coordination.plan_table import (
    FrequencyPlan,
    PipelineGroup,
    PlanSet,
    PlanTable,
    StageSlowdowns,
    StragglerPlans,
    is_slow,
)
from perseus_ds.coordination.resume import ResumeData, numbered, remember
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers, at_highest
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.objectives import Objective, plan_for, target_time_s
from perseus_ds.frontier.switching import SwitchCost
from perseus_ds.messages import PerseusError, user_message
from perseus_ds.pipeline.events import Topology
from perseus_ds.pipeline.observed import dag_from_traces
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint, write_profile
from perseus_ds.rundir import RunDirectory
from perseus_ds.runtime.profiler import StageReport

__all__ = ["Coordinator", "scaled_profile", "slowed_profile"]


class Coordinator:
    """Solves, and makes plan tables of what the ranks have rounded, one after the other.

    Pipelines with the same GPUs are peers: they share a profile and a frontier.

    Args:
        config: The whole configuration.
        topology: The coordinator's.
        directory: Gets ``profile.csv``, ``trace.json`` and ``frontier.json``.
        depends: What the profile depends on, of each peers.
        knowledge: What need not be measured, of each peers.
        peers_of: By pipeline, the number of its peers.
        switch_latency_s: From a clock request to the new clock.
    """

    def __init__(
        self,
        config: Config,
        topology: Topology,
        directory: RunDirectory,
        depends: Sequence[Mapping[str, str]],
        knowledge: Sequence[ResumeData],
        peers_of: Sequence[int],
        switch_latency_s: float = 0.0,
    ) -> None:
        self._config = config
        self._topology = topology
        self._directory = directory
        self._depends = depends
        self._knowledge = knowledge
        self._peers_of = tuple(peers_of)
        self._objective = _objective(config)
        planner = config.planner
        self._switch_cost = SwitchCost(switch_latency_s, planner.switch_penalty_j, planner.max_switches)
        self._spares_switches = planner.max_switches is not None or planner.switch_penalty_j > 0
        self._problems: list[Problem] = []
        self._baseline_s = 0.0
        self._begin_s = 0.0

    def solve(self, reports: Sequence[StageReport]) -> SolvedFrontiers:
        """Solve what the ranks have handed in.

        Args:
            reports: One per rank.

        Raises:
            PerseusError: The profiles or traces do not make up a pipeline.
        """
        profiles = []
        for number, found in enumerate(self._knowledge):
            mine = [report for report in reports if self._peers_of[report.topology.pipeline] == number]
            profile, blocking_power_w = merge_profiles(
                [(report.topology.pipeline, report.attribution) for report in mine], "live profile"
            )
            if found.profile is not None:
                profile, blocking_power_w = found.profile, found.blocking_power_w or blocking_power_w
            profiles.append((profile, blocking_power_w))
        return self._first(profiles, self._traces([(report.topology, report.trace) for report in reports]))

    def resume(self) -> SolvedFrontiers:
        """Solve what an earlier run has left."""
        profiles = []
        for found in self._knowledge:
            assert found.profile is not None, "nothing to resume from"
            assert found.blocking_power_w is not None, "nothing to resume from"
            profiles.append((found.profile, found.blocking_power_w))
        return self._first(profiles, [found.traces for found in self._knowledge])

    def straggler_plans(self, missing: Sequence[tuple[int, StageSlowdowns]]) -> SolvedFrontiers:
        """Solve for pipelines with slow stages.

        Args:
            missing: Numbers of peers, and the slowdowns by stage.
        """
        frontiers = {}
        for number, condition in missing:
            problem = self._problems[number]
            profile = slowed_profile(problem.profile, np.array(condition), problem.stage_power_w)
            frontiers[number, condition] = solve(replace(problem, profile=profile), self._config.planner.tolerance)
        return self._draft(frontiers)

    def rescale(self, drift: np.ndarray) -> SolvedFrontiers:
        """Solve for a profile that has drifted.

        Args:
            drift: Per stage, factor on the times.
        """
        before_s = self._highest_s()
        self._problems = [replace(one, profile=scaled_profile(one.profile, drift)) for one in self._problems]
        self._baseline_s *= self._highest_s() / before_s
        for number, problem in enumerate(self._problems):
            self._write_profile(number, problem.profile)
        log.info("%s", user_message("drift", factor=float(np.median(drift))))
        return self._solved()

    def retrace(self, traces: Sequence[tuple[Topology, StageTrace]]) -> SolvedFrontiers:
        """Solve for iterations of another number of micro-batches.

        Args:
            traces: Every rank's.
        """
        by_peers = self._traces(traces)
        self._baseline_s = _baseline_s(by_peers)
        for number, ours in enumerate(by_peers):
            self._write_traces(number, ours)
        self._problems = [
            replace(problem, dag=dag_from_traces(ours)) for problem, ours in zip(self._problems, by_peers, strict=True)
        ]
        return self._solved()

    def discretize_shard(self, draft: SolvedFrontiers, place: int, places: int) -> dict[int, FrequencyPlan]:
        """Round the coordinator's own share of a draft's plans, and show how far it is.

        Args:
            draft: What one of the other methods has returned.
            place: Which share, from 0.
            places: How many shares there are.

        Returns:
            Plans by their number in the whole.
        """
        mine = draft.share(place, places)
        if not mine or any(is_slow(condition) for _, condition in draft.frontiers):
            return draft.discretize_shard(place, places)
        with self._showing("rounding, plans on this rank", len(mine), every=5) as show:
            return draft.discretize_shard(place, places, show)

    def finish(
        self, version: int, draft: SolvedFrontiers, shares: Sequence[Mapping[int, FrequencyPlan]]
    ) -> PlanTable | StragglerPlans:
        """Make of a draft and its rounded plans what is broadcast.

        Args:
            version: Of the plan table or addition.
            draft: What one of the other methods has returned.
            shares: Every rank's plans.
        """
        routes = draft.routes(shares)
        if any(is_slow(condition) for _, condition in routes):
            return StragglerPlans(version, routes)
        peers = tuple(
            self._peers(problem, routes[number, _healthy(problem)]) for number, problem in enumerate(self._problems)
        )
        for (number, _), frontier in draft.frontiers.items():
            self._tell(number, frontier, peers[number])
        log.info("plans ready %.1f s after the profile", time.monotonic() - self._begin_s)
        microbatches = 1 + max(instruction.microbatch for instruction in peers[0].dag.instructions)
        return PlanTable(version, microbatches, self._baseline_s, peers, self._peers_of)

    def _first(
        self, profiles: Sequence[tuple[Profile, float]], traces: Sequence[Sequence[StageTrace]]
    ) -> SolvedFrontiers:
        """Solve for the first time, from profile and blocking power, and from one pipeline's traces, of each peers."""
        self._baseline_s = _baseline_s(traces)
        self._problems = [
            Problem(dag_from_traces(ours), *profile, self._topology.shard_size)
            for profile, ours in zip(profiles, traces, strict=True)
        ]
        draft = self._solved()
        for number, ((profile, _), ours) in enumerate(zip(profiles, traces, strict=True)):
            self._write_profile(number, profile)
            self._write_traces(number, ours)
            if self._config.profiling.profile is None:
                remember(self._config, self._directory, number, self._depends[number], *profiles[number])
        return draft

    def _traces(self, traces: Sequence[tuple[Topology, StageTrace]]) -> list[list[StageTrace]]:
        """Return those of the first pipeline of each peers, one per stage."""
        firsts = [self._peers_of.index(number) for number in range(len(self._knowledge))]
        return [
            [trace for topology, trace in traces if topology.pipeline == first and topology.shard_rank == 0]
            for first in firsts
        ]

    def _write_profile(self, number: int, profile: Profile) -> None:
        self._directory.later(partial(write_profile, profile, self._directory.path / numbered("profile.csv", number)))

    def _write_traces(self, number: int, traces: Sequence[StageTrace]) -> None:
        self._directory.write_json(numbered("trace.json", number), [trace.to_json() for trace in traces])

    def _solved(self) -> SolvedFrontiers:
        self._begin_s = time.monotonic()
        tolerance, count = self._config.planner.tolerance, len(self._problems)
        frontiers = {}
        with self._showing("solving, percent", 100, every=20) as show:
            for number, problem in enumerate(self._problems):
                frontiers[number, _healthy(problem)] = solve(
                    problem, tolerance, lambda share, done=number: show(round(100 * (done + share) / count))
                )
            show(100)
        return self._draft(frontiers)

    @contextmanager
    def _showing(self, title: str, total: int, every: int) -> Iterator[Callable[[int], None]]:
        """Show how far something is: on a terminal or in the log, and to ``perseus-ds status``."""
        with closing(ProgressLine(title, total, every)) as line:

            def show(step: int) -> None:
                if line.to(step):
                    self._directory.write_json("progress.json", {"progress": f"{title}: {step}/{total}"})

            yield show

    def _draft(self, frontiers: Mapping[tuple[int, StageSlowdowns], Frontier]) -> SolvedFrontiers:
        asked_s = {which: self._asked_s(frontier, which[1]) for which, frontier in frontiers.items()}
        return SolvedFrontiers(frontiers, asked_s, self._switch_cost, self._spares_switches)

    def _asked_s(self, frontier: Frontier, condition: StageSlowdowns) -> float:
        """Return the time that the objective asks for; where it cannot be met, the closest, and say so."""
        try:
            if self._objective.name == "power_cap":
                return plan_for(frontier, self._objective).time_s  # a plan keeps the cap a little later than the bound
            return target_time_s(frontier, self._objective)
        except PerseusError as problem:
            if not is_slow(condition):
                log.warning("%s", user_message("objective-closest", problem=problem))
            return frontier.t_star_s if self._objective.name == "power_cap" else frontier.t_min_s

    def _peers(self, problem: Problem, base: PlanSet) -> PipelineGroup:
        highest = at_highest(problem)
        fastest_s = [min(p.time_s for p in problem.profile.curve(CurveKey.of(one))) for one in problem.dag.instructions]
        return PipelineGroup(
            dag=problem.dag,
            fastest_s=np.array(fastest_s),
            base=base,
            max_energy_j=highest.energy_j,
            max_time_s=highest.time_s,
            waiting_w=problem.energy_j(0.0, 1.0),
            expected_times_s={
                (key, point.frequency_mhz): point.time_s
                for key, points in problem.profile.curves.items()
                for point in points
            },
        )

    def _tell(self, number: int, frontier: Frontier, peers: PipelineGroup) -> None:
        simulated = self._config.simulator is not None
        self._directory.write_json(numbered("frontier.json", number), _frontier_json(frontier, peers, simulated))
        log.info(
            "frontier: %d instructions, %d breakpoints, T_min %.3f s, T* %.3f s, %d plans",
            len(peers.dag.instructions),
            len(frontier.times_s),
            frontier.t_min_s,
            frontier.t_star_s,
            len(peers.base.points),
        )

    def _highest_s(self) -> float:
        return max(at_highest(problem).time_s for problem in self._problems)


def slowed_profile(profile: Profile, slowdowns: np.ndarray, blocking_power_w: np.ndarray) -> Profile:
    """Return a profile whose slow stages take longer.

    The extra time is spent waiting within the instruction, at blocking power.

    Args:
        profile: The healthy one.
        slowdowns: Per stage, factor on its times.
        blocking_power_w: Per stage.
    """

    def slowed(key: CurveKey, point: ProfilePoint) -> ProfilePoint:
        extra_s = point.time_s * (slowdowns[key.stage] - 1.0)
        extra_j = blocking_power_w[key.stage] * extra_s
        return ProfilePoint(point.frequency_mhz, point.time_s + extra_s, point.energy_j + extra_j)

    curves = {key: tuple(slowed(key, point) for point in points) for key, points in profile.curves.items()}
    return Profile(curves, f"{profile.source}, slowed")


def scaled_profile(profile: Profile, factors: np.ndarray) -> Profile:
    """Return a profile of more, or less, work: times and energies grow alike.

    Args:
        profile: The measured one.
        factors: Per stage.
    """

    def scaled(key: CurveKey, point: ProfilePoint) -> ProfilePoint:
        factor = float(factors[key.stage])
        return ProfilePoint(point.frequency_mhz, *(value * factor for value in point[1:]))

    curves = {key: tuple(scaled(key, point) for point in points) for key, points in profile.curves.items()}
    return Profile(curves, f"{profile.source}, rescaled")


def _objective(config: Config) -> Objective:
    asked = config.objective
    if asked.slowdown is not None:
        return Objective("slowdown", asked.slowdown)
    if asked.deadline_s is not None:
        return Objective("deadline", asked.deadline_s)
    if asked.power_cap_w is not None:
        return Objective("power_cap", asked.power_cap_w)
    return Objective("min_energy" if asked.min_energy else "min_time")


def _baseline_s(traces: Sequence[Sequence[StageTrace]]) -> float:
    return median(trace.iteration_time_s for ours in traces for trace in ours)


def _healthy(problem: Problem) -> StageSlowdowns:
    return (1.0,) * problem.dag.stages


def _frontier_json(frontier: Frontier, peers: PipelineGroup, simulated: bool) -> dict:
    return {
        "simulated": simulated,
        "t_min_s": frontier.t_min_s,
        "t_star_s": frontier.t_star_s,
        "breakpoints": len(frontier.times_s),
        "max_energy_j": peers.max_energy_j,
        "blocking_power_w": frontier.problem.stage_power_w.tolist(),
        "gpus_per_stage": frontier.problem.gpus_per_stage,
        "frontier": [
            {
                "time_s": p.time_s,
                "energy_j": p.energy_j,
                "lower_bound_j": p.lower_bound_j,
                "switches": p.switches,
            }
            for p in peers.base.points
        ],
    }
