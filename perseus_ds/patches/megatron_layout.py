"""Layout of a Megatron-Core rank: its position, and the inputs of its profile."""

from __future__ import annotations

import hashlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from perseus_ds.pipeline.events import Operation, Topology

__all__ = ["Running", "running", "topology_of"]

# Settings that change no instruction's time and may differ from start to start.
_UNTIMED_SETTINGS = ("config_logger_dir", "use_cpu_initialization", "perform_initialization")


# Groups whose ranks run in step, by the name that parallel_state has for them.
_AXES = {
    "tensor": "tensor_model_parallel",
    "context": "context_parallel",
    "weights": "gtp_weight_remat",
    "expert": "expert_model_parallel",
    "expert tensor": "expert_tensor_parallel",
    "expert weights": "expert_gtp_weight_remat",
}


class Running:
    """The current schedule; a process runs one at a time.

    Attributes:
        topology: Position of this rank; None between schedules.
        chunk_of: Index of each model chunk, by identity.
        forward_of: The forward that made a tensor, by identity: a backward only sees that tensor.
        held: Communication within the instruction that runs, to be reported after it; None: outside of one, or where
            an instruction never communicates.
        forwards: Number of forwards seen so far.
        backwards: Number of backwards seen so far.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.chunk_of: dict[int, int] = {}
        self.forward_of: dict[int, Operation] = {}
        self.held: list[Operation] | None = None
        self.forwards = self.backwards = 0

    def begin(self, topology: Topology, chunks: Sequence[Any]) -> None:
        """A schedule begins."""
        self.topology = topology
        self.chunk_of = {id(chunk): index for index, chunk in enumerate(chunks)}
        self.forwards = self.backwards = 0

    def end(self) -> None:
        """The schedule is over, or an exception ended it."""
        self.topology = None
        self.chunk_of = {}
        self.forward_of.clear()
        self.held = None


running = Running()

_known: weakref.WeakKeyDictionary[Any, dict[tuple[int, int], Topology]] = weakref.WeakKeyDictionary()


def topology_of(chunks: Sequence[Any], config: Any, seq_length: int, micro_batch_size: int, framework: str) -> Topology:
    """Return the position of this rank, cached per model and input shape.

    All tensor-parallel and context-parallel ranks of a stage run in step and form one stage. Ranks that exchange
    tokens of experts, or share weights, are replicas to Megatron-Core; ``axes`` name them.

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
        axes=tuple(_axes()),
    )


def _axes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and ranks of the groups that exchange data within an instruction, as far as this release has them."""
    import torch.distributed
    from megatron.core import parallel_state as state

    known = set()
    for axis, name in _AXES.items():
        group = _group(getattr(state, f"get_{name}_group", None))
        ranks = tuple(torch.distributed.get_process_group_ranks(group)) if group is not None else ()
        # The experts' tensor parallelism is that of the others, unless it has a size of its own.
        if len(ranks) > 1 and ranks not in known:
            known.add(ranks)
            yield axis, ranks


def _group(get_group: Callable[..., Any] | None) -> Any:
    """Return a group of parallel_state; None where there is none."""
    if get_group is None:
        return None
    if "check_initialized" in inspect.signature(get_group).parameters:
        return get_group(check_initialized=False)
    with suppress(AssertionError):
        return get_group()
    return None


def _fingerprint(chunks: Sequence[Any], config: Any, seq_length: int, micro_batch_size: int) -> str:
    """Return a digest of what an instruction's time depends on: shapes, precision, and every plain setting.

    A list of the settings that count would go out of date with the next release.
    """
    shapes = [
        (name, tuple(weight.shape), str(weight.dtype)) for chunk in chunks for name, weight in chunk.named_parameters()
    ]
    reduction = getattr(chunks[0], "ddp_config", None)
    depends_on = (shapes, _settings(config), reduction and _settings(reduction), seq_length, micro_batch_size)
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]


def _settings(config: Any) -> list[tuple[str, str]]:
    """Return the plain values and functions of a configuration by name; other objects say nothing that lasts."""
    values = ((name, _plain(value)) for name, value in sorted(vars(config).items()) if name not in _UNTIMED_SETTINGS)
    return [(name, text) for name, text in values if text is not None]


def _plain(value: Any) -> str | None:
    import torch

    if isinstance(value, list | tuple):
        return str([_plain(one) for one in value])
    if isinstance(value, Mapping):
        return str(sorted((str(key), _plain(one)) for key, one in value.items()))
    if is_dataclass(value) and not isinstance(value, type):
        return str([(one.name, _plain(getattr(value, one.name))) for one in fields(value)])
    if isinstance(value, str | int | float | Enum | torch.dtype):
        return str(value)
    return getattr(value, "__qualname__", None)
