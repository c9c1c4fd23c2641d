"""Selects the current plans from the agreed values. No communication: equal inputs give equal plans."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perseus_ds.config import Config
from perseus_ds.coordination.guard import ThroughputGuard
from perseus_ds.coordination.job_curve import JobTarget
from perseus_ds.coordination.objective_follower import ObjectiveFollower
from perseus_ds.coordination.orders import Announcement
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable
from perseus_ds.coordination.power_follower import PowerFollower
from perseus_ds.coordination.rounds import RoundResult
from perseus_ds.coordination.straggler import DriftWatch, StragglerTracker
from perseus_ds.frontier.objective_forms import objective_from_json
from perseus_ds.frontier.objectives import Objective
from perseus_ds.frontier.power_objectives import PowerCap

__all__ = ["Heard", "PlanSelector"]

# While a power is followed: an iteration time that differs by more from the one last told is news.
_NEWS = 0.1
# What counts as a plan for an iteration time, as a share of it: for a time that was ordered, and for a power, where the
# mean of neighbouring plans is as good unless they are far apart.
_NEAR, _NEAR_FOR_POWER = 0.004, 0.015


@dataclass(frozen=True)
class Heard:
    """The changes of a round.

    Attributes:
        condition: A stage has become slow, or normal again.
        drift: Per stage, the lasting factor on the profile's times; None: the profile fits.
        caution: The throughput guard has taken a step.
        wants_baseline: The plan gets late: a refreshed baseline should tell whether the plan is the cause.
    """

    condition: bool = False
    drift: np.ndarray | None = None
    caution: bool = False
    wants_baseline: bool = False


class PlanSelector:
    """Selects the plans.

    Args:
        config: The whole configuration.
        pipelines: Number of pipelines.
        stages: Number of stages per pipeline.

    Attributes:
        plans: The current plan of each pipeline; empty before the first plan table.
    """

    def __init__(self, config: Config, pipelines: int, stages: int) -> None:
        self._tracker = StragglerTracker(config.straggler, pipelines, stages)
        self._drift = DriftWatch(config.straggler)
        self._guard = ThroughputGuard(config.max_slowdown)
        self._follower = ObjectiveFollower(objective_from_json(config.objective.model_dump()))
        self._power = PowerFollower(config.objective.ramp_w_per_s)
        self._limits_power = bool(config.objective.power_cap_w)
        self._target: JobTarget | None = None
        self._told_s = 0.0
        self._since = 0
        self._asked_s: list[float] = []  # iteration times that plans have been asked for
        self.plans: tuple[FrequencyPlan, ...] = ()
        self._slowest: FrequencyPlan | None = None  # of these

    @property
    def slowdowns(self) -> np.ndarray:
        """The conditions in effect, array (pipelines, stages); see ``stage_condition``."""
        return self._tracker.active

    @property
    def lasted(self) -> np.ndarray:
        """The number of slow iterations of each stage before detection, array (pipelines, stages)."""
        return self._tracker.lasted

    @property
    def caution(self) -> float:
        """The guard's position between the planned (0) and the highest clock (1)."""
        return self._guard.caution

    @property
    def limits_power(self) -> bool:
        """Whether power is limited: by the current objective, or still by a ramp."""
        pursued = self._follower.objective
        limits = self._limits_power if pursued is None else isinstance(pursued, PowerCap)
        return limits or self.follows_power

    @property
    def follows_power(self) -> bool:
        """Whether the job's measured power chooses the plans, anew for every iteration."""
        return self._power.limit_w is not None

    @property
    def pursued_power(self) -> Objective | None:
        """The objective in force if it is a power of the whole job."""
        return self._follower.objective if self._follower.power_w else None

    def adopt(self, table: PlanTable, iteration: int) -> None:
        """A plan table with new expectations takes effect: measurements count from this iteration on."""
        self._since = iteration
        self._tracker.restart()
        self._drift.restart()
        self._guard.adopt(table.baseline_s / table.max_time_s)
        self._target = None
        self._asked_s = []
        self._power.restart()
        self._limit(table)

    def together_again(self, iteration: int) -> None:
        """The ranks have lost each other for a while: times before this iteration say nothing about the plans."""
        self._since = iteration
        self._drift.restart()
        self._guard.restart()
        self._power.restart()

    def announce(self, announcement: Announcement) -> None:
        """Take an announcement of a straggler; before the first plan table it waits for that table."""
        self._tracker.announce(announcement.pipeline, announcement.slowdown)

    def pursue(self, objective: Objective | None, table: PlanTable | None) -> None:
        """Take another objective; None: the configured one. It holds from the next choice on.

        Args:
            objective: The objective.
            table: The current table; None: its power is limited from the first table on.
        """
        self._follower.pursue(objective)
        self._told_s = 0.0
        if table is not None:
            self._limit(table)

    def expected(self, table: PlanTable) -> JobTarget:
        """Return time, energy and power to expect of the current objective, as measurements correct them."""
        curve, power_w = self._follower.curve(table, self.slowdowns), self._follower.power_w
        if power_w is not None:
            target = curve.fastest_within(power_w / self._power.measured_w(1.0), whole_job=True)
        else:
            target = self._asked(table)
        return replace(
            target,
            energy_j=self._power.measured_w(target.energy_j),
            power_w=self._power.measured_w(target.power_w),
        )

    def _limit(self, table: PlanTable) -> None:
        """Tell who follows the power what the objective allows."""
        now = self._target or self._follower.curve(table, self.slowdowns).points[0]
        self._power.pursue(self._follower.power_w, now.power_w)
        if self.follows_power:
            self._guard.step = 0

    def _asked(self, table: PlanTable) -> JobTarget:
        """Return the point that the objective asks for by itself."""
        if (target := self._follower.target(table, self.slowdowns)) is None:
            slowest_s = max(plan.time_s for plan in table.choose(self.slowdowns))
            target = self._follower.curve(table, self.slowdowns).at(slowest_s)
        return target

    def began(self, iteration: int, table: PlanTable) -> None:
        """An iteration with the current plans begins: its power will be measured."""
        if (target := self._target) is not None:
            fastest_s = self._follower.curve(table, self.slowdowns).points[0].time_s
            self._power.began(iteration, target, fastest=target.time_s <= fastest_s)

    def unplanned(self) -> None:
        """The next iteration has no plan: its time does not count against one."""
        self._guard.restart()

    def hear(self, round_result: RoundResult, table: PlanTable, refreshes: bool = False) -> Heard:
        """Process a round.

        Args:
            round_result: The round.
            table: The current table.
            refreshes: Whether the iteration refreshed the baseline. It tells what the default clocks take by now, and
                who is slow, but nothing about the plan.
        """
        if round_result.iteration < self._since:
            return Heard()
        condition = self._tracker.update(round_result.slowdowns, round_result.throttled, round_result.ceilings_mhz)
        if condition:
            self._told_s = 0.0
        if refreshes:
            self._guard.hear_baseline(round_result.iteration_time_s, table.max_time_s)
            return Heard(condition)
        self._power.hear(round_result)
        drift = self._drift.update(round_result.slowdowns)
        caution = False
        if (self.slowdowns != 1.0).any() or self.follows_power:
            self._guard.restart()  # a slow iteration draws less: the power's own correction minds it
        elif self._slowest is not None:
            timed_s = self._slowest.time_s, table.max_time_s, self._slowest.deviation_s
            caution = self._guard.watch(round_result.iteration_time_s, *timed_s)
        return Heard(condition, drift, caution, self._guard.wants_baseline)

    def choose(self, table: PlanTable) -> bool:
        """Look up the plan of every pipeline; return True if a change is news.

        It is not while a power is followed, when neighbouring plans alternate.
        """
        self._target = target = self._within_power(table)
        pursued = self._follower.objective is not None or self.follows_power
        plans = table.choose(self.slowdowns, target.time_s if pursued else None)
        if plans == self.plans:
            return False
        self.plans, self._slowest = plans, max(plans, key=lambda plan: plan.time_s)
        self._guard.restart()
        if self.follows_power and abs(target.time_s - self._told_s) <= _NEWS * self._told_s:
            return False
        self._told_s = target.time_s
        return True

    def missing_s(self, table: PlanTable) -> float | None:
        """Return an iteration time that the order in force would have a plan for; told once, None without any.

        Args:
            table: The current table.
        """
        if (target := self._target) is None or self._follower.objective is None or self._power.on_a_ramp:
            return None
        curve = self._follower.curve(table, self.slowdowns)
        wanted_s, near = target.time_s, _NEAR
        if (limit_w := self._power.limit_w) is not None:
            wanted_s, near = curve.time_within_s(limit_w / self._power.measured_w(1.0)), _NEAR_FOR_POWER
        if not curve.lacks(wanted_s, near) or any(abs(wanted_s - one) <= near * one for one in self._asked_s):
            return None
        self._asked_s.append(wanted_s)
        return wanted_s

    def _within_power(self, table: PlanTable) -> JobTarget:
        """Return the point that the objective asks for, or that the job's power allows."""
        curve = self._follower.curve(table, self.slowdowns)
        about_s = self._target.time_s if self._target else curve.t_min_s
        if (aim_w := self._power.aim_w(about_s)) is None:
            return self._asked(table)
        within = curve.fastest_within(aim_w, whole_job=True)
        if self._follower.power_w is not None:
            return within
        asked = self._asked(table)
        if asked.time_s < within.time_s:
            return within
        self._power.release()
        return asked
