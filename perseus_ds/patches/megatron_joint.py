"""Megatron-Core's joint passes: with overlapped expert parallelism a forward and a backward run as one.

One call (``combined_1f1b``) runs the forward of one micro-batch and the backward of another, layer by layer, or either
alone. With overlapped exchanges it waits for its inputs at its begin and posts its outputs near its end: the waits come
before the instruction, the posts are held and reported after it, because operations never nest.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind

from .integration import Integration, instruction
from .megatron_layout import running
from .target import Target

__all__ = ["joint_targets"]

_COMBINED = "megatron.core.pipeline_parallel.combined_1f1b"
_STEP = "combined_forward_backward_step"
_SCHEDULES = ("combined_1f1b_schedule_for_no_pipelining", "combined_1f1b_schedule_for_interleaved_pipelining")
_PARAMETERS = ("f_model", "b_model", "b_output_tensor", "current_microbatch", "pre_forward", "pre_backward")


def joint_targets() -> tuple[Target, ...]:
    """Return the targets, none in releases that lack one of them: there, joint passes are refused as unknown."""
    targets = (
        Target(_COMBINED, _STEP, _PARAMETERS, _wrap_combined_step),
        *(Target(_COMBINED, name, calls=(_STEP,)) for name in _SCHEDULES),
    )
    return () if any(target.misfit() for target in targets) else targets


def _wrap_combined_step(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def combined_step(*args: Any, **kwargs: Any) -> Any:
        listener = integration.listener
        if listener is None or running.topology is None:
            return original(*args, **kwargs)
        call = signature.bind(*args, **kwargs)
        given = call.arguments
        operation = _operation(given)

        def begin() -> None:
            running.held = []
            listener.operation_begin(operation)

        waits = [
            wait
            for wait, model in (("pre_forward", "f_model"), ("pre_backward", "b_model"))
            if given.get(wait) is not None and given[model] is not None
        ]
        if waits:
            given[waits[-1]] = _and_then(given[waits[-1]], begin)
        else:
            begin()
        result = original(*call.args, **call.kwargs)
        listener.operation_end(operation)
        held, running.held = running.held, None
        for one in held or ():
            listener.operation_begin(one)
            listener.operation_end(one)
        if operation.kind.computes_forward:
            # A plain forward, for the backward that gets its tensor.
            running.forward_of[id(result[0])] = instruction(Kind.FORWARD, operation.microbatch, operation.chunk)
        running.forwards += operation.kind.computes_forward
        running.backwards += operation.kind.computes_backward
        return result

    return combined_step


def _operation(given: dict[str, Any]) -> Operation:
    """Return the operation of a call with these arguments."""
    backward = None
    if given["b_model"] is not None:
        tensor = given["b_output_tensor"]
        backward = running.forward_of.pop(id(tensor[0] if isinstance(tensor, list) else tensor))
    if given["f_model"] is None:
        assert backward is not None, "a step of neither pass"
        return instruction(Kind.BACKWARD, backward.microbatch, backward.chunk)
    microbatch, chunk = given["current_microbatch"], running.chunk_of[id(given["f_model"])]
    if backward is None:
        return instruction(Kind.FORWARD, microbatch, chunk)
    return _joint(microbatch, chunk, backward.microbatch, backward.chunk)


@functools.cache
def _joint(microbatch: int, chunk: int, backward_microbatch: int, backward_chunk: int) -> Operation:
    return Operation(
        Kind.FORWARD_BACKWARD,
        microbatch,
        chunk,
        backward_microbatch=backward_microbatch,
        backward_chunk=backward_chunk,
    )


def _and_then(first: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(first)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = first(*args, **kwargs)
        then()
        return result

    return run
