"""Choosing whole chains while all others stand still."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from made_up import convex_points, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.chains import Pricing, choose_chains
from perseus_ds.frontier.ordered import Ordered, chosen_times, heads, order_nodes, total_j
from perseus_ds.pipeline.csr import Csr, grouped
from perseus_ds.pipeline.schedules import schedule_dag


def pipeline(stages: int, microbatches: int, points: int) -> tuple[Ordered, Csr]:
    """The nodes, and each stage's chain."""
    dag = schedule_dag("1f1b", stages, microbatches)
    nodes, rank = order_nodes(
        Problem(dag, same_everywhere(stages, convex_points(points)), 75.0), np.full(len(dag.instructions), 0.05)
    )
    order = np.argsort(rank)
    stage = np.array([dag.instructions[node].stage for node in order])
    return nodes, grouped(stage, np.arange(order.size), stages)


def makespan_s(nodes: Ordered, choice: np.ndarray) -> float:
    times, starts = chosen_times(nodes, choice, np.zeros(choice.size)), np.zeros(choice.size)
    heads(nodes, 0, choice.size, times, starts)
    return float((starts + times).max())


def free(nodes: Ordered) -> Pricing:
    return Pricing(np.zeros(nodes.first.size), 0.0, 100.0)


@pytest.mark.parametrize("slowdown", [1.011, 1.061, 1.201, 1.351, 2.0])
@pytest.mark.parametrize(("stages", "microbatches", "stage"), [(2, 3, 1), (3, 2, 0), (3, 2, 2)])
def test_a_stage_s_chain_gets_its_best_options(stages: int, microbatches: int, stage: int, slowdown: float) -> None:
    nodes, chains = pipeline(stages, microbatches, 3)
    choice, limit_s = nodes.first.copy(), slowdown * makespan_s(nodes, nodes.first)
    chain = chains.members[chains.indptr[stage] : chains.indptr[stage + 1]]
    best_j = fastest_j = total_j(nodes, choice)
    for options in product(range(3), repeat=chain.size):
        other = choice.copy()
        other[chain] += options
        if makespan_s(nodes, other) <= limit_s:
            best_j = min(best_j, total_j(nodes, other))
    times = chosen_times(nodes, choice, np.zeros(choice.size))
    changed = choose_chains(nodes, chains, np.array([stage]), free(nodes), choice, times, limit_s, False)
    assert changed == (best_j < fastest_j)
    assert total_j(nodes, choice) == pytest.approx(best_j, rel=1e-3)  # labels have bins of time
    assert makespan_s(nodes, choice) <= limit_s
    assert times.tolist() == chosen_times(nodes, choice, np.zeros(choice.size)).tolist()
    untouched = np.setdiff1d(np.arange(choice.size), chain)
    assert (choice[untouched] == nodes.first[untouched]).all()


def test_what_saves_nothing_is_left_alone() -> None:
    nodes, chains = pipeline(3, 6, 8)
    choice, limit_s = nodes.first.copy(), 1.2 * makespan_s(nodes, nodes.first)
    times, order = chosen_times(nodes, choice, np.zeros(choice.size)), np.arange(3)
    while choose_chains(nodes, chains, order, free(nodes), choice, times, limit_s, False):
        pass
    before = choice.copy()
    assert choose_chains(nodes, chains, order, free(nodes), choice, times, limit_s, False) == 0
    assert (choice == before).all()
    assert makespan_s(nodes, choice) <= limit_s


def test_replacing_takes_what_is_found_or_says_that_the_limit_does_not_hold() -> None:
    nodes, chains = pipeline(3, 6, 8)
    slowest = nodes.end - 1
    least_s = makespan_s(nodes, nodes.first)
    choice, times = slowest.copy(), chosen_times(nodes, slowest, np.zeros(slowest.size))
    limit_s = makespan_s(nodes, slowest)
    dear = Pricing(np.full(slowest.size, 1e4), 1.0, 1e6)
    assert choose_chains(nodes, chains, np.arange(3), dear, choice, times, limit_s, True) == 3
    assert (choice == nodes.first).all()  # time costs more than any option saves
    choice, times = slowest.copy(), chosen_times(nodes, slowest, np.zeros(slowest.size))
    kept = choose_chains(nodes, chains, np.arange(3), free(nodes), choice, times, 1.02 * least_s, True)
    assert kept == 3
    assert makespan_s(nodes, choice) > 1.02 * least_s  # stages whose turn came first had no room for the others


def test_a_chain_without_members_is_passed_over() -> None:
    nodes, chains = pipeline(2, 3, 3)
    with_empty = Csr(np.array([0, 0, *chains.indptr[1:]]), chains.members)
    choice = nodes.first.copy()
    times = chosen_times(nodes, choice, np.zeros(choice.size))
    limit_s = 1.3 * makespan_s(nodes, choice)
    assert choose_chains(nodes, with_empty, np.arange(2), free(nodes), choice, times, limit_s, False) == 1
