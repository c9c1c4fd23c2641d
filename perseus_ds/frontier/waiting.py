"""What waiting costs beyond the blocking power, at the clocks that a plan waits at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perseus_ds.frontier.plan import Plan, instruction_points
from perseus_ds.frontier.problem import Problem

__all__ = ["waiting_beyond_j", "with_waiting"]


def waiting_beyond_j(problem: Problem, plan: Plan) -> float:
    """Return the energy of a plan's waiting less what blocking power makes of it.

    The solver counts every wait at one power, so that its problem stays linear. A clock is asked for so that it comes
    when its instruction begins. Until then a GPU waits at the clock of the instruction before. From the last
    instruction on it waits at the clock of the first, which the next iteration begins with.

    Args:
        problem: What is planned; its profile says how the power of waiting follows the clock.
        plan: A plan of it.
    """
    slope = problem.profile.waiting_slope_w_per_mhz
    if not slope:
        return 0.0
    clocks_mhz = plan.clocks_of(problem.dag.instructions)
    times_s = instruction_points(problem, clocks_mhz)[0]
    starts_s = problem.dag.starts_s(times_s)[: len(times_s)]
    beyond_j = 0.0
    for order in problem.dag.program_order:
        ends_s = starts_s[order] + times_s[order]
        between_s = starts_s[order][1:] - ends_s[:-1]
        around_s = plan.time_s - ends_s[-1] + starts_s[order[0]]
        beyond_mhz = clocks_mhz[order] - problem.profile.waiting_mhz
        beyond_j += slope * float(between_s @ beyond_mhz[:-1] + around_s * beyond_mhz[0])
    return problem.gpus_per_stage * beyond_j


def with_waiting(problem: Problem, plan: Plan) -> Plan:
    """Return a plan whose energy and bound include that energy."""
    waiting_j = waiting_beyond_j(problem, plan)
    return replace(plan, energy_j=plan.energy_j + waiting_j, lower_bound_j=plan.lower_bound_j + waiting_j)
