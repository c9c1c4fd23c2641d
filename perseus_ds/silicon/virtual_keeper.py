"""A clock keeper in virtual time: the real one's pending requests, and a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perseus_ds.device.pending import PendingRequests
from perseus_ds.device.protocol import Request
from perseus_ds.silicon.lab import Asked

if TYPE_CHECKING:
    from perseus_ds.silicon.virtual_lab import VirtualLab

__all__ = ["VirtualKeeper"]


class VirtualKeeper:
    """The keeper's requests in virtual time; see ``Keeper``.

    Args:
        lab: Has the time.
        apply: Sets a clock, besides.
    """

    def __init__(self, lab: VirtualLab, apply: Callable[[int], None] | None = None) -> None:
        self._lab = lab
        self._apply = apply
        self._pending = PendingRequests()
        self._last = Request(0, 0.0)
        self._log: list[Asked] = []

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """See ``Keeper``."""
        if mhz == self._last.mhz and not_before_s >= self._last.not_before_s:
            return
        now_s = self._lab.now_s()
        self._last = Request(mhz, now_s, not_before_s)
        self._pending.add(self._last)
        self._lab.at(max(now_s, not_before_s) + self._lab.keeper_lag_s, self._settle)

    def _settle(self) -> None:
        """Carry out what is due."""
        if (request := self._pending.due(self._lab.now_s())) is None:
            return
        self._pending.settle()
        if not self._log or request.mhz != self._log[-1].mhz:
            self._log.append(Asked(request.mhz, self._lab.now_s()))
            if self._apply is not None:
                self._apply(request.mhz)

    def close(self) -> list[Asked]:
        """See ``Keeper``."""
        return self._log
