"""Half-edges, and where an arc stands on its staircase."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import curve, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.flow_state import GOAL, FlowState, place, restored_state
from perseus_ds.frontier.network import UNBOUNDED, Network, build_network
from perseus_ds.pipeline.schedules import schedule_dag


@pytest.fixture
def network() -> Network:
    points = curve((3, 1.0, 10.0), (2, 2.0, 7.0), (1, 4.0, 5.0))  # 3 W, then 1 W
    problem = Problem(schedule_dag("1f1b", 2, 2), same_everywhere(2, points), 0.0)
    return build_network(problem.dag, problem.options, problem.curve_of)


@pytest.fixture
def state(network: Network) -> FlowState:
    return restored_state(network, network.slowest, np.zeros(network.tail.size, dtype=np.int64))


def test_every_arc_has_two_half_edges_that_know_each_other(network: Network, state: FlowState) -> None:
    for half in range(state.to.size):
        other = state.opposite[half]
        assert state.opposite[other] == half
        assert state.forward[half] != state.forward[other]
        assert state.arc[half] == state.arc[other]
        begin = state.to[other]
        assert state.indptr[begin] <= half < state.indptr[begin + 1]
        if state.forward[half]:
            assert (begin, state.to[half]) == (network.tail[state.arc[half]], network.head[state.arc[half]])
    for node in range(network.nodes):
        others = state.to[state.indptr[node] : state.indptr[node + 1]]
        assert (np.diff(others) >= 0).all()


def test_only_the_ends_are_goals_at_first(state: FlowState) -> None:
    assert (state.toward[0, -1], state.toward[1, 0]) == (GOAL, GOAL)
    assert (state.toward == -1).sum() == state.toward.size - 2


@pytest.mark.parametrize(
    ("flow_w", "ahead_s", "back_s", "residual_w", "back_residual_w"),
    [
        (0.0, 4.0, None, 1.0, 0.0),  # without flow an arc may last for ever
        (0.5, 4.0, 4.0, 0.5, 0.5),
        (1.0, 2.0, 4.0, 2.0, 1.0),  # at a breakpoint both lengths will do
        (2.0, 2.0, 2.0, 1.0, 1.0),
        (3.0, 1.0, 2.0, None, 2.0),  # the fastest carries any flow
        (9.0, 1.0, 1.0, None, 6.0),
    ],
)
def test_an_arc_s_flow_says_where_it_stands(
    network: Network,
    state: FlowState,
    flow_w: float,
    ahead_s: float,
    back_s: float | None,
    residual_w: float | None,
    back_residual_w: float,
) -> None:
    ahead = int(np.flatnonzero(state.forward & (state.arc == 0))[0])
    back = int(state.opposite[ahead])
    last = network.last[0]
    breakpoints = {1.0: network.breakpoint_power[last], 3.0: network.breakpoint_power[last - 1]}
    state.flow[0] = breakpoints.get(flow_w, round(flow_w / network.quantum_w))
    place(state, ahead, back)
    assert state.length[0, ahead] * network.tick_s == pytest.approx(ahead_s)
    assert state.length[1, back] == state.length[0, ahead]
    assert state.length[0, back] == state.length[1, ahead]
    if back_s is None:
        assert state.length[0, back] == -UNBOUNDED
    else:
        assert -state.length[0, back] * network.tick_s == pytest.approx(back_s)
    if residual_w is None:
        assert state.residual[ahead] > UNBOUNDED >> 1
    else:
        assert state.residual[ahead] * network.quantum_w == pytest.approx(residual_w)
    assert state.residual[back] * network.quantum_w == pytest.approx(back_residual_w)
