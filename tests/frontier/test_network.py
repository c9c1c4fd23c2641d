"""The flow network of a DAG."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import convex_points, curve, same_everywhere

from perseus_ds.frontier import Problem
from perseus_ds.frontier.network import UNBOUNDED, Network, build_network
from perseus_ds.pipeline.dag import Constant, PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import schedule_dag


def network_of(problem: Problem) -> Network:
    return build_network(problem.dag, problem.options, problem.curve_of)


def made_of(count: int, edges: list[tuple[int, int]], *constants_s: float) -> Network:
    instructions = tuple(Instruction(0, Kind.FORWARD, m) for m in range(count))
    dag = PipelineDag(instructions, tuple(Constant("", time) for time in constants_s), edge_array(edges))
    return network_of(Problem(dag, same_everywhere(1, curve((2, 1.0, 10.0), (1, 2.0, 7.0))), 0.0))


def test_a_chain_shares_its_ends_and_begins() -> None:
    network = made_of(3, [(0, 1), (1, 2)])
    assert network.nodes == 4
    assert list(zip(network.tail, network.head, strict=True)) == [(0, 1), (1, 2), (2, 3)]
    assert (network.slowest * network.tick_s).tolist() == pytest.approx([0, 2, 4, 6])


def test_only_a_dependency_between_a_fork_and_a_join_is_an_arc_of_its_own() -> None:
    assert made_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)]).tail.size == 4
    crossed = made_of(4, [(0, 2), (0, 3), (1, 3)])
    assert crossed.tail.size == 5
    fork, join = crossed.head[0], crossed.tail[3]
    assert (crossed.tail[4], crossed.head[4]) == (fork, join)


def test_a_staircase_says_how_much_flow_an_arc_carries_at_each_length() -> None:
    network = made_of(1, [], 0.5)
    begin, last = network.last[0] - 1, network.last[0]
    lengths_s = network.breakpoint_time[begin : last + 1] * network.tick_s
    assert lengths_s.tolist() == pytest.approx([1.0, 2.0])
    assert network.breakpoint_power[begin] == UNBOUNDED
    assert network.breakpoint_power[last] * network.quantum_w == pytest.approx(3.0)  # (10 J - 7 J) / 1 s
    assert (network.breakpoint_time[last + 1], network.breakpoint_power[last + 1]) == (UNBOUNDED, 0)
    constant = network.last[1]
    assert network.breakpoint_time[constant] * network.tick_s == pytest.approx(0.5)
    assert network.breakpoint_power[constant] == UNBOUNDED


def test_nodes_are_numbered_by_start_time_and_arcs_run_forwards() -> None:
    network = network_of(Problem(schedule_dag("1f1b", 4, 6), same_everywhere(4, convex_points(9)), 75.0))
    assert (np.diff(network.slowest) >= 0).all()
    assert (network.slowest[network.head] - network.slowest[network.tail] >= 0).all()
    assert network.slowest[-1] * network.tick_s == pytest.approx((4 + 6 - 1) * 2 * convex_points(9)[-1].time_s)
    assert network.slowest.max() <= 1e15
