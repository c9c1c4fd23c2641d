"""A gloo group of Perseus's own."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from perseus_ds.coordination.group_store import GroupStore
from perseus_ds.coordination.packing import pack, unpack

__all__ = ["GlooGroup", "GroupClosed"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.005
_GATHER_ON_FIRST = dist.GatherOptions()


class GroupClosed(Exception):
    """The group is closed, or one of its calls has failed: calls in progress are abandoned, none begins any more."""


class GlooGroup:
    """A gloo group unknown to the training: not even ``destroy_process_group`` touches it.

    A thread that comes back from torch at the interpreter's end would abort the process. So the group polls for its
    calls and never waits within gloo, and once it is closed it uses torch no more. Only ``release`` destroys it,
    because that would wait for a hanging call.

    Args:
        ranks: Its members.
        rank: This rank, one of them.
        store: The job's key-value store.
        name: Unique name.
        connect_s: Timeout for the members to meet.
        call_s: Timeout of a call.
        closed: Set once nobody waits for calls any more.
        address: This node's address to listen at; empty: gloo chooses.

    Attributes:
        size: Number of members.
        index: This rank's place among them.
    """

    def __init__(
        self,
        ranks: list[int],
        rank: int,
        store: Store,
        name: str,
        connect_s: float,
        call_s: float,
        closed: threading.Event,
        address: str = "",
    ) -> None:
        self._closed = closed
        self._failed = False
        self._work: Any = None  # of the latest call, until it has ended
        self.size = len(ranks)
        self.index = ranks.index(rank)
        # Torch's stubs know neither a backend's options nor its collectives.
        gloo: Any = ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=connect_s)
        options._devices = [gloo.create_device(hostname=address) if address else gloo.create_default_device()]
        self._store = GroupStore(PrefixStore(name, store), self.size, self.index, connect_s)  # gloo calls it
        self._group: Any = gloo(self._store, self.index, self.size, options)
        self._store.publish()
        self._group._set_default_timeout(timedelta(seconds=call_s))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def release(self) -> bool:
        """Give back the group's threads and connections, once nobody makes calls any more.

        Returns:
            False if a call hangs: it ends with its timeout, or once another member releases its end.
        """
        if self._work is not None and not self._work.is_completed():
            return False
        group, self._group, self._work = self._group, None, None
        if group is not None:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(group))
        return True

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return all members' tensors, shape (size, *tensor.shape)."""
        self._check()
        received = [torch.empty_like(tensor) for _ in range(self.size)]
        self._make(lambda: self._group.allgather([received], [tensor]))
        return torch.stack(received)

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy the first member's tensor to every member."""
        self._make(lambda: self._group.broadcast(tensor, 0))
        return tensor

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return all members' tensors on the first one, an empty list on the others."""
        self._check()
        received = [torch.empty_like(tensor) for _ in range(self.size)] if self.index == 0 else []
        self._make(lambda: self._group.gather([received] if received else [], [tensor], _GATHER_ON_FIRST))
        return received

    def gather_object(self, value: Any) -> list[Any] | None:
        """Return all members' values on the first one, None on the others.

        Raises:
            PerseusError: What arrived is not what was sent.
        """
        packed = bytearray(pack(value))
        self._check()
        data = torch.frombuffer(packed, dtype=torch.uint8)
        sizes = self.all_gather(torch.tensor([data.numel()])).flatten().tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: data.numel()] = data
        received = self.gather(padded)
        if self.index != 0:
            return None
        return [unpack(bytes(row[:size].numpy())) for row, size in zip(received, sizes, strict=True)]

    def broadcast_object(self, value: Any) -> Any:
        """Return the first member's value.

        Raises:
            PerseusError: What arrived is not what was sent.
        """
        data = pack(value) if self.index == 0 else b""
        self._check()
        size = int(self.broadcast(torch.tensor([len(data)])).item())
        buffer = torch.frombuffer(bytearray(data or bytes(size)), dtype=torch.uint8)
        return unpack(bytes(self.broadcast(buffer).numpy()))

    def _check(self) -> None:
        """Go on, unless the members may be at different calls by now: gloo would abort the process."""
        if self._failed or self._closed.is_set():
            raise GroupClosed

    def _make(self, begin: Callable[[], Any]) -> None:
        """Make a call."""
        self._check()
        self._failed = True
        self._work = begin()
        self._finish()
        self._failed, self._work = False, None

    def _finish(self) -> None:
        # No other name for the call: a traceback that somebody keeps would keep it, and with it its connections.
        pause_s = _FIRST_PAUSE_S
        while not self._work.is_completed():
            if self._closed.is_set():
                raise GroupClosed
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        try:
            self._work.wait()
        except RuntimeError as error:
            if "timed out" in str(error).lower():
                raise TimeoutError(str(error)) from error
            raise
