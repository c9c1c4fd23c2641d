"""The one list of the kinds of a rank's operations.

An *instruction* computes on the GPU. Its time follows the clock, so it has a measured curve and a place in the plan.
It computes a forward, a backward, half a backward (split weight gradients), or both passes of different micro-batches
at once (joint: Megatron-Core's expert-parallel overlap). The plan does not choose the time of any other operation.
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
        """Whether the plan chooses its clock."""
        return self in _INSTRUCTIONS

    @property
    def is_communication(self) -> bool:
        """Whether it carries point-to-point tensors or waits for them."""
        return self in (Kind.EXCHANGE, Kind.POST, Kind.WAIT)

    @property
    def is_joint(self) -> bool:
        """Whether it computes for two micro-batches, and so also names a backward micro-batch and chunk."""
        return self is Kind.FORWARD_BACKWARD

    @property
    def computes_forward(self) -> bool:
        """Whether it contains a forward pass."""
        return self in (Kind.FORWARD, Kind.FORWARD_BACKWARD)

    @property
    def computes_backward(self) -> bool:
        """Whether it contains a backward pass, whole or half."""
        return self.is_instruction and self is not Kind.FORWARD


_INSTRUCTIONS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT, Kind.FORWARD_BACKWARD)
