"""What waiting costs beyond the blocking power, at the clocks that a plan waits at, and where it pays to rest."""

from __future__ import annotations

from dataclasses import replace

from perseus_ds.frontier.plan import Plan, instruction_points
from perseus_ds.frontier.problem import Problem
from perseus_ds.profiling.table import Profile

__all__ = ["rest_clock_mhz", "rests_until_s", "waiting_beyond_j", "with_waiting"]

_LEAST_W = 5.0  # that a rest at the lowest clock saves
_UNCERTAIN = 0.1  # of a wait: it may be that much shorter than the last ones
_LEAST_LATENCIES = 2.0  # of a rest
_LEAST_AHEAD_S = 0.020  # short instructions hardly tell latencies, and most GPUs take 5 to 20 ms
_LATE = 0.002  # of an iteration: a rest whose clocks come later on average costs more than it saves


def rest_clock_mhz(profile: Profile, iteration_s: float) -> int:
    """Return the clock to rest at: the lowest one profiled.

    A clock from the tail of the latencies ends a rest too late, and the first instruction begins at a low clock.

    Args:
        profile: What is known of the GPUs.
        iteration_s: Time of the fastest iteration.

    Returns:
        The clock in MHz; 0 where waiting costs as much at every clock, or where clocks come too late too often.
    """
    clocks_mhz = {point.frequency_mhz for curve in profile.curves.values() for point in curve}
    lowest_mhz, highest_mhz = min(clocks_mhz), max(clocks_mhz)
    saves_w = profile.waiting_slope_w_per_mhz * (highest_mhz - lowest_mhz)
    late_s = profile.switch_tail_share * profile.switch_tail_s * (1.0 - lowest_mhz / highest_mhz)
    return lowest_mhz if saves_w >= _LEAST_W and late_s <= _LATE * iteration_s else 0


def rests_until_s(wait_s: float, latency_s: float) -> float:
    """Return when a GPU that rests asks for its next clock, so that the clock comes well ahead of its instruction.

    Args:
        wait_s: How long the GPU waits.
        latency_s: From a request to a clock.

    Returns:
        Seconds from the wait's begin; 0 where the wait is too short for a rest.
    """
    until_s = (1.0 - _UNCERTAIN) * wait_s - max(2.0 * latency_s, _LEAST_AHEAD_S)
    return until_s if until_s > _LEAST_LATENCIES * latency_s else 0.0


def waiting_beyond_j(problem: Problem, plan: Plan, rest_mhz: int = 0) -> float:
    """Return the energy of a plan's waiting less what blocking power makes of it.

    The solver counts every wait at one power, so that its problem stays linear. A clock is asked for so that it comes
    when its instruction begins. Until then a GPU waits at the clock of the instruction before. From the last
    instruction on it waits at the clock of the first, which the next iteration begins with. In a long wait before the
    first instruction it may rest.

    Args:
        problem: What is planned; its profile says how the power of waiting follows the clock.
        plan: A plan of it.
        rest_mhz: The clock to rest at; 0: no rest.
    """
    profile = problem.profile
    slope = profile.waiting_slope_w_per_mhz
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
        beyond_mhz = clocks_mhz[order] - profile.waiting_mhz
        beyond_j += slope * float(between_s @ beyond_mhz[:-1] + around_s * beyond_mhz[0])
        if rest_mhz:
            first_mhz = int(clocks_mhz[order[0]])
            rested_s = rests_until_s(float(starts_s[order[0]]), _latency_s(profile, first_mhz, rest_mhz))
            beyond_j -= slope * rested_s * (first_mhz - rest_mhz)
    return problem.gpus_per_stage * beyond_j


def _latency_s(profile: Profile, *clocks_mhz: int) -> float:
    """Return the longest time that one of some clocks takes to come, as far as it is known."""
    return max(profile.switch_latency_s.get(mhz, 0.0) for mhz in clocks_mhz)


def with_waiting(problem: Problem, plan: Plan, rest_mhz: int = 0) -> Plan:
    """Return a plan whose energy and bound include that energy."""
    waiting_j = waiting_beyond_j(problem, plan, rest_mhz)
    return replace(plan, energy_j=plan.energy_j + waiting_j, lower_bound_j=plan.lower_bound_j + waiting_j)
