"""Megatron-Core's pipeline schedules: the hooks frame the three schedule functions and report their steps.

The schedules look up ``forward_step`` and ``backward_step`` as module globals at every call, which is checked. Their
signatures differ, so the hooks find arguments by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind

from .checkpoints import loading, saving
from .integration import Integration, argument, instruction, reported
from .megatron_joint import joint_targets
from .megatron_layout import running, topology_of
from .megatron_modes import hidden_mode
from .megatron_p2p import TRANSFER_ARGUMENTS, wrap_communicate
from .target import Target

__all__ = ["MEGATRON"]

_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_P2P = "megatron.core.pipeline_parallel.p2p_communication"
_COMMUNICATE = ("_communicate", "P2PCommunicator._communicate")
_STEPS = ("forward_step", "backward_step")
_CHECKPOINTS = "megatron.core.dist_checkpointing"
_SCHEDULE_FUNCTIONS = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_with_interleaving",
    "forward_backward_pipelining_without_interleaving",
)
_STATE = "megatron.core.parallel_state"
# The position of a rank is asked of these.
_STATE_FUNCTIONS = (
    "model_parallel_is_initialized",
    "get_pipeline_model_parallel_group",
    *(
        f"get_{axis}_parallel_{what}"
        for axis in ("tensor_model", "context", "pipeline_model", "data")
        for what in ("rank", "world_size")
    ),
)


def _wrap_schedule(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if integration.listener is None:
            return original(*args, **kwargs)
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        chunks = given["model"] if isinstance(given["model"], list) else [given["model"]]
        config = _model_config(chunks[0])
        if hidden := integration.look(lambda: hidden_mode(config, given)):
            integration.refuse_mode(*hidden)
        topology = integration.look(
            lambda: topology_of(chunks, config, given["seq_length"], given["micro_batch_size"], integration.framework)
        )
        listener = integration.listener
        if listener is None or topology is None:
            return original(*args, **kwargs)
        training = not given["forward_only"]
        running.begin(topology, chunks)
        listener.iteration_begin(topology, given["num_microbatches"], training)
        finalize = getattr(config, "finalize_model_grads_func", None)
        if finalize is not None:
            config.finalize_model_grads_func = reported(integration, finalize, _reduction)
        try:
            result = original(*args, **kwargs)
        finally:
            if finalize is not None:
                config.finalize_model_grads_func = finalize
            running.end()
        listener.iteration_end()
        if training:
            integration.expect_passes(running.forwards, running.backwards, given["num_microbatches"] * len(chunks))
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
        running.forward_of[id(result[0] if isinstance(result, tuple) else result)] = operation
        running.forwards += 1
        return result

    return forward_step


def _wrap_backward(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    output_of = argument(original, "output_tensor")

    def describe(*args: Any, **kwargs: Any) -> Operation | None:
        forward = running.forward_of.pop(id(output_of(args, kwargs)), None)
        running.backwards += forward is not None
        return forward and instruction(Kind.BACKWARD, forward.microbatch, forward.chunk)

    return reported(integration, original, describe)


def _reduction(*_: Any, **__: Any) -> Operation:
    return instruction(Kind.REDUCE, -1, 0)


def _model_config(chunk: Any) -> Any:
    from megatron.core.utils import get_model_config

    return get_model_config(chunk)


def _find_targets() -> tuple[Target, ...]:
    # A function of the module up to 0.13, a method of the communicator since.
    function, method = (Target(_P2P, name, TRANSFER_ARGUMENTS, wrap_communicate) for name in _COMMUNICATE)
    arguments = ("model", "num_microbatches", "seq_length", "micro_batch_size", "forward_only")
    return (
        *(Target(_SCHEDULES, name, arguments, _wrap_schedule, _STEPS) for name in _SCHEDULE_FUNCTIONS),
        Target(_SCHEDULES, "forward_step", ("model", "current_microbatch"), _wrap_forward),
        Target(_SCHEDULES, "backward_step", ("output_tensor",), _wrap_backward),
        function if function.exists() else method,
        *joint_targets(),
        saving(_CHECKPOINTS, "save", "checkpoint_dir"),
        loading(_CHECKPOINTS, "load", "checkpoint_dir"),
        *(Target(_STATE, name) for name in _STATE_FUNCTIONS),
        Target("megatron.core.utils", "get_model_config"),
    )


MEGATRON = Integration("megatron-core", "megatron.core", ">=0.12.3,<=0.20.0", _find_targets)
"""Megatron-Core's schedules: no pipelining, 1F1B and interleaved 1F1B."""
