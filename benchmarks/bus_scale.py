"""The control bus and the coordinator at 10,240 ranks, in one process.

Every pipeline's floats are condensed, put together and reacted on by the very code that runs in a job; only the
wire is counted instead of used. Messages and bytes follow gloo's algorithms: a gather sends one message per
member to the first, an all-gather is a ring, a broadcast a binomial tree. CPU time is this process's.

    python benchmarks/bus_scale.py
"""

from __future__ import annotations

import math
import pickle
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from perseus_ds.config import Config
from perseus_ds.coordination.derived_profiles import slowed_profile
from perseus_ds.coordination.plan_selector import PlanSelector
from perseus_ds.coordination.plan_table import FrequencyPlan, PipelineGroup, PlanSet, PlanTable, StragglerPlans
from perseus_ds.coordination.rounds import RankStatus, RoundResult, condense, condensed_width
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers, times_along
from perseus_ds.frontier import Frontier, Problem, solve
from perseus_ds.frontier.switching import SwitchCost
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, Profile, read_profile

STAGES, TENSOR, MICROBATCHES, POINTS = 8, 8, 32, 24
FLOAT_BYTES = 8
ROUNDS = 300
PROFILE = Path(__file__).parents[1] / "perseus_ds/simulator/profiles/gpt3-175b-a100-sxm.csv"


@dataclass(frozen=True)
class Traffic:
    """What one rank sends in one iteration."""

    messages: int
    bytes: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.bytes + other.bytes)


def gather(members: int, size: int, first: bool) -> Traffic:
    return Traffic(0, 0) if first or members == 1 else Traffic(1, size)


def ring_all_gather(members: int, size: int) -> Traffic:
    return Traffic(members - 1, (members - 1) * size)


def tree_broadcast(members: int, size: int) -> Traffic:
    """Of the first member, which sends most."""
    steps = math.ceil(math.log2(members)) if members > 1 else 0
    return Traffic(steps, steps * size)


def round_traffic(pipelines: int, members: int, stages: int, leader: bool) -> Traffic:
    """Return what a rank sends in a round: a gather, an all-gather of leaders, a broadcast."""
    own = len(RankStatus(0).row()) * FLOAT_BYTES
    row = condensed_width(stages) * FLOAT_BYTES
    if not leader:  # the busiest follower passes the broadcast on one step less than the leader
        down = tree_broadcast(members, pipelines * row)
        steps = max(down.messages - 1, 0)
        return gather(members, own, first=False) + Traffic(steps, steps * pipelines * row)
    return ring_all_gather(pipelines, row) + tree_broadcast(members, pipelines * row)


def plan_point(plan) -> FrequencyPlan:
    clocks: list[dict[tuple[Kind, int, int], int]] = [{} for _ in range(STAGES)]
    for one, mhz in plan.frequency_mhz.items():
        clocks[one.stage][one.kind, one.microbatch, one.chunk] = mhz
    return FrequencyPlan(plan.time_s, plan.energy_j, plan.lower_bound_j, tuple(clocks), plan.switches)


def route_of(frontier: Frontier, condition: tuple[float, ...]) -> PlanSet:
    times_s = np.linspace(frontier.t_min_s, frontier.t_star_s, POINTS)
    points = tuple(plan_point(frontier.plan(t_s)) for t_s in times_s)
    return PlanSet(condition, frontier.t_min_s, frontier.t_star_s, frontier.t_min_s, points)


def make_book() -> tuple[SolvedFrontiers, PlanTable, StragglerPlans]:
    """Return a real plan table, what the ranks round for it, and the addition for one straggler."""
    shipped = read_profile(PROFILE)
    stages = sorted({key.stage for key in shipped.curves})
    profile = Profile(
        {
            CurveKey(stage, kind, 0): shipped.curve(CurveKey(stages[stage % len(stages)], kind, 0))
            for stage in range(STAGES)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
        },
        shipped.source,
    )
    dag = schedule_dag("1f1b", STAGES, MICROBATCHES)
    problem = Problem(dag, profile, 83.64, TENSOR)
    fastest_s = np.array([profile.curve(CurveKey.of(one))[0].time_s for one in dag.instructions])
    frontier = solve(problem)
    expected_s = {(key, point.frequency_mhz): point.time_s for key, row in profile.curves.items() for point in row}
    base = route_of(frontier, (1.0,) * STAGES)
    group = PipelineGroup(dag, fastest_s, base, 1.0, base.t_min_s, 83.64 * STAGES * TENSOR, expected_s)
    table = PlanTable(1, MICROBATCHES, base.t_min_s, (group,), ())
    condition = (1.0, 1.3, *(1.0,) * (STAGES - 2))
    slow = slowed_profile(profile, np.array(condition), problem.stage_power_w)
    healthy = (0, base.slowdowns)
    times_s = (frontier.t_min_s, *times_along(frontier, base.slowdowns))
    draft = SolvedFrontiers({healthy: frontier}, {healthy: times_s}, SwitchCost(), spares_switches=False)
    return (
        draft,
        table,
        StragglerPlans(2, {(0, condition): route_of(solve(Problem(dag, slow, 83.64, TENSOR)), condition)}),
    )


def rounding_s(draft: SolvedFrontiers) -> dict[int, float]:
    """Return the CPU seconds of the busiest rank, by the number of ranks that round."""
    draft.discretize_shard(0, POINTS)  # loads the kernels
    each_s = []
    for number in range(POINTS + 1):
        begin_s = time.thread_time()
        draft.discretize_shard(number, POINTS + 1)
        each_s.append(time.thread_time() - begin_s)
    return {ranks: max(sum(each_s[place::ranks]) for place in range(ranks)) for ranks in (1, 4, 16, 64)}


def signals(random: np.random.Generator, ranks: int, iteration: int) -> np.ndarray:
    """Return the floats of a pipeline's ranks, shape (ranks, fields)."""
    slowdowns = 1.0 + 0.01 * random.standard_normal(ranks)
    return np.array([RankStatus(iteration, 1.0, 500.0, 1.0, 1.0, slowdown=one).row() for one in slowdowns])


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one iteration: the median, and the one in which a straggler is answered."""

    leader_s: float
    rank_s: float
    answer_s: float


def measure(pipelines: int, table: PlanTable, straggler_plans: StragglerPlans) -> Cost:
    """Run the rounds of a job in which one stage becomes slow half-way."""
    random = np.random.default_rng(0)
    ranks = STAGES * TENSOR
    reaction = PlanSelector(Config(run_dir=Path("unused")), pipelines, STAGES)
    table = replace(table, group_of=(0,) * pipelines)
    reaction.adopt(table, 0)
    reaction.choose(table)
    rows = np.array([condense(signals(random, ranks, 1), STAGES) for _ in range(pipelines)])
    leader_s, rank_s, answer_s = [], [], []
    slowdowns = RoundResult(rows, STAGES).slowdowns  # a view
    for number in range(ROUNDS):
        own = signals(random, ranks, number)
        begin_s = time.thread_time()
        rows[0] = condense(own, STAGES)
        condensed_s = time.thread_time() - begin_s
        slowdowns[:] = 1.0 + 0.01 * random.standard_normal((pipelines, STAGES))
        slowdowns[-1, 1] = 1.3 if number >= ROUNDS // 2 else 1.0
        rows[:, 0] = number
        begin_s = time.thread_time()
        heard = reaction.hear(RoundResult(rows, STAGES), table)
        if heard.condition:
            table.missing(reaction.slowdowns)
            table = table.with_straggler_plans(straggler_plans)
            reaction.choose(table)
        seconds = time.thread_time() - begin_s
        (answer_s if heard.condition else rank_s).append(seconds)
        leader_s.append(condensed_s)
    return Cost(float(np.median(leader_s)), float(np.median(rank_s)), max(answer_s))


def main() -> None:
    draft, table, straggler_plans = make_book()
    sizes = [len(zlib.compress(pickle.dumps(sent), 1)) for sent in (table, straggler_plans, draft)]
    shown = Table(title=f"Bus and coordinator, PP {STAGES} x TP {TENSOR} x DP; one iteration", title_justify="left")
    for heading in (
        "ranks",
        "DP",
        "leader msgs",
        "leader kB",
        "rank msgs",
        "rank kB",
        "CPU ms/iter",
        "ms per 100 pipelines",
        "straggler answered, ms",
    ):
        shown.add_column(heading, justify="right")
    members = STAGES * TENSOR
    for pipelines in (1, 4, 16, 64, 160):
        leader = round_traffic(pipelines, members, STAGES, leader=True)
        rank = round_traffic(pipelines, members, STAGES, leader=False)
        cost = measure(pipelines, table, straggler_plans)
        total_s = cost.leader_s + cost.rank_s
        shown.add_row(
            f"{pipelines * members:,}",
            str(pipelines),
            str(leader.messages),
            f"{leader.bytes / 1e3:.1f}",
            str(rank.messages),
            f"{rank.bytes / 1e3:.1f}",
            f"{1e3 * total_s:.3f}",
            f"{1e5 * total_s / pipelines:.3f}",
            f"{1e3 * cost.answer_s:.2f}",
        )
    console = Console(width=120)
    console.print(shown)
    group = table.groups[0]
    console.print(
        f"Sent once: plan table of {len(group.base.points)} plans x {len(group.dag.instructions)} instructions "
        f"{sizes[0] / 1e3:.0f} kB; a straggler's own plans {sizes[1] / 1e3:.0f} kB; "
        f"frontiers to round {sizes[2] / 1e3:.0f} kB. Messages and bytes are counted, not sent; CPU time is measured."
    )
    shared = ", ".join(f"{seconds:.2f} s of {ranks}" for ranks, seconds in rounding_s(draft).items())
    console.print(f"CPU time of the busiest rank when the rounding is shared out: {shared} ranks.")


if __name__ == "__main__":
    main()
