"""The trace of one iteration: each stage's operations in program order, with times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perseus_ds.pipeline.events import Direction, Operation, Transfer
from perseus_ds.pipeline.kinds import Kind

__all__ = ["StageTrace", "TimedOperation"]


@dataclass(frozen=True)
class TimedOperation:
    """An operation with its times.

    Attributes:
        operation: The operation.
        begin_s: Begin in seconds, from the iteration's begin on the same rank.
        end_s: End in seconds, from the iteration's begin on the same rank.
        frequency_mhz: Requested SM clock; 0 when unknown.
    """

    operation: Operation
    begin_s: float
    end_s: float
    frequency_mhz: int = 0

    @property
    def duration_s(self) -> float:
        """End minus begin, in seconds."""
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class StageTrace:
    """One iteration of one stage of one pipeline.

    Attributes:
        stage: Pipeline stage.
        pipeline: Data-parallel replica.
        iteration_time_s: From this iteration's begin to the next one's.
        operations: In program order.
        sizes: Of each iteration that it is the median of, the times of its instructions as multiples of their kind's
            mean, in program order. Empty where micro-batches are alike.
    """

    stage: int
    pipeline: int
    iteration_time_s: float
    operations: tuple[TimedOperation, ...]
    sizes: tuple[tuple[float, ...], ...] = ()

    @property
    def instructions(self) -> list[TimedOperation]:
        """The instructions among the operations."""
        return [timed for timed in self.operations if timed.operation.kind.is_instruction]

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and dicts for ``trace.json``."""
        return {
            "stage": self.stage,
            "pipeline": self.pipeline,
            "iteration_time_s": self.iteration_time_s,
            "operations": [
                {
                    "kind": timed.operation.kind.value,
                    "microbatch": timed.operation.microbatch,
                    "chunk": timed.operation.chunk,
                    "transfers": [[t.direction.value, t.peer, t.tag] for t in timed.operation.transfers],
                    **_backward_of(timed.operation),
                    "begin_s": timed.begin_s,
                    "end_s": timed.end_s,
                    "frequency_mhz": timed.frequency_mhz,
                }
                for timed in self.operations
            ],
            **({"sizes": [list(row) for row in self.sizes]} if self.sizes else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StageTrace:
        """Rebuild a trace from ``to_json``."""
        return cls(
            stage=data["stage"],
            pipeline=data["pipeline"],
            iteration_time_s=data["iteration_time_s"],
            operations=tuple(
                TimedOperation(
                    Operation(
                        Kind(row["kind"]),
                        row["microbatch"],
                        row["chunk"],
                        tuple(Transfer(Direction(d), peer, tag) for d, peer, tag in row["transfers"]),
                        row.get("backward_microbatch", -1),
                        row.get("backward_chunk", -1),
                    ),
                    row["begin_s"],
                    row["end_s"],
                    row["frequency_mhz"],
                )
                for row in data["operations"]
            ),
            sizes=tuple(tuple(map(float, row)) for row in data.get("sizes", ())),
        )


def _backward_of(operation: Operation) -> dict[str, int]:
    """Return what a row holds of a joint instruction alone."""
    if not operation.kind.is_joint:
        return {}
    return {"backward_microbatch": operation.backward_microbatch, "backward_chunk": operation.backward_chunk}
