"""The control bus: communication between the ranks without delay to the training.

It has its own gloo groups, invisible to the training, on two levels: all ranks of a pipeline, and one leader per
pipeline. Its two channels each have a thread and groups of their own, so a large plan in flight never delays the few
floats of an iteration. Every rank submits the same calls in the same order; results are futures.

Cost of one round for P pipelines of S stages with R tensor-parallel ranks each: a gather from S·R ranks, an
all-gather over P leaders of one condensed row each, a broadcast of the P rows to S·R ranks.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from torch.distributed.distributed_c10d import Store

from perseus_ds.coordination.channel import Channel
from perseus_ds.coordination.failure import attempt, value_of
from perseus_ds.coordination.layout import find_layout, job_store
from perseus_ds.coordination.round_exchange import Condense, exchange_round
from perseus_ds.pipeline.events import Topology

__all__ = ["Bus"]

# The trainer never waits for bulk calls: solving takes its time. For its groups to connect, it does.
_BULK_TIMEOUT_S = 3600.0
_LAST_ROUND_S = 1.0


class Bus:
    """One rank's end of the control bus.

    Args:
        topology: Position of this rank, as its framework counts the replicas; ``layout`` has the independent ones.
        timeout_s: A longer round fails, on every rank.
        condense: Reduces the floats of a pipeline's ranks to one row, on the leader.
        width: Length of that row.
        store: Where its ranks meet; default: the job's key-value store.

    Attributes:
        layout: Partners of this rank.
        rank: This rank.
        place: Its place in the division of work.
    """

    def __init__(
        self, topology: Topology, timeout_s: float, condense: Condense, width: int, store: Store | None = None
    ) -> None:
        store = job_store() if store is None else store
        self.layout = find_layout(topology, store, timeout_s)
        self.rank = topology.rank
        self.place = self.layout.place
        self._timeout_s = timeout_s
        self._condense, self._width = condense, width
        self._rounds = Channel(self.layout, self.rank, store, "rounds", timeout_s, timeout_s)
        self._bulk = Channel(self.layout, self.rank, store, "bulk", timeout_s, _BULK_TIMEOUT_S)
        atexit.register(self._end)

    @property
    def is_coordinator(self) -> bool:
        """True on the rank that solves and writes."""
        return self.rank == self.layout.coordinator

    def post(self, row: Sequence[float]) -> Future[np.ndarray]:
        """Contribute this rank's floats to the next round.

        Returns:
            Future of an array (pipelines, width), the same on all ranks.
        """
        contribution = np.asarray(row, dtype=np.float64)
        return self._rounds.thread.submit(
            lambda: exchange_round(self._rounds, contribution, self._condense, self._width)
        )

    def gather(self, make: Callable[[], Any]) -> Future[list[Any] | None]:
        """Gather ``make()`` of every rank on the coordinator; ``make`` runs off the trainer thread.

        An error in any rank's ``make`` becomes an error of the coordinator's future.
        """

        def call() -> list[Any] | None:
            gathered = self._bulk.gather(attempt(make))
            return None if gathered is None else [value_of(sent) for sent in gathered]

        return self._bulk.thread.submit(call)

    def broadcast(self, make: Callable[[], Any], prepare: Callable[[Any], object] | None = None) -> Future[Any]:
        """Send the coordinator's ``make()`` to all ranks; ``make`` runs off the trainer thread.

        An error in ``make`` becomes an error of every rank's future.

        Args:
            make: Returns the value to send; called on the coordinator only.
            prepare: Called with the received value on every rank, also off the trainer thread.
        """

        def call() -> Any:
            arrived = value_of(self._bulk.broadcast(attempt(make) if self.is_coordinator else None))
            if prepare is not None:
                prepare(arrived)
            return arrived

        return self._bulk.thread.submit(call)

    def agree(self, value: Any) -> list[Any]:
        """Exchange one value per rank and wait for it; only for start-up.

        Returns:
            The values in pipeline, stage, tensor-rank order.
        """
        gathered = self.gather(lambda: value)
        return self.broadcast(gathered.result).result(self._timeout_s)

    def close(self) -> None:
        """Accept no more calls; those in progress finish without anyone waiting."""
        self._rounds.thread.close()
        self._bulk.thread.close()

    def give_up(self, patience_s: float) -> None:
        """Abandon all calls that wait for other ranks; a solve in progress goes on until ``is_over``.

        Args:
            patience_s: Time for this rank's last round, which may tell the others of a failure.
        """
        atexit.unregister(self._end)
        self._rounds.end(patience_s)
        self._bulk.end(0.0)

    @property
    def is_over(self) -> bool:
        """Whether none of its calls runs any more."""
        return self._rounds.is_over and self._bulk.is_over

    def release(self) -> bool:
        """Give back the threads and connections of a bus that is over; return False while a call hangs within gloo."""
        released = [channel.release() for channel in (self._rounds, self._bulk)]
        return all(released)

    def _end(self) -> None:
        """The process ends: finish this rank's last round, which others may need, but no plans."""
        self._rounds.end(_LAST_ROUND_S)
        self._bulk.end(0.0)
