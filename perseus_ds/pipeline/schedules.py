"""Pipeline schedules: the order of each stage's instructions, and the DAG.

Sources: GPipe (arXiv 1811.06965); 1F1B (PipeDream-Flush, arXiv 2006.09503); interleaved 1F1B (Megatron-LM, arXiv
2104.04473, section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.dag import PipelineDag, edge_array
from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.pipeline.kinds import Kind

__all__ = ["SCHEDULES", "dag_of", "gpipe", "interleaved", "one_f_one_b", "schedule_dag"]

Schedule = tuple[tuple[Instruction, ...], ...]


def gpipe(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Return GPipe's order per stage: all forwards, then all backwards from the last micro-batch to the first."""
    _check(stages, microbatches, chunks, one_chunk="gpipe")
    return tuple(
        tuple(Instruction(stage, Kind.FORWARD, m) for m in range(microbatches))
        + tuple(Instruction(stage, Kind.BACKWARD, m) for m in reversed(range(microbatches)))
        for stage in range(stages)
    )


def one_f_one_b(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Return 1F1B's order per stage: warm-up forwards, one forward and one backward in turn, the rest."""
    _check(stages, microbatches, chunks, one_chunk="1f1b")
    return tuple(
        _one_and_one(
            [Instruction(stage, Kind.FORWARD, m) for m in range(microbatches)],
            [Instruction(stage, Kind.BACKWARD, m) for m in range(microbatches)],
            stages - stage - 1,
        )
        for stage in range(stages)
    )


def interleaved(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Return interleaved 1F1B's order per stage: chunks take turns in groups of ``stages`` micro-batches.

    Raises:
        PerseusError: ``microbatches`` is not a multiple of ``stages`` (Megatron-LM's own rule).
    """
    _check(stages, microbatches, chunks)
    if microbatches % stages:
        raise PerseusError(
            "plan-bad-value",
            name="microbatches",
            value=microbatches,
            allowed=f"multiples of the {stages} stages",
        )
    slots = [
        (chunk, group + m) for group in range(0, microbatches, stages) for chunk in range(chunks) for m in range(stages)
    ]
    everything = len(slots)
    return tuple(
        _one_and_one(
            [Instruction(stage, Kind.FORWARD, m, chunk) for chunk, m in slots],
            [Instruction(stage, Kind.BACKWARD, m, chunks - 1 - chunk) for chunk, m in slots],
            # With one round of micro-batches Megatron-LM warms up with everything.
            everything if microbatches == stages else 2 * (stages - stage - 1) + (chunks - 1) * stages,
        )
        for stage in range(stages)
    )


SCHEDULES: dict[str, Callable[[int, int, int], Schedule]] = {
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "gpipe": gpipe,
}


def schedule_dag(schedule: str, stages: int, microbatches: int, chunks: int = 1) -> PipelineDag:
    """Return the DAG of a schedule in ``SCHEDULES``."""
    return dag_of(SCHEDULES[schedule](stages, microbatches, chunks))


def dag_of(schedule: Sequence[Sequence[Instruction]]) -> PipelineDag:
    """Return the DAG of a schedule: program order on each stage, and the data flow through the stages.

    A forward needs the forward of the previous stage, or of the last stage's previous chunk. A backward needs its own
    forward, and the backward of the next stage, or of the first stage's next chunk.
    """
    instructions = tuple(instruction for order in schedule for instruction in order)
    number = {instruction: node for node, instruction in enumerate(instructions)}
    last = len(schedule) - 1
    edges = [(number[before], number[after]) for order in schedule for before, after in pairwise(order)]
    for node, one in enumerate(instructions):
        forward = one.kind is Kind.FORWARD
        step, edge_stage, wrapped = (-1, 0, last) if forward else (1, last, 0)
        if one.stage != edge_stage:
            source = Instruction(one.stage + step, one.kind, one.microbatch, one.chunk)
        else:
            source = Instruction(wrapped, one.kind, one.microbatch, one.chunk + step)
        if source in number:
            edges.append((number[source], node))
        if not forward:
            edges.append((number[Instruction(one.stage, Kind.FORWARD, one.microbatch, one.chunk)], node))
    return PipelineDag(instructions, (), edge_array(edges))


def _one_and_one(forwards: list[Instruction], backwards: list[Instruction], warm_up: int) -> tuple[Instruction, ...]:
    warm_up = min(warm_up, len(forwards))
    order = forwards[:warm_up]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += [forward, backward]
    return (*order, *backwards[len(forwards) - warm_up :])


def _check(stages: int, microbatches: int, chunks: int, one_chunk: str | None = None) -> None:
    for name, value in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise PerseusError("plan-bad-value", name=name, value=value, allowed="whole numbers from 1")
    if one_chunk and chunks != 1:
        raise PerseusError(
            "plan-bad-value",
            name="chunks",
            value=chunks,
            allowed=f"1 with schedule {one_chunk}; try interleaved",
        )
