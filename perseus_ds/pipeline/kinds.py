"""What a rank's operations are: the one list of kinds.

An *instruction* computes on the GPU; its time follows the clock, so it has a measured curve and a place in the plan.
It may compute a forward, a backward, half a backward (split weight gradients), or both passes of different
micro-batches at once (joint: Megatron-Core's expert-parallel overlap). All other operations take a time that no plan
chooses.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Kind"]


class Kind(str, Enum):
    """The kind of an operation. Instructions come first."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUT_GRADIENT = "input_gradient"  # the half of a backward that the stage before waits for
    WEIGHT_GRADIENT = "weight_gradient"  # the other half
    FORWARD_BACKWARD = "forward_backward"  # a forward of one micro-batch and a backward of another in one
    EXCHANGE = "exchange"  # blocking communication: returns when all its transfers are done
    POST = "post"  # non-blocking communication: returns at once
    WAIT = "wait"  # blocks until the transfers of an earlier POST are done
    LOAD = "load"  # input loading of one micro-batch
    REDUCE = "reduce"  # gradient reduction over data parallelism
    OPTIMIZER = "optimizer"

    @property
    def is_instruction(self) -> bool:
        """Whether a plan chooses its clock."""
        return self in _INSTRUCTIONS

    @property
    def is_communication(self) -> bool:
        """Whether it carries or awaits point-to-point tensors."""
        return self in (Kind.EXCHANGE, Kind.POST, Kind.WAIT)

    @property
    def is_joint(self) -> bool:
        """Whether it computes for two micro-batches, so that it names a backward micro-batch and chunk too."""
        return self is Kind.FORWARD_BACKWARD

    @property
    def computes_forward(self) -> bool:
        """Whether a forward pass is in it."""
        return self in (Kind.FORWARD, Kind.FORWARD_BACKWARD)

    @property
    def computes_backward(self) -> bool:
        """Whether a backward pass, whole or half, is in it."""
        return self.is_instruction and self is not Kind.FORWARD


_INSTRUCTIONS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT, Kind.FORWARD_BACKWARD)
