"""Micro-batches of different sizes, as packed sequences and routed tokens make them."""

from __future__ import annotations

import math

from perseus_ds.pipeline.events import Operation
from perseus_ds.simulator.chance import normal

__all__ = ["MicrobatchSizes"]

_BACKWARD_SHARE = 2.0 / 3.0
"""Of a joint instruction's work."""


class MicrobatchSizes:
    """Sizes of a pipeline's micro-batches, the same on all its stages: log-normal, with mean 1.

    Args:
        spread: Relative standard deviation; 0: all are alike.
        seed: Of the draws.
        pipeline: Each pipeline has its own micro-batches.
    """

    def __init__(self, spread: float, seed: int, pipeline: int) -> None:
        self._deviation = math.sqrt(math.log1p(spread**2))
        self._seed = hash((seed, pipeline, 0x5EED))
        self._pass = 0

    def begin(self) -> None:
        """Another iteration begins, with micro-batches of its own."""
        self._pass += 1

    def of(self, operation: Operation) -> float:
        """Return the work of an instruction, as a multiple of what it mostly is."""
        if not self._deviation:
            return 1.0
        forward = self._size(operation.microbatch)
        if not operation.kind.is_joint:
            return forward
        backward = self._size(operation.backward_microbatch)
        return _BACKWARD_SHARE * backward + (1.0 - _BACKWARD_SHARE) * forward

    def _size(self, microbatch: int) -> float:
        drawn = normal(self._seed, self._pass * 4096 + microbatch)
        return math.exp(self._deviation * drawn - self._deviation**2 / 2.0)
