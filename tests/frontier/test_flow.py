"""The sweep along the frontier, breakpoint by breakpoint, on networks solved by hand."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.flow import advance
from perseus_ds.frontier.flow_state import FlowState, restored_state
from perseus_ds.frontier.network import Network, build_network
from perseus_ds.pipeline.dag import PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag
from perseus_ds.profiling.table import CurveKey, make_profile


def started(problem: Problem) -> tuple[Network, FlowState]:
    network = build_network(problem.dag, problem.options, problem.curve_of)
    return network, restored_state(network, network.slowest.copy(), np.zeros(network.tail.size, dtype=np.int64))


def swept(network: Network, state: FlowState, stop_s: float = -1.0, room: int = 64) -> tuple[list, list, bool]:
    buffer = np.empty((2, room), dtype=np.int64)
    written, more = advance(state, int(stop_s / network.tick_s), buffer[0], buffer[1])
    return (buffer[0, :written] * network.tick_s).tolist(), (buffer[1, :written] * network.quantum_w).tolist(), more


@pytest.fixture
def two_in_a_row() -> Problem:
    dag = PipelineDag((Instruction(0, Kind.FORWARD, 0), Instruction(0, Kind.BACKWARD, 0)), (), edge_array([(0, 1)]))
    curves = {
        CurveKey(0, Kind.FORWARD): curve((2, 1.0, 10.0), (1, 2.0, 8.0)),  # 2 W
        CurveKey(0, Kind.BACKWARD): curve((2, 1.0, 10.0), (1, 2.0, 7.0)),  # 3 W
    }
    return Problem(dag, make_profile(curves), 0.0)


@pytest.fixture
def side_by_side() -> Problem:
    dag = PipelineDag(tuple(Instruction(0, Kind.FORWARD, m) for m in range(3)), (), edge_array([]))
    return Problem(dag, same_everywhere(1, curve((2, 1.0, 10.0), (1, 2.0, 8.0))), 0.0)


def test_the_cheapest_second_in_a_row_goes_first(two_in_a_row: Problem) -> None:
    times_s, powers_w, more = swept(*started(two_in_a_row))
    assert times_s == pytest.approx([3.0, 2.0])
    assert powers_w == pytest.approx([2.0, 3.0])
    assert not more


def test_a_second_of_all_side_by_side_costs_their_sum(side_by_side: Problem) -> None:
    times_s, powers_w, _ = swept(*started(side_by_side))
    assert times_s == pytest.approx([1.0])
    assert powers_w == pytest.approx([6.0])


def test_a_sweep_stops_where_it_is_told_and_goes_on_from_there(two_in_a_row: Problem) -> None:
    network, state = started(two_in_a_row)
    assert swept(network, state, 2.5)[2]
    assert (state.potential[-1] - state.potential[0]) * network.tick_s == pytest.approx(2.5)
    assert (np.diff(state.potential) * network.tick_s).tolist() == pytest.approx([1.0, 1.5])
    times_s, powers_w, more = swept(network, state)
    assert (times_s, powers_w, more) == (pytest.approx([2.0]), pytest.approx([3.0]), False)


def test_a_full_buffer_is_no_end() -> None:
    problem = Problem(schedule_dag("1f1b", 3, 5), same_everywhere(3, convex_points(12)), 75.0)
    whole, _, _ = swept(*started(problem), room=10_000)
    network, state = started(problem)
    parts, more = [], True
    while more:
        times_s, _, more = swept(network, state, room=7)
        parts += times_s
    assert len(whole) > 7
    assert parts == whole


def test_flow_is_kept_at_every_node_and_lies_on_the_staircases() -> None:
    problem = Problem(schedule_dag("1f1b", 3, 5), same_everywhere(3, convex_points(12)), 75.0)
    network, state = started(problem)
    middle_s = 0.5 * (network.slowest[-1] * network.tick_s + problem.dag.makespan([0.05] * 30))
    swept(network, state, middle_s, room=10_000)
    net = np.zeros(network.nodes, dtype=np.int64)
    np.add.at(net, network.tail, state.flow)
    np.subtract.at(net, network.head, state.flow)
    assert net[0] == -net[-1] > 0
    assert not net[1:-1].any()
    slack = state.potential[network.head] - state.potential[network.tail]
    at = state.level
    assert (state.flow < state.breakpoint_power[at]).all()
    assert (state.flow >= state.breakpoint_power[at + 1]).all()
    carrying = state.flow > state.breakpoint_power[at + 1]
    assert (slack[carrying] == state.breakpoint_time[at][carrying]).all()
    assert (slack[~carrying] >= state.breakpoint_time[at][~carrying]).all()
