"""Random moves of clocks that come late, judged by draws that the search has not seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.frontier import Problem
from perseus_ds.frontier.late_moves import Terms, expected_cost
from perseus_ds.frontier.late_runs import no_blame
from perseus_ds.frontier.late_search import searched
from perseus_ds.frontier.lateness import Neighbours, drawn, neighbours_of
from perseus_ds.frontier.observed import at_highest
from perseus_ds.pipeline.schedules import schedule_dag

JITTER_S = 0.01


@pytest.fixture(scope="module")
def late(gpt3: Problem) -> Problem:
    """Four stages; clocks come after 20 to 200 ms, and a few far later."""
    clocks_mhz = sorted({point.frequency_mhz for curve in gpt3.profile.curves.values() for point in curve})
    latencies_s = np.random.default_rng(3).uniform(0.02, 0.2, len(clocks_mhz))
    tail = {"switch_tail_share": 0.05, "switch_tail_s": 0.15}
    profile = replace(gpt3.profile, switch_latency_s=dict(zip(clocks_mhz, latencies_s, strict=True)), **tail)
    return Problem(schedule_dag("1f1b", 4, 6), profile, 83.64)


@pytest.fixture(scope="module")
def nodes(late: Problem) -> Neighbours:
    return neighbours_of(late)


def highest(problem: Problem, nodes: Neighbours) -> np.ndarray:
    return np.searchsorted(nodes.clocks_mhz, at_highest(problem).clocks_of(problem.dag.instructions))


def terms(problem: Problem, slower: float) -> Terms:
    return Terms(slower * at_highest(problem).time_s, 0.4 * JITTER_S, 4 * 83.64, 50_000.0)


@pytest.mark.parametrize("slower", [1.005, 1.05])
def test_what_it_finds_is_cheaper_and_on_time_in_other_draws_too(late, nodes, slower):
    clock, keeps = highest(late, nodes), terms(late, slower)
    found = searched(late, nodes, clock, drawn(late, JITTER_S, 512, seed=1), JITTER_S, keeps)
    others = drawn(late, JITTER_S, 512, seed=9)
    before_j, _ = expected_cost(nodes, clock, others, keeps, no_blame(clock.size))
    after_j, after_s = expected_cost(nodes, found, others, keeps, no_blame(clock.size))
    assert after_j < (0.99 if slower < 1.01 else 0.9) * before_j
    assert after_s < 1.002 * keeps.limit_s


def test_it_asks_for_useful_clocks_only_and_for_the_same_ones_again(late, nodes):
    clock, keeps, draws = highest(late, nodes), terms(late, 1.02), drawn(late, JITTER_S, 32, seed=1)
    found = searched(late, nodes, clock, draws, JITTER_S, keeps)
    assert nodes.allowed[nodes.row, found].all()
    assert (found == searched(late, nodes, clock, draws, JITTER_S, keeps)).all()
    assert (clock == highest(late, nodes)).all(), "it begins with them, and leaves them as they are"


def test_large_pipelines_are_not_searched(gpt3):
    large = replace(gpt3, dag=schedule_dag("1f1b", 8, 24))
    nodes, draws = neighbours_of(large), drawn(large, JITTER_S, 32, seed=1)
    assert searched(large, nodes, highest(large, nodes), draws, JITTER_S, terms(large, 1.02)) is None
