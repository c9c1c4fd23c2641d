"""The options of one chain, beside all that there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from made_up import convex_points, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.labels import WAYS, Chain, best_options
from perseus_ds.frontier.ordered import Ordered, order_nodes
from perseus_ds.pipeline.schedules import schedule_dag

SIZE = 4
FASTEST_S = convex_points(1)[0].time_s


@pytest.fixture
def nodes() -> Ordered:
    problem = Problem(schedule_dag("1f1b", 1, SIZE // 2), same_everywhere(1, convex_points(4)), 0.0)
    return order_nodes(problem, np.full(SIZE, 0.05))[0]


def chain(latest_s: list[float], ready_s: list[float] | None = None, **ways: float) -> Chain:
    """A chain whose instructions follow each other, and may wait for a longer way: ``from0to2=0.3``.

    Each must end early enough for those after it at their fastest.
    """
    sources, way_s = np.full((SIZE, WAYS), -1, dtype=np.int64), np.zeros((SIZE, WAYS))
    sources[1:, 0] = np.arange(SIZE - 1)
    for name, seconds in ways.items():
        source, target = (int(part) for part in name.removeprefix("from").split("to"))
        sources[target, 1], way_s[target, 1] = source, seconds
    for i in range(SIZE - 1, 0, -1):
        for source, lag_s in zip(sources[i].tolist(), way_s[i].tolist(), strict=True):
            if source >= 0:
                latest_s[source] = min(latest_s[source], latest_s[i] - FASTEST_S - lag_s)
    nothing = np.zeros(SIZE)
    return Chain(
        np.arange(SIZE), np.array(ready_s or nothing), sources, way_s, np.array(latest_s), nothing, nothing
    )  # fmt: skip


def run(nodes: Ordered, one: Chain, options: tuple[int, ...]) -> tuple[list[float], float]:
    """When each instruction ends, and what all cost."""
    ends: list[float] = []
    for i, option in enumerate(options):
        waits = [one.ready_s[i]]
        waits += [ends[one.ways[i, w]] + one.way_s[i, w] for w in range(WAYS) if one.ways[i, w] >= 0]
        ends.append(max(waits) + nodes.option_s[option])
    return ends, float(nodes.option_j[list(options)].sum())


CHAINS = [
    chain([0.0501, 0.1001, 0.1501, 0.2001]),
    chain([9.0, 9.0, 9.0, 0.2151]),
    chain([9.0, 0.1101, 9.0, 0.2301], [0.0, 0.03, 0.0, 0.16]),
    chain([9.0, 9.0, 9.0, 0.3601], from0to2=0.2),
    chain([9.0, 9.0, 9.0, 0.3301], from0to3=0.2, from0to2=0.11),
    chain([9.0, 9.0, 9.0, 9.0]),
]


@pytest.mark.parametrize("one", CHAINS)
def test_the_cheapest_options_that_end_in_time_are_found(nodes: Ordered, one: Chain) -> None:
    best_j = np.inf
    for options in product(*(range(nodes.first[i], nodes.end[i]) for i in range(SIZE))):
        ends, energy_j = run(nodes, one, options)
        if all(end <= latest + 1e-12 for end, latest in zip(ends, one.latest_s, strict=True)):
            best_j = min(best_j, energy_j)
    found = best_options(nodes, one, 100.0)
    ends, energy_j = run(nodes, one, tuple(found.tolist()))
    assert best_j - 1e-9 <= energy_j <= 1.001 * best_j  # of two labels a later way may need the one dropped
    assert (np.array(ends) <= one.latest_s + 1e-12).all()


def test_where_nothing_is_in_time_all_are_as_fast_as_they_can_be(nodes: Ordered) -> None:
    found = best_options(nodes, chain([0.01, 0.01, 0.01, 0.01]), 100.0)
    assert (found == nodes.first).all()


def test_time_that_costs_more_than_it_saves_is_not_taken(nodes: Ordered) -> None:
    free = chain([9.0] * SIZE)
    first, second = np.diff(nodes.option_j[nodes.first[0] : nodes.first[0] + 3]) / -0.002
    between_w = np.full(SIZE, (first + second) / 2)
    found = best_options(nodes, free._replace(paid_w=between_w, price_w=between_w), 100.0)
    assert (found == nodes.first + 1).all()
