"""Schedules and the DAGs of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import PipelineDag
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.schedules import SCHEDULES, schedule_dag


def text(schedule: str, *size: int) -> list[str]:
    """One line per stage, such as ``F0 F1 B0 B1``; chunks above 0 as lower-case letters' suffix ``'``."""
    return [
        " ".join(("F" if one.kind is Kind.FORWARD else "B") + str(one.microbatch) + "'" * one.chunk for one in order)
        for order in SCHEDULES[schedule](*size)
    ]


def test_one_f_one_b() -> None:
    assert text("1f1b", 3, 4, 1) == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_gpipe() -> None:
    assert text("gpipe", 2, 2, 1) == ["F0 F1 B1 B0", "F0 F1 B1 B0"]


def test_interleaved() -> None:
    assert text("interleaved", 2, 4, 2) == [
        "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
    ]


@pytest.mark.parametrize(
    ("schedule", "stages", "microbatches", "chunks"),
    [("1f1b", 4, 8, 1), ("gpipe", 3, 5, 1), ("interleaved", 4, 8, 2), ("interleaved", 2, 2, 3), ("1f1b", 1, 1, 1)],
)
def test_every_instruction_once_and_no_cycle(schedule: str, stages: int, microbatches: int, chunks: int) -> None:
    dag = schedule_dag(schedule, stages, microbatches, chunks)
    assert len(set(dag.instructions)) == len(dag.instructions) == 2 * stages * microbatches * chunks
    assert len(dag.topological_order) == dag.nodes


def test_one_f_one_b_takes_the_textbook_time() -> None:
    dag = schedule_dag("1f1b", 4, 8)
    times = [1.0 if one.kind is Kind.FORWARD else 2.0 for one in dag.instructions]
    assert dag.makespan(times) == (8 + 4 - 1) * 3


def test_interleaving_shrinks_the_bubble_by_the_chunks() -> None:
    def bubble(schedule: str, chunks: int) -> float:
        dag = schedule_dag(schedule, 4, 8, chunks)
        return dag.makespan([(1.0 if one.kind is Kind.FORWARD else 2.0) / chunks for one in dag.instructions]) - 24

    assert bubble("interleaved", 3) == pytest.approx(bubble("1f1b", 1) / 3)


def test_dag_goes_to_networkx_and_back() -> None:
    dag = schedule_dag("1f1b", 3, 3)
    again = PipelineDag.from_networkx(dag.to_networkx())
    times = [0.1 + 0.01 * node for node in range(len(dag.instructions))]
    assert again.instructions == dag.instructions
    assert again.makespan(times) == dag.makespan(times)


def test_critical_path_is_as_long_as_the_makespan() -> None:
    dag = schedule_dag("1f1b", 3, 4)
    times = [0.5 + (node * 7 % 5) / 10 for node in range(len(dag.instructions))]
    assert sum(times[node] for node in dag.critical_path(times)) == pytest.approx(dag.makespan(times))


def test_a_cycle_is_named() -> None:
    graph = schedule_dag("gpipe", 1, 1).to_networkx()
    graph.add_edge(1, 0)
    with pytest.raises(PerseusError, match="form a cycle through forward of micro-batch 0, chunk 0, stage 0"):
        PipelineDag.from_networkx(graph).makespan([1.0, 1.0])


@pytest.mark.parametrize(
    ("schedule", "size", "message"),
    [
        ("1f1b", (4, 0, 1), "microbatches: 0 is not allowed"),
        ("1f1b", (4, 8, 2), "chunks: 2 is not allowed; allowed: 1 with schedule 1f1b; try interleaved"),
        ("interleaved", (4, 6, 2), "microbatches: 6 is not allowed; allowed: multiples of the 4 stages"),
    ],
)
def test_impossible_sizes_are_refused(schedule: str, size: tuple[int, int, int], message: str) -> None:
    with pytest.raises(PerseusError, match=message):
        schedule_dag(schedule, *size)


def test_data_flows_through_all_stages_and_around_to_the_next_chunk() -> None:
    dag = schedule_dag("interleaved", 2, 2, 2)
    edges = {(dag.instructions[a], dag.instructions[b]) for a, b in dag.edges.tolist()}

    def one(stage: int, kind: Kind, chunk: int) -> Instruction:
        return Instruction(stage, kind, 0, chunk)

    forward = [one(stage, Kind.FORWARD, chunk) for chunk in range(2) for stage in range(2)]
    backward = [one(stage, Kind.BACKWARD, chunk) for chunk in (1, 0) for stage in (1, 0)]
    assert {*pairwise(forward), *pairwise(backward)} <= edges
    assert {(before, replace(before, kind=Kind.BACKWARD)) for before in forward} <= edges
