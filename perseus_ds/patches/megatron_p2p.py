"""Megatron-Core's point-to-point communication: the tensors, their destinations, and the waits.

One call may send and receive in both directions; it ends with the arrival of all its tensors. With overlap it only
posts them, and the schedule later waits on the handles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perseus_ds.pipeline.events import Direction, Operation, Transfer
from perseus_ds.pipeline.kinds import Kind

from .integration import Integration, argument, exchange, reported
from .megatron_layout import running

__all__ = ["TRANSFER_ARGUMENTS", "wrap_communicate"]

TRANSFER_ARGUMENTS = ("tensor_send_prev", "recv_prev", "tensor_send_next", "recv_next", "wait_on_reqs")
"""Parameters of the communication function that describe its tensors."""

# Of the first four of them: the request's name, direction, tag, and which neighbour.
_REQUESTS = (
    ("send_prev", Direction.SEND, "gradient", -1),
    ("recv_prev", Direction.RECEIVE, "activation", -1),
    ("send_next", Direction.SEND, "activation", 1),
    ("recv_next", Direction.RECEIVE, "gradient", 1),
)


def wrap_communicate(original: Callable[..., Any], integration: Integration) -> Callable[..., Any]:
    """Return ``original`` with its exchanges, posts and waits reported.

    Args:
        original: ``p2p_communication._communicate`` or ``P2PCommunicator._communicate``.
        integration: Its listener receives the reports.
    """
    *tensors, waits = (argument(original, name) for name in TRANSFER_ARGUMENTS)

    def blocks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        found = waits(args, kwargs)
        return found is None or found

    def describe(*args: Any, **kwargs: Any) -> Operation | None:
        carried = tuple(_carries(find(args, kwargs)) for find in tensors)
        return _operation(carried, blocks(args, kwargs))

    communicate = reported(integration, original, describe)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = communicate(*args, **kwargs)
        topology = running.topology
        if topology is None or blocks(args, kwargs):
            return result
        transfers = _neighbours(topology.stage, topology.stages)
        match result:
            case (received_prev, received_next, dict() as requests) if transfers.keys() >= requests.keys():
                handles = {
                    name: _Handle(request, exchange(Kind.WAIT, (transfers[name],)), integration)
                    for name, request in requests.items()
                }
                return received_prev, received_next, handles
            case (_, _, None | []):
                return result
        integration.refuse_mode("a communicator that Perseus does not know", "what it waits for has other names")
        return result

    return run


class _Handle:
    """A request with a reported wait."""

    def __init__(self, request: Any, operation: Operation, integration: Integration) -> None:
        self._request = request
        self.wait = reported(integration, request.wait, lambda *_, **__: _now_or_later(operation))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def _carries(value: Any) -> bool:
    """Whether an argument is a tensor or True; tensors are not compared."""
    return value is not None and value is not False


def _operation(carried: tuple[bool, ...], blocking: bool) -> Operation | None:
    topology = running.topology
    if topology is None or not any(carried):
        return None
    return _now_or_later(_communication(carried, blocking, topology.stage, topology.stages))


def _now_or_later(operation: Operation) -> Operation | None:
    """Return the operation to report now; within an instruction it is held until the end of that."""
    if running.held is None:
        return operation
    running.held.append(operation)
    return None


@functools.cache
def _communication(carried: tuple[bool, ...], blocking: bool, stage: int, stages: int) -> Operation:
    neighbours = _neighbours(stage, stages)
    transfers = tuple(neighbours[row[0]] for row, wanted in zip(_REQUESTS, carried, strict=True) if wanted)
    return exchange(Kind.EXCHANGE if blocking else Kind.POST, transfers)


@functools.cache
def _neighbours(stage: int, stages: int) -> dict[str, Transfer]:
    """Return the four possible transfers of a stage by request name; the pipeline is a ring."""
    return {name: Transfer(direction, (stage + step) % stages, tag) for name, direction, tag, step in _REQUESTS}
