"""Nodes by start time, forwards and backwards."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.ordered import chosen_times, heads, longest, order_nodes, tails, total_j
from perseus_ds.pipeline.dag import Constant, PipelineDag
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture
def problem() -> Problem:
    dag = schedule_dag("1f1b", 3, 4)
    last = len(dag.instructions) - 1
    with_tail = PipelineDag(dag.instructions, (Constant("tail", 0.5),), np.vstack((dag.edges, [(last, last + 1)])))
    return Problem(with_tail, same_everywhere(3, convex_points(5)), 75.0)


def test_every_node_comes_after_what_it_waits_for(problem: Problem) -> None:
    nodes, rank = order_nodes(problem, np.full(24, 0.1))
    assert sorted(rank.tolist()) == list(range(25))
    for a, b in problem.dag.edges.tolist():
        assert rank[a] < rank[b]
    starts_s = problem.dag.starts_s(np.full(24, 0.1))
    assert (np.diff(starts_s[np.argsort(rank)]) >= 0).all()
    for node in range(24):
        options = problem.options[problem.curve_of[node]]
        mine = slice(nodes.first[rank[node]], nodes.end[rank[node]])
        assert nodes.option_s[mine].tolist() == options.time_s.tolist()
        assert nodes.option_j[mine].tolist() == options.effective_j.tolist()
    assert nodes.first[rank[24]] == nodes.end[rank[24]] == -1


def test_starts_and_rests_are_the_longest_paths(problem: Problem) -> None:
    random = np.random.default_rng(1)
    durations_s = random.uniform(0.05, 0.1, 24)
    nodes, rank = order_nodes(problem, durations_s)
    times, starts, rest = (np.zeros(25) for _ in range(3))
    times[rank] = problem.dag.node_times_s(durations_s)
    heads(nodes, 0, 25, times, starts)
    tails(nodes, 0, 25, times, rest)
    assert starts[rank].tolist() == problem.dag.starts_s(durations_s).tolist()
    assert longest(0, 25, times, starts, rest) == pytest.approx(problem.dag.makespan(durations_s))
    critical = rank[problem.dag.critical_path(durations_s)]
    through = starts + times + rest
    assert through[critical] == pytest.approx(problem.dag.makespan(durations_s))
    assert longest(3, 4, times, starts, rest) == through[3]

    backwards = nodes.reversed()
    heads(backwards, 0, 25, times[::-1].copy(), starts)
    assert starts[::-1] == pytest.approx(rest)


def test_time_runs_backwards_twice_is_time_runs_forwards(problem: Problem) -> None:
    nodes, _ = order_nodes(problem, np.full(24, 0.1))
    again = nodes.reversed().reversed()
    for group in ("predecessors", "successors"):
        before, after = getattr(nodes, group), getattr(again, group)
        assert before.indptr.tolist() == after.indptr.tolist()
        for node in range(25):
            mine = slice(before.indptr[node], before.indptr[node + 1])
            assert sorted(before.members[mine]) == sorted(after.members[mine])
    assert nodes.first.tolist() == again.first.tolist()


def test_constants_keep_their_time_and_cost_nothing(problem: Problem) -> None:
    nodes, rank = order_nodes(problem, np.full(24, 0.1))
    choice = nodes.first.copy()
    chosen = chosen_times(nodes, choice, np.full(25, 0.5))
    assert chosen[rank[24]] == 0.5
    assert chosen[rank[:24]] == pytest.approx(0.05)
    assert total_j(nodes, choice) == pytest.approx(24 * (22 - 75 * 0.05))
