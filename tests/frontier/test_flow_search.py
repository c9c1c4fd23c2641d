"""The search for a path without slack, beside distances worked out the long way."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.flow import _trace_path, advance
from perseus_ds.frontier.flow_search import NOW, SETTLED, explore, new_search, restart
from perseus_ds.frontier.flow_state import GOAL, FlowState, restored_state
from perseus_ds.frontier.network import UNBOUNDED, build_network
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture(params=[0, 1, 5, 40])
def state(request: pytest.FixtureRequest) -> FlowState:
    """A sweep after some breakpoints."""
    problem = Problem(schedule_dag("1f1b", 3, 6), same_everywhere(3, convex_points(12)), 75.0)
    network = build_network(problem.dag, problem.options, problem.curve_of)
    state = restored_state(network, network.slowest.copy(), np.zeros(network.tail.size, dtype=np.int64))
    buffer = np.empty((2, request.param), dtype=np.int64)
    advance(state, -1, buffer[0], buffer[1])
    return state


def distances(state: FlowState, side: int) -> np.ndarray:
    """Least slack on the way from the root to each node (Bellman and Ford)."""
    nodes, sign = state.potential.size, 1 - 2 * side
    found = [UNBOUNDED] * nodes
    found[0 if side == 0 else -1] = 0
    for _ in range(nodes):
        for node in range(nodes):
            for half in range(state.indptr[node], state.indptr[node + 1]):
                other = int(state.to[half])
                slack = sign * int(state.potential[other] - state.potential[node]) - int(state.length[side, half])
                assert slack >= 0
                found[other] = min(found[other], found[node] + slack)
    return np.array(found)


@pytest.mark.parametrize("side", [0, 1])
def test_the_path_found_is_the_shortest_and_can_be_followed(state: FlowState, side: int) -> None:
    truth = distances(state, side)
    search = new_search(state, side)
    for stamp in (1, 2):  # a stamp makes an old search's entries void
        restart(search, stamp)
        meeting = -1
        while meeting < 0:
            meeting = explore(state, search, stamp)
        goal = truth.size - 1 if side == 0 else 0
        assert search.progress[NOW] == truth[goal] == search.distance[meeting]
        settled = search.settled[: search.progress[SETTLED]]
        assert (search.distance[settled] == truth[settled]).all()
        node = meeting
        while state.toward[side, node] != GOAL:
            half = state.toward[side, node]
            other = int(state.to[half])
            assert (1 - 2 * side) * (state.potential[other] - state.potential[node]) == state.length[side, half]
            node = other
        assert node == goal
        path = np.empty(4 * truth.size, dtype=np.int64)
        halves = path[: _trace_path(state, search, meeting, path)]
        tails, heads = state.to[state.opposite[halves]], state.to[halves]
        root = truth.size - 1 - goal
        assert sorted([root, *heads]) == sorted([*tails, goal]), "one way from end to end"
