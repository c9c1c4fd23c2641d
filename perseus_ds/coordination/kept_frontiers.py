"""The job's frontiers: each is solved once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from perseus_ds.coordination.derived_profiles import slowed_profile
from perseus_ds.coordination.plan_table import (
    KEPT_STRAGGLER_PLANS,
    FrequencyPlan,
    GroupCondition,
    PlanSet,
    is_slow,
)
from perseus_ds.coordination.solved_frontiers import times_along
from perseus_ds.coordination.stage_condition import ceiling_mhz
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.on_time import undominated
from perseus_ds.worker_process import Call, call_here

__all__ = ["KeptFrontiers"]


@dataclass(frozen=True)
class _Kept:
    """A frontier, its plans from fast to slow, those beyond it, and the objective's; none before rounding."""

    frontier: Frontier
    along: tuple[FrequencyPlan, ...] = ()
    beyond: tuple[FrequencyPlan, ...] = ()
    asked: tuple[FrequencyPlan, ...] = ()


class KeptFrontiers:
    """Frontiers by pipeline group and straggler condition, kept while the problems stay the same.

    Args:
        problems: One per pipeline group.
        tolerance: Of the solver.
        call: Calls the solver.

    Attributes:
        problems: As given.
        healthy: The condition of each group without a straggler.
    """

    def __init__(self, problems: Iterable[Problem] = (), tolerance: float = 0.0, call: Call = call_here) -> None:
        self.problems = tuple(problems)
        self.healthy: tuple[GroupCondition, ...] = tuple(
            (number, (1.0,) * problem.dag.stages) for number, problem in enumerate(self.problems)
        )
        self._tolerance = tolerance
        self._call = call
        self._kept: dict[GroupCondition, _Kept] = {}

    def solve(
        self, wanted: Sequence[GroupCondition], on_progress: Callable[[float], object] = lambda part: None
    ) -> dict[GroupCondition, Frontier]:
        """Return frontiers, solving only those not kept.

        Args:
            wanted: Group numbers and conditions.
            on_progress: Called now and then with the completed part, 0 to 1.

        Raises:
            PerseusError: The profile lacks a curve, or the DAG has a cycle.
        """
        for done, which in enumerate(wanted):
            kept = self._kept.pop(which, None)
            if kept is None:
                report = partial(_part_of, on_progress, done, len(wanted))
                kept = _Kept(self._call(solve, self._problem(which), self._tolerance, on_progress=report))
            self._kept[which] = kept  # the latest come last
        self._forget(len(wanted))
        return {which: self._kept[which].frontier for which in wanted}

    def missing_times_s(self, which: GroupCondition) -> tuple[float, ...]:
        """Return the iteration times along a frontier that still need plans: all of them or none."""
        kept = self._kept[which]
        return () if kept.along else times_along(kept.frontier, which[1])

    def plan_set(
        self,
        which: GroupCondition,
        rounded: Sequence[FrequencyPlan],
        beyond: Callable[[GroupCondition], tuple[FrequencyPlan, ...]],
    ) -> PlanSet:
        """Assemble a frontier's plans, and keep those along it.

        Args:
            which: The frontier.
            rounded: The plan for the objective, then those of ``missing_times_s``.
            beyond: Makes the plans beyond T*; asked only once.
        """
        asked, *along = rounded
        kept = self._kept[which]
        if along:
            kept = replace(kept, along=self._undominated(which, along), beyond=beyond(which))
        return self._plan_set(which, replace(kept, asked=(asked,)))

    def with_plan(self, which: GroupCondition, plan: FrequencyPlan) -> PlanSet:
        """Keep one more plan, and return all of that frontier's.

        Args:
            which: The frontier; its plans have been made.
            plan: Takes its place among those along the frontier.
        """
        kept = self._kept[which]
        along = sorted((*kept.along, plan), key=lambda point: point.time_s)
        return self._plan_set(which, replace(kept, along=self._undominated(which, along)))

    def _plan_set(self, which: GroupCondition, kept: _Kept) -> PlanSet:
        self._kept[which] = kept
        frontier, points = kept.frontier, (*kept.asked, *kept.along)
        return PlanSet(
            which[1],
            frontier.t_min_s,
            frontier.t_star_s,
            kept.asked[0].time_s,
            tuple(sorted(points, key=lambda point: point.time_s)),
            kept.beyond,
        )

    def _undominated(self, which: GroupCondition, along: Sequence[FrequencyPlan]) -> tuple[FrequencyPlan, ...]:
        return tuple(undominated(along, self.problems[which[0]].energy_j(0.0, 1.0)))

    def _problem(self, which: GroupCondition) -> Problem:
        number, condition = which
        problem = self.problems[number]
        if not is_slow(condition):
            return problem
        # A ceiling leaves no higher clock for GPUs that have rested.
        rested = {one: by for one, by in problem.rested.items() if ceiling_mhz(condition[one.stage]) is None}
        profile = slowed_profile(problem.profile, np.array(condition), problem.stage_power_w)
        return replace(problem, profile=profile, rested=rested)

    def _forget(self, wanted: int) -> None:
        """Drop the least recently used straggler frontiers when there are many."""
        slow = [which for which in self._kept if is_slow(which[1])]
        for which in slow[: -max(KEPT_STRAGGLER_PLANS * len(self.problems), wanted)]:
            del self._kept[which]


def _part_of(on_progress: Callable[[float], object], done: int, count: int, part: float) -> None:
    on_progress((done + part) / count)
