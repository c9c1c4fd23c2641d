"""What a session needs to come back after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable

from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.phase_controller import PhaseController
from perseus_ds.coordination.rejoin import Offer, Rejoin, RejoinTerms, end_for_good
from perseus_ds.runtime.meter import RankMeter
from perseus_ds.runtime.request_executor import RequestExecutor

__all__ = ["Comeback"]


class Comeback:
    """The failures of one rank, and its way back from each.

    Args:
        terms: All that it takes.
        make_executor: Makes the executor on a new bus, for the plans that the decision core holds already.
    """

    def __init__(
        self, terms: RejoinTerms, make_executor: Callable[[Bus, PhaseController, RankMeter], RequestExecutor]
    ) -> None:
        self._terms = terms
        self._make_executor = make_executor
        self._meetings = 0
        self._rejoin: Rejoin | None = None
        self._latest: Rejoin | None = None  # it may still release what the old buses hold

    @property
    def under_way(self) -> bool:
        """Whether this rank has left the others, and has not come back."""
        return self._rejoin is not None

    def leave(self, bus: Bus, core: PhaseController, iteration: int, patience_s: float, cause: str) -> bool:
        """Leave the other ranks, and meet them again on a thread.

        Args:
            bus: The bus that has failed.
            core: This rank's decision core.
            iteration: The latest one that it has begun.
            patience_s: Time for its last round.
            cause: Told to the others if this is the end.

        Returns:
            False if it is: too many failures in a short time, or one on the way back.
        """
        limit = self._terms.limit
        if self._rejoin is not None or (limit is not None and not limit.survives(time.monotonic())):
            self.call_off(cause)
            return False
        self._rejoin = Rejoin(self._terms, bus, core, self._meetings + 1, iteration, patience_s)
        self._latest = self._rejoin
        return True

    def call_off(self, cause: str) -> None:
        """End it for good, on all ranks."""
        if self._rejoin is not None:
            self._rejoin.call_off(cause)
        else:
            end_for_good(self._terms.store, self._meetings + 1, cause)

    def begins(self, iteration: int) -> Offer | None:
        """Tell that this rank begins an iteration; see ``Rejoin.begins``."""
        if self._rejoin is None or (offer := self._rejoin.begins(iteration)) is None:
            return None
        self._meetings, self._rejoin = self._rejoin.number, None
        offer.core.together_again(iteration)
        return offer

    def executor(self, offer: Offer, meter: RankMeter) -> RequestExecutor:
        """Return the executor on the new bus."""
        return self._make_executor(offer.bus, offer.core, meter)

    def close(self) -> None:
        """Try no more."""
        if self._latest is not None:
            self._latest.close()
