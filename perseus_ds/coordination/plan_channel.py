"""The path of a plan table: gathered reports, a solve, shared rounding, a broadcast, and a version to hold it under."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from perseus_ds.coordination.bus import Bus
from perseus_ds.coordination.coordinator import Coordinator
from perseus_ds.coordination.plan_table import FrequencyPlan, PlanTable, StragglerPlans
from perseus_ds.coordination.solved_frontiers import SolvedFrontiers
from perseus_ds.worker_process import Call, call_here

__all__ = ["PlanChannel"]


class PlanChannel:
    """One rank's end of that path. Nothing here waits: the bus's thread does the work.

    Args:
        bus: This rank's end of the bus.
        coordinator: The solver, on the coordinating rank.
        ranks: Number of ranks that share the rounding.
        version: Of the plans that all ranks hold already.
        call: Makes the heavy calls.

    Attributes:
        version: The newest version received here without a gap, as of the latest ``collect``.
    """

    def __init__(
        self, bus: Bus, coordinator: Coordinator | None, ranks: int, version: int = 0, call: Call = call_here
    ) -> None:
        self._bus = bus
        self._coordinator = coordinator
        self._ranks = ranks
        self._call = call
        self._coming: deque[Future[PlanTable | StragglerPlans]] = deque()
        self.version = version

    def ask(
        self,
        version: int,
        solve: Callable[[Coordinator, list[Any]], SolvedFrontiers],
        hand_in: Callable[[], Any] | None = None,
    ) -> None:
        """Let the coordinator solve, all ranks round, and all receive the result. Every rank makes the same call.

        Args:
            version: The next one.
            solve: Called on the coordinator with the ranks' submissions.
            hand_in: Called on every rank for its submission; None without one.
        """
        bus = self._bus
        gathered = None if hand_in is None else bus.gather(hand_in)
        draft = bus.broadcast(lambda: solve(self._solver(), (gathered and gathered.result()) or []))
        shares = bus.gather(lambda: self._discretize_shard(draft.result()))
        self._coming.append(
            bus.broadcast(lambda: self._solver().finish(version, draft.result(), shares.result() or []))
        )

    def collect(self) -> tuple[PlanTable | StragglerPlans, ...]:
        """Return everything received since the last call, by version.

        Raises:
            Exception: An error on the way; Perseus must turn off.
        """
        arrived = []
        while self._coming and self._coming[0].done():
            arrived.append(self._coming.popleft().result())
            self.version = arrived[-1].version
        return tuple(arrived)

    def _discretize_shard(self, draft: SolvedFrontiers) -> dict[int, FrequencyPlan]:
        place = self._bus.place, self._ranks
        if not draft.share(*place):
            return {}
        if self._coordinator is not None:
            return self._coordinator.discretize_shard(draft, *place)
        return self._call(SolvedFrontiers.discretize_shard, draft, *place)

    def _solver(self) -> Coordinator:
        assert self._coordinator is not None, "only the coordinator makes what is broadcast"
        return self._coordinator
