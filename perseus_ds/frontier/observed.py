"""The problem that an observed iteration and a measured profile pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from perseus_ds.frontier.baselines import max_frequencies
from perseus_ds.frontier.lateness import evaluate_late
from perseus_ds.frontier.plan import Plan, evaluate
from perseus_ds.frontier.problem import Problem
from perseus_ds.frontier.rested import with_rests
from perseus_ds.frontier.uneven import Uneven, sizes_seen
from perseus_ds.pipeline.observed import dag_from_traces, tail_s, with_tail
from perseus_ds.pipeline.trace import StageTrace
from perseus_ds.profiling.table import Profile

__all__ = ["at_highest", "observed_problem", "with_sizes"]


def at_highest(problem: Problem) -> Plan:
    """Return the plan of every instruction at its curve's highest clock."""
    return evaluate(problem, max_frequencies(problem))


def observed_problem(
    traces: Sequence[StageTrace], profile: Profile, blocking_power_w: float | Sequence[float], gpus_per_stage: int
) -> Problem:
    """Return the problem of an iteration that ran at the highest clocks, which no prediction undercuts.

    Instructions may have taken longer there than their curves tell: the host's other work disturbs them. A tail makes
    up for it. Where micro-batches differ, a part of the tail is due to that.

    Args:
        traces: One per stage, of the same iteration.
        profile: The stages' curves.
        blocking_power_w: See ``Problem``.
        gpus_per_stage: See ``Problem``.

    Raises:
        PerseusError: A send has no receive, or a receive no send, or a value is not allowed.
    """
    problem = with_rests(Problem(dag_from_traces(traces), profile, blocking_power_w, gpus_per_stage), traces)
    missing_s = median(trace.iteration_time_s for trace in traces) - at_highest(problem).time_s
    if missing_s > 0:
        problem = replace(problem, dag=with_tail(problem.dag, missing_s))
    sizes = sizes_seen(traces, problem.keys)
    return problem if sizes is None else with_sizes(problem, sizes)


def with_sizes(problem: Problem, sizes: NDArray[np.float64]) -> Problem:
    """Return the problem of micro-batches that differ: what its DAG's tail holds of that is told apart.

    Args:
        problem: What is planned.
        sizes: See ``Uneven``.
    """
    highest = at_highest(problem)
    uneven = replace(problem, uneven=Uneven(sizes))
    clocks_mhz = highest.clocks_of(problem.dag.instructions)
    added_s = evaluate_late(uneven, clocks_mhz, 0.0).time_s - highest.time_s
    return replace(problem, uneven=Uneven(sizes, min(max(added_s, 0.0), tail_s(problem.dag))))
