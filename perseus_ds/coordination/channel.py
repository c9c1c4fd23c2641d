"""A channel of the control bus: groups on two levels, and the thread that uses them."""

from __future__ import annotations

import threading
from typing import Any

from torch.distributed.distributed_c10d import Store

from perseus_ds.coordination.call_thread import CallThread
from perseus_ds.coordination.failure import Failure
from perseus_ds.coordination.gloo_group import GlooGroup
from perseus_ds.coordination.layout import Layout

__all__ = ["Channel"]

_GIVE_UP_S = 0.2


class Channel:
    """All ranks of a pipeline, and one leader per pipeline.

    Args:
        layout: Partners of this rank.
        rank: This rank.
        store: The job's key-value store.
        name: Unique name.
        connect_s: Timeout for the ranks to meet.
        call_s: Timeout of a call.

    Attributes:
        pipelines: Number of pipelines.
        pipeline: The group of this rank's pipeline; its first member leads.
        leaders: The group of the leaders; None on other ranks, and with a single pipeline.
        thread: Makes all calls of the channel.
    """

    def __init__(self, layout: Layout, rank: int, store: Store, name: str, connect_s: float, call_s: float) -> None:
        leaders, members = layout.leaders, layout.members
        self._closed = threading.Event()
        self.pipelines = len(leaders)
        terms = connect_s, call_s, self._closed, layout.address
        self.pipeline = GlooGroup(members, rank, store, f"{name}/{members[0]}", *terms)
        self.leaders = None
        if len(leaders) > 1 and rank in leaders:
            self.leaders = GlooGroup(leaders, rank, store, f"{name}/leaders", *terms)
        self.thread = CallThread(f"perseus_ds-{name}")

    def end(self, timeout_s: float) -> None:
        """Give calls in progress some time to finish; abandon those that hang."""
        self.thread.close()
        self.thread.join(timeout_s)
        self._closed.set()
        self.thread.join(_GIVE_UP_S)

    @property
    def is_over(self) -> bool:
        """Whether every call has ended."""
        return not self.thread.is_alive

    def release(self) -> bool:
        """Give back what its groups hold, once it is over; return False if a call still hangs."""
        groups = [self.pipeline] if self.leaders is None else [self.pipeline, self.leaders]
        released = [group.release() for group in groups]
        return all(released)

    def gather(self, value: Any) -> list[Any] | None:
        """Gather one value per rank on the coordinator, in pipeline, stage, tensor-rank order.

        Returns:
            None on the other ranks.
        """
        pipeline = self.pipeline.gather_object(value)
        if self.leaders is None:
            return pipeline if self.pipelines == 1 else None
        everything = self.leaders.gather_object(pipeline)
        return None if everything is None else [value for part in everything for value in part]

    def broadcast(self, value: Any) -> Any:
        """Send the coordinator's value to all ranks.

        Returns:
            The value, or a ``Failure`` if it did not reach this rank's leader.
        """
        if self.leaders is not None:
            try:
                value = self.leaders.broadcast_object(value)
            except Exception as error:
                self.pipeline.broadcast_object(Failure.of(error))  # its members wait
                raise
        return self.pipeline.broadcast_object(value)
