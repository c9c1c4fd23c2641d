"""A DAG small enough to see through: two stages, a transfer between them, and a tail."""

import numpy as np
import pytest

from perseus_ds.pipeline.dag import Constant, PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind

FIRST, SECOND, LAST = (
    Instruction(0, Kind.FORWARD, 0),
    Instruction(0, Kind.FORWARD, 1),
    Instruction(1, Kind.FORWARD, 0),
)
HOP, TAIL = 3, 4
TIMES_S = [1.0, 2.0, 3.0]


@pytest.fixture
def dag() -> PipelineDag:
    """0 then 1 on the first stage; 0, the transfer (3) and 2; after 1 and 2 the tail (4)."""
    edges = edge_array([(2, TAIL), (0, 1), (0, HOP), (HOP, 2), (1, TAIL), (0, 1)])
    return PipelineDag((FIRST, SECOND, LAST), (Constant("hop", 0.5), Constant("tail", 0.25)), edges)


def test_edges_are_sorted_and_none_is_there_twice(dag: PipelineDag) -> None:
    assert dag.edges.tolist() == [[0, 1], [0, HOP], [1, TAIL], [2, TAIL], [HOP, 2]]
    assert edge_array([]).shape == (0, 2)


def test_nodes_are_instructions_and_then_constants(dag: PipelineDag) -> None:
    assert (dag.nodes, dag.stages) == (5, 2)
    assert dag.constant_times_s.tolist() == [0.5, 0.25]
    assert dag.node_times_s(TIMES_S).tolist() == [1.0, 2.0, 3.0, 0.5, 0.25]
    assert [dag.label(node) for node in (2, HOP, TAIL)] == ["forward of micro-batch 0, chunk 0, stage 1", "hop", "tail"]
    with pytest.raises(ValueError, match="3 durations needed, got shape"):
        dag.makespan([1.0, 2.0])


def test_each_node_knows_who_waits_for_it_and_for_whom_it_waits(dag: PipelineDag) -> None:
    def of(groups, node: int) -> list[int]:
        return groups.members[groups.indptr[node] : groups.indptr[node + 1]].tolist()

    assert [of(dag.successors, node) for node in range(5)] == [[1, HOP], [TAIL], [TAIL], [2], []]
    assert [of(dag.predecessors, node) for node in range(5)] == [[], [0], [HOP], [0], [1, 2]]


def test_every_node_starts_when_the_last_of_those_it_waits_for_has_ended(dag: PipelineDag) -> None:
    assert dag.starts_s(TIMES_S).tolist() == [0.0, 1.0, 1.5, 1.0, 4.5]
    assert dag.makespan(TIMES_S) == 4.75
    assert dag.critical_path(TIMES_S) == [0, HOP, 2, TAIL]
    assert dag.critical_path([1.0, 4.0, 3.0]) == [0, 1, TAIL]
    assert dag.makespan([1.0, 4.0, 3.0]) == 5.25


def test_the_order_respects_all_edges_and_is_each_stage_s_program(dag: PipelineDag) -> None:
    position = {node: at for at, node in enumerate(dag.topological_order.tolist())}

    assert sorted(position) == list(range(5))
    assert [(a, b) for a, b in dag.edges.tolist() if position[a] >= position[b]] == []
    assert [order.tolist() for order in dag.program_order] == [[0, 1], [2]]


def test_nothing_takes_no_time() -> None:
    nothing = PipelineDag((), (), edge_array([]))

    assert (nothing.nodes, nothing.stages, nothing.makespan([])) == (0, 0, 0.0)


def test_a_graph_of_one_s_own_becomes_a_dag_whatever_its_nodes_are_called(dag: PipelineDag) -> None:
    graph = dag.to_networkx()
    assert graph.nodes[HOP] == {"label": "hop", "duration_s": 0.5}
    assert graph.nodes[2] == {"instruction": LAST}
    del graph.nodes[TAIL]["label"]

    again = PipelineDag.from_networkx(graph)

    assert again.instructions == dag.instructions
    assert again.constants == (Constant("hop", 0.5), Constant("4", 0.25))
    assert np.array_equal(again.edges, dag.edges)
