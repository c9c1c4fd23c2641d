"""Megatron-Core's pipeline schedules: the three schedule functions are framed, their steps are reported.

The schedules look ``forward_step`` and ``backward_step`` up as globals of their module at every call, in all
supported versions. Their signatures differ, so arguments are found by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind

from .checkpoints import loading, saving
from .integration import Integration, Target, argument, instruction, reported
from .megatron_layout import hidden_mode, running, topology_of
from .megatron_p2p import TRANSFER_ARGUMENTS, wrap_communicate

__all__ = ["MEGATRON"]

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_P2P = "megatron.core.pipeline_parallel.p2p_communication"
_CHECKPOINTS = "megatron.core.dist_checkpointing"
_SCHEDULE_FUNCTIONS = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_with_interleaving",
    "forward_backward_pipelining_without_interleaving",
)
# The process groups that a schedule may be given: 0.14's name of the argument, and the one since.
_GROUPS = ("grad_finalize_pgs", "pg_collection")


def _wrap_schedule(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        model = kwargs["model"]
        chunks = model if isinstance(model, list) else [model]
        config = _model_config(chunks[0])
        groups = next((kwargs[name] for name in _GROUPS if kwargs.get(name) is not None), None)
        hidden = hidden_mode(config, groups) if integration.listener is not None else None
        if hidden is not None:
            integration.refuse(hidden(integration.framework))
        listener = integration.listener
        if listener is None:
            return original(*args, **kwargs)
        topology = topology_of(chunks, config, kwargs["seq_length"], kwargs["micro_batch_size"], integration.framework)
        running.begin(topology, chunks)
        listener.iteration_begin(topology, kwargs["num_microbatches"], not kwargs.get("forward_only", False))
        finalize = config.finalize_model_grads_func
        if finalize is not None:
            config.finalize_model_grads_func = reported(integration, finalize, _reduction)
        try:
            result = original(*args, **kwargs)
        finally:
            config.finalize_model_grads_func = finalize
            running.end()
        listener.iteration_end()
        return result

    return run


def _wrap_forward(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    model_of = argument(original, "model")
    microbatch_of = argument(original, "current_microbatch")

    @functools.wraps(original)
    def forward_step(*args: Any, **kwargs: Any) -> Any:
        listener = integration.listener
        chunk = running.chunk_of.get(id(model_of(args, kwargs)))
        if listener is None or chunk is None:
            return original(*args, **kwargs)
        operation = instruction(Kind.FORWARD, microbatch_of(args, kwargs), chunk)
        listener.operation_begin(operation)
        result = original(*args, **kwargs)
        listener.operation_end(operation)
        running.forward_of[id(result[0])] = operation
        return result

    return forward_step


def _wrap_backward(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    output_of = argument(original, "output_tensor")

    def describe(*args: Any, **kwargs: Any) -> Operation | None:
        forward = running.forward_of.pop(id(output_of(args, kwargs)), None)
        return forward and instruction(Kind.BACKWARD, forward.microbatch, forward.chunk)

    return reported(integration, original, describe)


def _reduction(*_: Any, **__: Any) -> Operation:
    return instruction(Kind.REDUCE, -1, 0)


def _model_config(chunk: Any) -> Any:
    from megatron.core.utils import get_model_config

    return get_model_config(chunk)


def _find_targets() -> tuple[Target, ...]:
    from megatron.core.pipeline_parallel import p2p_communication

    # A function of the module up to 0.13, a method of the communicator since.
    communicate = "_communicate" if hasattr(p2p_communication, "_communicate") else "P2PCommunicator._communicate"
    arguments = ("model", "num_microbatches", "seq_length", "micro_batch_size", "forward_only")
    return (
        *(Target(_SCHEDULES, name, arguments, _wrap_schedule) for name in _SCHEDULE_FUNCTIONS),
        Target(_SCHEDULES, "forward_step", ("model", "current_microbatch"), _wrap_forward),
        Target(_SCHEDULES, "backward_step", ("output_tensor",), _wrap_backward),
        Target(_P2P, communicate, TRANSFER_ARGUMENTS, wrap_communicate),
        saving(_CHECKPOINTS, "save", "checkpoint_dir"),
        loading(_CHECKPOINTS, "load", "checkpoint_dir"),
    )


MEGATRON = Integration("megatron-core", "megatron.core", ">=0.12.3,<0.17", _find_targets)
"""Megatron-Core's schedules: no pipelining, 1F1B and interleaved 1F1B."""
