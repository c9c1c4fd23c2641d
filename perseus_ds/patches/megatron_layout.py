"""Where a Megatron-Core rank stands, what its profile depends on, and which modes hide its instructions."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from perseus_ds.messages import PerseusError
from perseus_ds.pipeline.events import Operation, Topology

__all__ = ["Running", "hidden_mode", "running", "topology_of"]

# Settings that change an instruction's time but no parameter's shape.
_TIMED_SETTINGS = (
    "num_layers",
    "hidden_size",
    "pipeline_dtype",
    "fp8",
    "sequence_parallel",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
)


class Running:
    """What is known of the schedule that runs; a process runs one at a time.

    Attributes:
        topology: Where this rank stands; None between schedules.
        chunk_of: Index of each model chunk, by identity.
        forward_of: The forward that made a tensor, by identity: a backward is only told that tensor.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.chunk_of: dict[int, int] = {}
        self.forward_of: dict[int, Operation] = {}

    def begin(self, topology: Topology, chunks: Sequence[Any]) -> None:
        """A schedule begins."""
        self.topology = topology
        self.chunk_of = {id(chunk): index for index, chunk in enumerate(chunks)}

    def end(self) -> None:
        """It is over, or was left by an exception."""
        self.topology = None
        self.chunk_of = {}
        self.forward_of.clear()


running = Running()

_known: weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Topology]] = weakref.WeakKeyDictionary()


def topology_of(chunks: Sequence[Any], config: Any, seq_length: int, micro_batch_size: int, framework: str) -> Topology:
    """Return where this rank stands. Made once for a model and its input shape.

    A pipeline's stage is all its tensor-parallel and context-parallel ranks: they run in step.

    Args:
        chunks: The model chunks of this rank.
        config: Their configuration.
        seq_length: Tokens per sequence.
        micro_batch_size: Sequences per micro-batch.
        framework: Name and version.
    """
    shapes = _known.setdefault(chunks[0], {})
    topology = shapes.get((seq_length, micro_batch_size))
    if topology is None:
        fingerprint = _fingerprint(chunks, config, seq_length, micro_batch_size)
        topology = shapes[seq_length, micro_batch_size] = _topology(len(chunks), framework, fingerprint)
    return topology


def hidden_mode(config: Any, groups: Any = None) -> Callable[[str], PerseusError] | None:
    """Return, if forwards and backwards cannot be told apart, what makes the error; it wants the framework's name.

    Args:
        config: The model's configuration.
        groups: The process groups that the schedule was given; None: those of ``parallel_state``.
    """
    if getattr(config, "overlap_moe_expert_parallel_comm", False):
        flag, reason = "--overlap-moe-expert-parallel-comm", "it runs a forward and a backward as one"
    elif _full_iteration_graph(config):
        flag, reason = "--cuda-graph-scope full_iteration", "a replayed CUDA graph runs no Python"
    elif getattr(config, "hybrid_context_parallel", False):
        flag, reason = "--hybrid-context-parallel", "it cuts every micro-batch differently"
    elif not _groups_known(groups):
        flag, reason = (
            "a set of process groups of your own",
            "only those of megatron.core.parallel_state tell the stages",
        )
    else:
        return None
    return lambda framework: PerseusError("framework-mode", framework=framework, flag=flag, reason=reason)


def _groups_known(groups: Any) -> bool:
    from megatron.core import parallel_state as state

    if not state.model_parallel_is_initialized():
        return False
    theirs, ours = getattr(groups, "pp", None), state.get_pipeline_model_parallel_group()
    return theirs is None or theirs is ours or _ranks(theirs) == _ranks(ours)


def _ranks(group: Any) -> list[int]:
    import torch.distributed

    return torch.distributed.get_process_group_ranks(group)


def _full_iteration_graph(config: Any) -> bool:
    # One string up to 0.15, a list of enumerated scopes since.
    scopes = getattr(config, "cuda_graph_scope", None) or ()
    names = [scopes] if isinstance(scopes, str) else [getattr(scope, "name", scope) for scope in scopes]
    enabled = getattr(config, "enable_cuda_graph", False) or getattr(config, "cuda_graph_impl", None) == "local"
    return bool(enabled) and "full_iteration" in names


def _topology(chunks: int, framework: str, fingerprint: str) -> Topology:
    import torch.distributed
    from megatron.core import parallel_state as state

    shard_size = state.get_tensor_model_parallel_world_size()
    return Topology(
        rank=torch.distributed.get_rank(),
        world_size=torch.distributed.get_world_size(),
        pipeline=state.get_data_parallel_rank(),
        pipelines=state.get_data_parallel_world_size(),
        stage=state.get_pipeline_model_parallel_rank(),
        stages=state.get_pipeline_model_parallel_world_size(),
        shard_rank=state.get_context_parallel_rank() * shard_size + state.get_tensor_model_parallel_rank(),
        shard_size=state.get_context_parallel_world_size() * shard_size,
        chunks=chunks,
        framework=framework,
        fingerprint=fingerprint,
    )


def _fingerprint(chunks: Sequence[Any], config: Any, seq_length: int, micro_batch_size: int) -> str:
    shapes = [
        (name, tuple(weight.shape), str(weight.dtype)) for chunk in chunks for name, weight in chunk.named_parameters()
    ]
    settings = [(name, str(getattr(config, name, None))) for name in _TIMED_SETTINGS]
    return hashlib.sha256(repr((shapes, settings, seq_length, micro_batch_size)).encode()).hexdigest()[:16]
