"""The unit of planning: one instruction of one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind

__all__ = ["Instruction"]


@dataclass(frozen=True, order=True)
class Instruction:
    """One pass of one micro-batch through one model chunk on one stage; a joint one has two passes.

    Attributes:
        stage: Pipeline stage, from 0.
        kind: Its kind; ``kind.is_instruction`` holds.
        microbatch: Micro-batch index within the iteration, from 0; of a joint one the forward's.
        chunk: Model chunk (virtual stage) on that stage, from 0; of a joint one the forward's.
        backward_microbatch: Micro-batch index of a joint one's backward, else -1.
        backward_chunk: Model chunk of a joint one's backward, else -1.
    """

    stage: int
    kind: Kind
    microbatch: int
    chunk: int = 0
    backward_microbatch: int = -1
    backward_chunk: int = -1

    @classmethod
    def of(cls, stage: int, operation: Operation) -> Instruction:
        """Return the instruction of a stage's operation."""
        one = operation
        return cls(stage, one.kind, one.microbatch, one.chunk, one.backward_microbatch, one.backward_chunk)

    @property
    def operation(self) -> Operation:
        """The operation of its stage."""
        return Operation(
            self.kind,
            self.microbatch,
            self.chunk,
            backward_microbatch=self.backward_microbatch,
            backward_chunk=self.backward_chunk,
        )

    @property
    def label(self) -> str:
        """A name for people."""
        text = f"{self.kind.value} of micro-batch {self.microbatch}, chunk {self.chunk}"
        if self.kind.is_joint:
            text += f" and micro-batch {self.backward_microbatch}, chunk {self.backward_chunk}"
        return f"{text}, stage {self.stage}"

    def to_row(self, mhz: int) -> list[int | str]:
        """Return a row of a plan file: stage, kind, micro-batch, chunk, MHz; a joint one adds its backward's two."""
        row: list[int | str] = [self.stage, self.kind.value, self.microbatch, self.chunk, mhz]
        return [*row, self.backward_microbatch, self.backward_chunk] if self.kind.is_joint else row

    @classmethod
    def from_row(cls, row: Sequence[int | str]) -> tuple[Instruction, int]:
        """Return the instruction and MHz of a row written by ``to_row``.

        Raises:
            ValueError: The row is malformed.
        """
        stage, kind, microbatch, chunk, mhz, *backward = row
        return cls(int(stage), Kind(kind), int(microbatch), int(chunk), *map(int, backward)), int(mhz)
