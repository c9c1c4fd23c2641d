"""The unit of planning: one forward or backward of one micro-batch of one chunk on one stage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Instruction", "Kind"]


class Kind(str, Enum):
    """Forward or backward."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, order=True)
class Instruction:
    """One forward or backward of one micro-batch of one model chunk on one stage.

    Attributes:
        stage: Pipeline stage, from 0.
        kind: Forward or backward.
        microbatch: Micro-batch index within the iteration, from 0.
        chunk: Model chunk (virtual stage) on that stage, from 0.
    """

    stage: int
    kind: Kind
    microbatch: int
    chunk: int = 0
