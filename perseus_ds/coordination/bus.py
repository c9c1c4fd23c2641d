"""The control bus: how the ranks talk without the training waiting for it.

Own gloo groups, that the training does not see, in two levels: all ranks of a pipeline, and one leader per pipeline.
Two channels, each with a worker thread and groups of its own, so that a large plan in flight never delays
the few floats of an iteration. Every rank submits the same calls in the same order; results are futures.

Cost of one round for P pipelines of S stages with R tensor-parallel ranks each: a gather from S·R ranks, an
all-gather over P leaders of one condensed row each, a broadcast of the P rows to S·R ranks.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import pickle
import queue
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroupGloo, Store, _get_default_store

from perseus_ds.messages import PerseusError, RemoteError, one_line
from perseus_ds.pipeline.events import Topology

__all__ = ["Bus", "Layout"]

Condense = Callable[[np.ndarray], np.ndarray]
"""Makes one row of floats of an array (ranks of a pipeline, floats)."""

# The trainer never waits for bulk calls: solving takes its time. For its groups to connect, it does.
_BULK_TIMEOUT_S = 3600.0
_LAST_ROUND_S = 1.0
_GIVE_UP_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.005
_GATHER_ON_FIRST = dist.GatherOptions()


@dataclass(frozen=True)
class Layout:
    """Whom a rank talks to.

    Attributes:
        members: Ranks of its pipeline, ordered by stage, then tensor rank.
        leaders: The first rank of every pipeline; the first of them coordinates.
    """

    members: list[int]
    leaders: list[int]


class _Worker:
    """One thread that makes calls in the order submitted. A daemon: a call that hangs never keeps the job alive."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                result = call()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)


class _Closed(Exception):
    """Perseus is over on this rank; what was under way is left behind."""


class _Group:
    """A gloo group that the training knows nothing of: not even ``destroy_process_group`` touches it.

    Its calls are polled for, never waited for within gloo: a thread that is in there when the interpreter ends
    would abort the process. And it is never destroyed, because that would wait for a call that hangs.

    Args:
        ranks: Its members.
        rank: This rank, one of them.
        store: The job's key-value store.
        name: What no other group is called.
        connect_s: How long the members may take to meet.
        call_s: How long a call may take.
        closed: Set once no call is waited for any more.
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
    ) -> None:
        self._closed = closed
        self.size = len(ranks)
        self.index = ranks.index(rank)
        # Torch's stubs know none of a backend's collectives.
        self._group: Any = ProcessGroupGloo(
            PrefixStore(name, store), self.index, self.size, timedelta(seconds=connect_s)
        )
        self._group._set_default_timeout(timedelta(seconds=call_s))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return all members' tensors, shape (size, *tensor.shape)."""
        received = [torch.empty_like(tensor) for _ in range(self.size)]
        self._finish(self._group.allgather([received], [tensor]))
        return torch.stack(received)

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Fill every member's tensor with the first one's."""
        self._finish(self._group.broadcast(tensor, 0))
        return tensor

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return all members' tensors on the first one, an empty list on the others."""
        received = [torch.empty_like(tensor) for _ in range(self.size)] if self.index == 0 else []
        self._finish(self._group.gather([received] if received else [], [tensor], _GATHER_ON_FIRST))
        return received

    def _finish(self, work: Any) -> None:
        pause_s = _FIRST_PAUSE_S
        while not work.is_completed():
            if self._closed.is_set():
                raise _Closed
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        try:
            work.wait()
        except RuntimeError as error:
            if "timed out" in str(error).lower():
                raise TimeoutError(str(error)) from error
            raise

    def gather_object(self, value: Any) -> list[Any] | None:
        """Return all members' picklable values on the first one, None on the others."""
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = self.all_gather(torch.tensor([data.numel()])).flatten().tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: data.numel()] = data
        received = self.gather(padded)
        if self.index != 0:
            return None
        return [pickle.loads(bytes(row[:size].numpy())) for row, size in zip(received, sizes, strict=True)]

    def broadcast_object(self, value: Any) -> Any:
        """Return the first member's picklable value.

        Raises:
            PerseusError: What arrived is not what was sent.
        """
        data = zlib.compress(pickle.dumps(value), 1) if self.index == 0 else b""
        size, checksum = self.broadcast(torch.tensor([len(data), zlib.crc32(data)])).tolist()
        buffer = torch.frombuffer(bytearray(data or bytes(size)), dtype=torch.uint8)
        received = bytes(self.broadcast(buffer).numpy())
        if zlib.crc32(received) != checksum:
            raise PerseusError("broadcast-damaged")
        return pickle.loads(zlib.decompress(received))


class _Channel:
    """Two levels of groups and the thread that uses them."""

    def __init__(self, layout: Layout, rank: int, name: str, connect_s: float, call_s: float) -> None:
        store, leaders, members = _store(), layout.leaders, layout.members
        self._pipelines = len(leaders)
        self._closed = threading.Event()
        self._pipeline = _Group(members, rank, store, f"{name}/{members[0]}", connect_s, call_s, self._closed)
        self._leaders = None
        if len(leaders) > 1 and rank in leaders:
            self._leaders = _Group(leaders, rank, store, f"{name}/leaders", connect_s, call_s, self._closed)
        self.worker = _Worker(f"perseus_ds-{name}")

    def end(self, timeout_s: float) -> None:
        """Give calls under way some time to come to their end; what hangs is given up."""
        self.worker.close()
        self.worker.join(timeout_s)
        self._closed.set()
        self.worker.join(_GIVE_UP_S)

    def exchange(self, row: np.ndarray, condense: Condense, width: int) -> np.ndarray:
        """Give every rank the condensed rows of all pipelines: returns (pipelines, width)."""
        rows = self._pipeline.gather(torch.from_numpy(row))
        everything = torch.empty((self._pipelines, width), dtype=torch.float64)
        if rows:
            condensed = torch.from_numpy(condense(torch.stack(rows).numpy()))
            everything = condensed[None] if self._leaders is None else self._leaders.all_gather(condensed)
        return self._pipeline.broadcast(everything).numpy()

    def gather(self, value: Any) -> list[Any] | None:
        """Gather one picklable value per rank on the coordinator, in pipeline, stage, tensor-rank order."""
        pipeline = self._pipeline.gather_object(value)
        if self._leaders is None:
            return pipeline if self._pipelines == 1 else None
        everything = self._leaders.gather_object(pipeline)
        return None if everything is None else [value for part in everything for value in part]

    def broadcast(self, value: Any) -> Any:
        """Send the coordinator's value to all ranks."""
        if self._leaders is not None:
            try:
                value = self._leaders.broadcast_object(value)
            except Exception as error:
                self._pipeline.broadcast_object(_failure(error))  # its members wait
                raise
        return self._pipeline.broadcast_object(value)


class Bus:
    """One rank's end of the control bus.

    Args:
        topology: Where this rank stands.
        timeout_s: A round that takes longer fails, on every rank.
        condense: What a pipeline's leader makes of its ranks' floats.
        width: How many floats that are.

    Attributes:
        layout: Whom this rank talks to.
        rank: This rank.
        place: Its place where work is shared out: first every pipeline's leader, then their seconds, and so on, so
            that the shares come from all nodes.
    """

    def __init__(self, topology: Topology, timeout_s: float, condense: Condense, width: int) -> None:
        self.layout = _find_layout(topology, timeout_s)
        self.rank = topology.rank
        self.place = self.layout.members.index(self.rank) * topology.pipelines + topology.pipeline
        self._timeout_s = timeout_s
        self._condense, self._width = condense, width
        self._rounds = _Channel(self.layout, self.rank, "rounds", timeout_s, timeout_s)
        self._bulk = _Channel(self.layout, self.rank, "bulk", timeout_s, _BULK_TIMEOUT_S)
        atexit.register(self._end)

    @property
    def is_coordinator(self) -> bool:
        """True on the rank that solves and writes."""
        return self.rank == self.layout.leaders[0]

    def post(self, row: Sequence[float]) -> Future[np.ndarray]:
        """Contribute this rank's floats to the next round.

        Returns:
            Future of an array (pipelines, width), the same on all ranks.
        """
        contribution = np.asarray(row, dtype=np.float64)
        return self._rounds.worker.submit(lambda: self._rounds.exchange(contribution, self._condense, self._width))

    def gather(self, make: Callable[[], Any]) -> Future[list[Any] | None]:
        """Gather ``make()`` of every rank, called off the trainer's thread, on the coordinator.

        An error in one rank's ``make`` is an error of the coordinator's future.
        """

        def call() -> list[Any] | None:
            gathered = self._bulk.gather(_attempt(make))
            return None if gathered is None else [_result(value) for value in gathered]

        return self._bulk.worker.submit(call)

    def broadcast(self, make: Callable[[], Any], prepare: Callable[[Any], object] | None = None) -> Future[Any]:
        """Send the coordinator's ``make()``, called off the trainer's thread, to all ranks.

        An error in ``make`` is an error of every rank's future.

        Args:
            make: Returns what is sent; called on the coordinator alone.
            prepare: Called with what has arrived, on every rank, off the trainer's thread as well.
        """

        def call() -> Any:
            arrived = _result(self._bulk.broadcast(_attempt(make) if self.is_coordinator else None))
            if prepare is not None:
                prepare(arrived)
            return arrived

        return self._bulk.worker.submit(call)

    def agree(self, value: Any) -> list[Any]:
        """Exchange one picklable value per rank and wait for it; for start-up only.

        Returns:
            The values in pipeline, stage, tensor-rank order.
        """
        gathered = self.gather(lambda: value)
        return self.broadcast(gathered.result).result(self._timeout_s)

    def close(self) -> None:
        """Take no more calls; those under way come to their end without anybody waiting for them."""
        self._rounds.worker.close()
        self._bulk.worker.close()

    def _end(self) -> None:
        """The process ends: the others may still need this rank's last round, but plans nobody needs any more."""
        self._rounds.end(_LAST_ROUND_S)
        self._bulk.end(0.0)


@dataclass(frozen=True)
class _Failure:
    """An error on its way to the ranks that wait for a value."""

    line: str
    traceback: str


def _attempt(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> _Failure:
    return _Failure(one_line(error), "".join(traceback.format_exception(error)))


def _result(value: Any) -> Any:
    if isinstance(value, _Failure):
        raise RemoteError(value.line) from RuntimeError(value.traceback)
    return value


def _find_layout(topology: Topology, timeout_s: float) -> Layout:
    """Let every rank know whom it talks to, through the job's key-value store: one write and two reads a rank."""
    store, timeout = _store(), timedelta(seconds=timeout_s)
    store.set(f"place/{topology.rank}", json.dumps([topology.pipeline, topology.stage, topology.shard_rank]))
    if topology.rank == 0:
        keys = [f"place/{rank}" for rank in range(topology.world_size)]
        store.wait(keys, timeout)
        pipelines: list[list[int]] = [[] for _ in range(topology.pipelines)]
        places = [json.loads(store.get(key)) for key in keys]
        for rank in sorted(range(topology.world_size), key=places.__getitem__):
            pipelines[places[rank][0]].append(rank)
        for number, members in enumerate(pipelines):
            store.set(f"members/{number}", json.dumps(members))
        store.set("leaders", json.dumps([members[0] for members in pipelines]))
    store.wait(["leaders"], timeout)
    return Layout(json.loads(store.get(f"members/{topology.pipeline}")), json.loads(store.get("leaders")))


def _store() -> Store:
    return PrefixStore("perseus_ds", _get_default_store())
