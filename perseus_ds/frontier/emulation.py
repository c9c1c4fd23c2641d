"""The paper's large-scale study: many pipelines, some of them stragglers (Perseus, SOSP '24, section 6.3).

Every pipeline runs the same plan. A straggler takes ``slowdown`` times as long and uses ``slowdown`` times the
energy. All pipelines wait for the slowest, at blocking power.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perseus_ds.frontier.baselines import BASELINES, baseline_plans, max_frequencies
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.solver import Frontier

__all__ = ["Emulation", "emulate", "job_energy_j"]


@dataclass(frozen=True)
class Emulation:
    """Savings of one job, as fractions of the energy with every instruction at its highest frequency.

    Attributes:
        saving_intrinsic: Without stragglers, at the frontier's fastest iteration time.
        saving_total: With the stragglers.
        t_opt_s: Planned iteration time of the other pipelines.
        t_straggler_s: Iteration time of the slowest pipeline.
        baseline_j: Energy of the whole job's iteration with stragglers, highest frequencies.
        planned_j: The same with Perseus.
        planners: ``saving_intrinsic`` and ``saving_total`` of each other planner, without a response to stragglers.
    """

    saving_intrinsic: float
    saving_total: float
    t_opt_s: float
    t_straggler_s: float
    baseline_j: float
    planned_j: float
    planners: dict[str, dict[str, float]]


def emulate(
    frontier: Frontier,
    pipelines: int,
    slowdowns: Sequence[float],
    plan_at: Callable[[float], Plan] | None = None,
) -> Emulation:
    """Compute the savings of a job.

    Args:
        frontier: One pipeline's.
        pipelines: Number of parallel pipelines, including stragglers.
        slowdowns: Of each straggler, 1 or more, at most ``pipelines`` of them.
        plan_at: Makes the plan for an iteration time; default: ``frontier.plan``.
    """
    plan_at = plan_at or frontier.plan
    problem = frontier.problem
    fastest = frontier.t_min_s
    straggler_s = fastest * max(slowdowns, default=1.0)
    t_opt_s = frontier.clamp(straggler_s)
    highest = evaluate(problem, max_frequencies(problem))
    own, others = plan_at(fastest), plan_at(t_opt_s)

    def savings(own: Plan, others: Plan) -> dict[str, float]:
        base_j = job_energy_j(frontier, highest, highest, pipelines, slowdowns, straggler_s)
        planned_j = job_energy_j(frontier, own, others, pipelines, slowdowns, straggler_s)
        alone_j = job_energy_j(frontier, highest, highest, 1, (), fastest)
        return {
            "saving_intrinsic": 1 - job_energy_j(frontier, own, own, 1, (), fastest) / alone_j,
            "saving_total": 1 - planned_j / base_j,
        }

    perseus = savings(own, others)
    planners = {}
    for planner in BASELINES:
        plan = baseline_plans(problem, planner)[0]
        planners[planner] = savings(plan, plan)
    return Emulation(
        perseus["saving_intrinsic"],
        perseus["saving_total"],
        t_opt_s,
        straggler_s,
        job_energy_j(frontier, highest, highest, pipelines, slowdowns, straggler_s),
        job_energy_j(frontier, own, others, pipelines, slowdowns, straggler_s),
        planners,
    )


def job_energy_j(
    frontier: Frontier, own: Plan, others: Plan, pipelines: int, slowdowns: Sequence[float], end_s: float
) -> float:
    """Return the energy of all pipelines until the slowest has ended.

    Args:
        frontier: One pipeline's.
        own: Plan of the stragglers, stretched.
        others: Plan of all other pipelines.
        pipelines: Number of pipelines.
        slowdowns: Of each straggler.
        end_s: End of the slowest pipeline.
    """
    waiting_w = frontier.problem.energy_j(0.0, 1.0)

    def until_end(energy_j: float, time_s: float) -> float:
        return energy_j + waiting_w * max(0.0, end_s - time_s)

    slow_j = sum(until_end(factor * own.energy_j, factor * own.time_s) for factor in slowdowns)
    return slow_j + (pipelines - len(slowdowns)) * until_end(others.energy_j, others.time_s)
