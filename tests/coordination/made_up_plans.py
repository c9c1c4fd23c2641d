"""Plans of a made-up pipeline of two stages, solved once per condition."""

from functools import cache

import numpy as np

from perseus_ds.coordination.derived_profiles import slowed_profile
from perseus_ds.coordination.plan_table import FrequencyPlan, PipelineGroup, PlanSet, PlanTable
from perseus_ds.frontier import Problem, solve
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint

STAGES, MICROBATCHES = 2, 3
CLOCKS_MHZ = (1400, 1200, 1000, 800)

DAG = schedule_dag("1f1b", STAGES, MICROBATCHES)
PROFILE = Profile(
    {
        CurveKey(stage, kind, 0): tuple(
            # Work at a clock f takes 1/f and draws 60 W + f^3; the second stage has more of it.
            ProfilePoint(mhz, work * 1400 / mhz, work * 1400 / mhz * (60.0 + 300.0 * (mhz / 1400) ** 3))
            for mhz in CLOCKS_MHZ
        )
        for kind, share in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, 2.0))
        for stage, work in enumerate((0.08 * share, 0.1 * share))
    },
    "made up",
)
STAGE_OF = np.array([one.stage for one in DAG.instructions])
FASTEST_S = np.array([PROFILE.curve(CurveKey.of(one))[0].time_s for one in DAG.instructions])


@cache
def route_of(condition: tuple[float, ...]) -> PlanSet:
    profile = slowed_profile(PROFILE, np.array(condition), np.full(STAGES, 60.0))
    frontier = solve(Problem(DAG, profile, 60.0))
    points = []
    for t_s in np.linspace(frontier.t_min_s, frontier.t_star_s, 5):
        plan = frontier.plan(t_s)
        clocks = [{}, {}]
        for one, mhz in plan.frequency_mhz.items():
            clocks[one.stage][one.operation] = mhz
        points.append(FrequencyPlan(plan.time_s, plan.energy_j, plan.lower_bound_j, tuple(clocks), plan.switches))
    return PlanSet(condition, frontier.t_min_s, frontier.t_star_s, frontier.t_min_s, tuple(points))


def first_table(pipelines: int) -> PlanTable:
    base = route_of((1.0,) * STAGES)
    expected_s = {
        (key, point.frequency_mhz): point.time_s for key, points in PROFILE.curves.items() for point in points
    }
    group = PipelineGroup(DAG, FASTEST_S, base, 1000.0, base.t_min_s, 60.0 * STAGES, expected_s)
    return PlanTable(1, MICROBATCHES, base.t_min_s, (group,), (0,) * pipelines)
