"""What a framework patch tells its listener: who this rank is and what it runs.

Source: design of Perseus (SOSP '24, section 4.2) with communication made explicit, because real schedules
wait for exchanges and not only for data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from perseus_ds.pipeline.kinds import Kind

__all__ = ["Direction", "Listener", "Operation", "Topology", "Transfer"]


class Direction(str, Enum):
    """Which way a transfer goes, seen from this rank."""

    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True)
class Transfer:
    """One point-to-point tensor between two stages of a pipeline.

    The k-th send of a (sender, receiver, tag) triple matches the k-th receive of the same triple.

    Attributes:
        direction: Send or receive, seen from this rank.
        peer: Stage of the other side.
        tag: What is carried: ``"activation"`` or ``"gradient"``.
    """

    direction: Direction
    peer: int
    tag: str


@dataclass(frozen=True)
class Operation:
    """One thing a rank does within an iteration.

    Attributes:
        kind: What it is.
        microbatch: Micro-batch index of an instruction or load, else -1; of a joint one the forward's.
        chunk: Model chunk (virtual stage) of an instruction, else 0; of a joint one the forward's.
        transfers: Of an EXCHANGE, POST or WAIT: the point-to-point tensors it carries or waits for.
        backward_microbatch: Micro-batch index of a joint instruction's backward, else -1.
        backward_chunk: Model chunk of a joint instruction's backward, else -1.
    """

    kind: Kind
    microbatch: int = -1
    chunk: int = 0
    transfers: tuple[Transfer, ...] = ()
    backward_microbatch: int = -1
    backward_chunk: int = -1


@dataclass(frozen=True)
class Topology:
    """Where this rank stands.

    Attributes:
        rank: Global rank.
        world_size: Number of ranks.
        pipeline: Data-parallel replica this rank belongs to, ``0 … pipelines - 1``.
        pipelines: Number of data-parallel replicas.
        stage: Pipeline stage, ``0 … stages - 1``.
        stages: Number of stages.
        shard_rank: Rank within the stage's tensor-parallel group.
        shard_size: Tensor-parallel ranks per stage.
        chunks: Model chunks (virtual stages) per stage.
        framework: Name and version, such as ``"deepspeed 0.19.8"``.
        fingerprint: What a profile depends on: the model's shape, micro-batch size, precision.
    """

    rank: int
    world_size: int
    pipeline: int
    pipelines: int
    stage: int
    stages: int
    shard_rank: int = 0
    shard_size: int = 1
    chunks: int = 1
    framework: str = ""
    fingerprint: str = ""


class Listener(Protocol):
    """Receives the events of one rank, on the trainer's thread, in program order.

    Operations never nest: a framework call inside another (a reduction within a backward) is not reported.
    """

    def framework_configured(self, section: Any, source: str) -> None:
        """The framework's own configuration was read (DeepSpeed: in the engine's constructor).

        Args:
            section: What it holds under ``"perseus"``; None without such a key.
            source: Name of that configuration, for messages.

        Raises:
            PerseusError: The section is wrong. The only error that a listener lets through.
        """

    def checkpoint_saved(self, directory: str) -> None:
        """The framework has saved a checkpoint, all ranks together, somewhere in this directory."""

    def checkpoint_loaded(self, directory: str) -> None:
        """The framework has loaded a checkpoint from this directory."""

    def iteration_begin(self, topology: Topology, microbatches: int, training: bool) -> None:
        """A schedule is about to run. ``training`` is False for evaluation and forward-only passes."""

    def operation_begin(self, operation: Operation) -> None:
        """An operation is about to run."""

    def operation_end(self, operation: Operation) -> None:
        """The operation has returned (on CUDA: has been enqueued)."""

    def iteration_end(self) -> None:
        """The schedule and, where the framework has it in the same call, the optimizer step are over."""
