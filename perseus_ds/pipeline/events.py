"""The events that a framework patch sends to its listener: the rank's position, and its operations.

Source: design of Perseus (SOSP '24, section 4.2). Communication is explicit here, because real schedules wait for
exchanges and not only for data.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from perseus_ds.pipeline.kinds import Kind

__all__ = ["Direction", "Listener", "Operation", "Topology", "Transfer"]


class Direction(str, Enum):
    """Direction of a transfer, seen from this rank."""

    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True)
class Transfer:
    """One point-to-point tensor between two stages of a pipeline.

    The k-th send of a (sender, receiver, tag) triple matches the k-th receive of the same triple.

    Attributes:
        direction: Send or receive, seen from this rank.
        peer: Stage of the other side.
        tag: Content: ``"activation"`` or ``"gradient"``.
    """

    direction: Direction
    peer: int
    tag: str


@dataclass(frozen=True)
class Operation:
    """One operation of a rank within an iteration.

    Attributes:
        kind: Its kind.
        microbatch: Micro-batch index of an instruction or load, else -1; of a joint one the forward's.
        chunk: Model chunk (virtual stage) of an instruction, else 0; of a joint one the forward's.
        transfers: The point-to-point tensors of an EXCHANGE, POST or WAIT.
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
    """Position of a rank in the job.

    Attributes:
        rank: Global rank.
        world_size: Number of ranks.
        pipeline: Data-parallel replica of this rank, ``0 … pipelines - 1``. A framework counts ranks that only share
            experts as replicas of their own; ``coordination.layout`` joins them.
        pipelines: Number of data-parallel replicas.
        stage: Pipeline stage, ``0 … stages - 1``.
        stages: Number of stages.
        shard_rank: Rank among those that share this stage's instructions and run in step.
        shard_size: Number of those ranks per stage and replica.
        chunks: Model chunks (virtual stages) per stage.
        framework: Name and version, such as ``"deepspeed 0.19.8"``.
        fingerprint: Inputs of a profile: the model's shape, micro-batch size, precision.
        axes: Name and global ranks of each group that exchanges data within an instruction, this rank's own alone:
            ``"tensor"``, ``"context"``, ``"expert"`` and so on. Its ranks run in step. Groups of one are left out.
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
    axes: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Listener(Protocol):
    """Receives the events of one rank, on the trainer's thread, in program order.

    Operations never nest: a framework call inside another (a reduction within a backward) is not reported.
    """

    def framework_configured(self, section: Any, source: str) -> None:
        """The framework has read its own configuration (DeepSpeed: in the engine's constructor).

        Args:
            section: Content of its key ``"perseus"``; None without such a key.
            source: Name of that configuration, for messages.

        Raises:
            PerseusError: The section is wrong. No other error leaves a listener.
        """

    def arguments_defined(self, parser: argparse.ArgumentParser) -> None:
        """The framework has defined its command line: add Perseus's options."""

    def checkpoint_saved(self, directory: str) -> None:
        """All ranks have saved a checkpoint together, in this directory or below."""

    def checkpoint_loaded(self, directory: str) -> None:
        """The framework has loaded a checkpoint from this directory."""

    def iteration_begin(self, topology: Topology, microbatches: int, training: bool) -> None:
        """A schedule is about to run. ``training`` is False for evaluation and forward-only passes."""

    def operation_begin(self, operation: Operation) -> None:
        """An operation is about to run."""

    def operation_end(self, operation: Operation) -> None:
        """The operation has returned (on CUDA: has been enqueued)."""

    def iteration_end(self) -> None:
        """The schedule is over, and the optimizer step if the framework makes it in the same call."""

    def unhooked(self) -> None:
        """A mode hides the framework's instructions: no more events will come. A graph may be under capture now."""
