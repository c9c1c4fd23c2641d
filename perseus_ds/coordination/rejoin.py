"""One rank's way back to the others after a failure, on a thread of its own.

The ranks meet in the job's key-value store, make a new bus, and take over the coordinator's decision core. Then they
agree on an iteration that none of them has begun. At its begin each rank hears whether all have agreed in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch.distributed.distributed_c10d import Store

from perseus_ds.console import log
from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.rendezvous import call_off, meet, own_connection, part_of
from perseus_ds.messages import PerseusError, one_line

__all__ = ["Offer", "Rejoin", "RejoinTerms", "end_for_good"]

_POLL_S = 0.05
_RETRY_PAUSE_S = 1.0
_CLOSING_S = 1.0
_RELEASE_S = 30.0  # a call that hangs so long ends by its own timeout; its group stays
_LEAD = 2  # iterations between the agreement and the return: hosts of different ranks are not at the same one


@dataclass(frozen=True)
class RejoinTerms:
    """All that a rank needs to come back.

    Attributes:
        store: The job's key-value store.
        ranks: Number of ranks.
        timeout_s: For each step once all ranks have met.
        make_bus: Makes this rank's end of a new bus in a part of the store.
        make_core: Called on the coordinator with its decision core: what all ranks go on with.
        limit: Counts the failures, on the coordinator; None on the others: its word counts.
    """

    store: Store
    ranks: int
    timeout_s: float
    make_bus: Callable[[Store], Bus]
    make_core: Callable[[PhaseController], PhaseController]
    limit: FailureLimit | None


@dataclass(frozen=True)
class Offer:
    """A way back.

    Attributes:
        bus: The new bus.
        core: The common decision core.
        iteration: The first one together, if all agree.
        agreed: Whether all ranks have agreed before they began it.
    """

    bus: Bus
    core: PhaseController
    iteration: int
    agreed: Future[bool] = field(default_factory=Future)


class Rejoin:
    """A rank that has left the others after a failure.

    Args:
        terms: All that it needs.
        bus: The bus it has left.
        core: Its decision core; the coordinator's counts.
        number: Of the next meeting; all ranks count alike.
        iteration: The latest one that this rank has begun.
        patience_s: Time for the last round on the old bus.

    Attributes:
        number: Of the latest meeting.
    """

    def __init__(
        self, terms: RejoinTerms, bus: Bus, core: PhaseController, number: int, iteration: int, patience_s: float
    ) -> None:
        self.number = number
        self._terms = terms
        self._left, self._core = bus, core
        self._spent = [bus]  # what nobody uses any more
        self._patience_s = patience_s
        self._iteration = iteration
        self._offer: Offer | None = None
        self._over: str | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="perseus_ds-rejoin", daemon=True)
        self._thread.start()

    def begins(self, iteration: int) -> Offer | None:
        """Tell that this rank begins an iteration.

        Returns:
            The way back if all ranks return with this iteration, else None.

        Raises:
            PerseusError: It has ended for good.
        """
        with self._lock:
            self._iteration = iteration
            offer = self._offer
        if self._over is not None:
            raise PerseusError("failed-elsewhere", ranks=self._over)
        if offer is None or iteration < offer.iteration:
            return None
        self._offer = None
        # The others need not come to this iteration to answer: their threads do.
        return offer if offer.agreed.result(3 * self._terms.timeout_s) else None

    def call_off(self, cause: str) -> None:
        """End it for good, on all ranks."""
        self._closed.set()
        end_for_good(self._terms.store, self.number, cause)

    def close(self) -> None:
        """Try no more."""
        self._closed.set()
        self._thread.join(_CLOSING_S)

    def _work(self) -> None:
        self._left.give_up(self._patience_s)
        while not self._left.is_over and not self._closed.wait(_POLL_S):
            pass
        store = own_connection(self._terms.store)
        while not self._closed.is_set():
            try:
                self._over = meet(store, self.number, self._terms.ranks, self._closed)
                if self._over is None:
                    self._return(part_of(store, self.number))
                    self._release()
                return
            except Exception as error:
                self._failed(store, error)

    def _failed(self, store: Store, error: Exception) -> None:
        """Count a meeting that came to nothing."""
        log.debug("meeting %d: %s", self.number, one_line(error))
        self.number += 1
        limit = self._terms.limit
        if limit is not None and not limit.survives(time.monotonic()):
            self._over = one_line(error)
            self._closed.set()
            end_for_good(store, self.number, self._over)
        self._closed.wait(_RETRY_PAUSE_S)

    def _return(self, store: Store) -> None:
        """Make the new bus and agree on an iteration."""
        bus = self._terms.make_bus(store)
        try:
            core = bus.broadcast(lambda: self._terms.make_core(self._core)).result(self._terms.timeout_s)
            lead = _LEAD
            while not self._agree(bus, core, lead) and not self._closed.is_set():
                lead *= 2
        except Exception:
            bus.give_up(0.0)
            self._spent.append(bus)
            raise

    def _release(self) -> None:
        """Give back what the old buses hold. All ranks have met, so none waits for an answer on them."""
        give_up_s = time.monotonic() + _RELEASE_S
        while self._spent and time.monotonic() < give_up_s and not self._closed.wait(_POLL_S):
            self._spent = [bus for bus in self._spent if not (bus.is_over and bus.release())]

    def _agree(self, bus: Bus, core: PhaseController, lead: int) -> bool:
        """Agree on the first common iteration; iterations shorter than the agreement need another try."""
        offer = Offer(bus, core, max(bus.agree(self._iteration)) + lead)
        with self._lock:
            in_time = self._iteration < offer.iteration
            self._offer = offer if in_time else None
        try:
            agreed = all(bus.agree(in_time))
        except Exception:
            offer.agreed.set_result(False)
            raise
        offer.agreed.set_result(agreed)
        return agreed


def end_for_good(store: Store, number: int, cause: str) -> None:
    """Let no rank come back any more; returns at once.

    Args:
        store: The job's key-value store.
        number: Of the next meeting.
        cause: Told to the ranks that come.
    """

    def work() -> None:
        try:
            call_off(own_connection(store), number, cause)
        except Exception as error:
            log.debug("meeting %d: %s", number, one_line(error))

    threading.Thread(target=work, name="perseus_ds-call-off", daemon=True).start()
