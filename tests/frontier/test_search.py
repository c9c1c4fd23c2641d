"""Filling slack, and random search in windows."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.ordered import Ordered, chosen_times, heads, longest, order_nodes, tails, total_j
from perseus_ds.frontier.search import fill, search
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture
def nodes() -> Ordered:
    dag = schedule_dag("1f1b", 4, 20)
    problem = Problem(dag, same_everywhere(4, convex_points(12)), 75.0)
    return order_nodes(problem, np.full(len(dag.instructions), 0.05))[0]


def through_s(nodes: Ordered, choice: np.ndarray) -> np.ndarray:
    """The longest way through each node."""
    times = chosen_times(nodes, choice, np.zeros(choice.size))
    starts, rest = np.zeros(choice.size), np.zeros(choice.size)
    heads(nodes, 0, choice.size, times, starts)
    tails(nodes, 0, choice.size, times, rest)
    assert longest(0, choice.size, times, starts, rest) == (starts + times + rest).max()
    return starts + times + rest


@pytest.mark.parametrize("slowdown", [1.0, 1.1, 1.5])
def test_after_filling_nothing_can_be_slower(nodes: Ordered, slowdown: float) -> None:
    choice = nodes.first.copy()
    limit_s = slowdown * float(through_s(nodes, choice).max()) * (1 + 1e-12)
    before_j = total_j(nodes, choice)
    fill(nodes, choice, np.zeros(choice.size), limit_s)
    through = through_s(nodes, choice)
    assert through.max() <= limit_s
    assert total_j(nodes, choice) < before_j
    slower = np.minimum(choice + 1, nodes.end - 1)
    longer_s = through + nodes.option_s[slower] - nodes.option_s[choice]
    assert ((longer_s > limit_s) | (slower == choice)).all()


def test_searching_keeps_the_limit_and_finds_better(nodes: Ordered) -> None:
    choice = nodes.first.copy()
    limit_s = 1.1 * float(through_s(nodes, choice).max())
    fill(nodes, choice, np.zeros(choice.size), limit_s)
    filled_j = total_j(nodes, choice)
    search(nodes, choice, np.zeros(choice.size), limit_s, 0.02, 2000)
    assert through_s(nodes, choice).max() <= limit_s * (1 + 1e-12)
    assert total_j(nodes, choice) < 0.998 * filled_j


def test_searching_again_finds_the_same(nodes: Ordered) -> None:
    limit_s = 1.1 * float(through_s(nodes, nodes.first).max())
    found = []
    for _ in range(2):
        choice = nodes.first.copy()
        search(nodes, choice, np.zeros(choice.size), limit_s, 0.02, 500)
        found.append(choice.tolist())
    assert found[0] == found[1]


def test_a_cold_search_never_gets_worse(nodes: Ordered) -> None:
    choice = nodes.first.copy()
    limit_s = 1.2 * float(through_s(nodes, choice).max())
    fill(nodes, choice, np.zeros(choice.size), limit_s)
    energies = [total_j(nodes, choice)]
    for trials in (100, 400, 1600):
        search(nodes, choice, np.zeros(choice.size), limit_s, 0.0, trials)
        energies.append(total_j(nodes, choice))
    assert energies == sorted(energies, reverse=True)
