"""A clock keeper that is started again when it has died. Meanwhile the clocks are at their defaults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.device.clock_keeper import ClockKeeper, KeeperUpdate
from perseus_ds.messages import one_line, user_message

__all__ = ["LastingKeeper"]

_RESET_S = 30.0


class LastingKeeper:
    """The current keeper of a GPU. Only the first start and ``close`` wait.

    Args:
        start: Starts a keeper; its argument says whether to calibrate the GPU.
        limit: Counts the deaths.

    Attributes:
        info: The first keeper's description of its GPU.
    """

    def __init__(self, start: Callable[[bool], ClockKeeper], limit: FailureLimit) -> None:
        self._start = start
        self._limit = limit
        self._keeper = start(True)
        self._next: Future[ClockKeeper] | None = None
        self._over = False
        self._poll_s: float | None = None
        self.info = self._keeper.info

    @property
    def alive(self) -> bool:
        """Whether there is a keeper now."""
        return self._keeper.alive

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Request an SM clock; see ``ClockKeeper.set_mhz``."""
        self._keeper.set_mhz(mhz, not_before_s)

    def reset_clocks(self) -> None:
        """Request the default clocks and return at once."""
        self._keeper.reset_clocks()

    def set_pace(self, poll_s: float) -> None:
        """Let the keeper read the GPU at another interval from now on."""
        self._poll_s = poll_s
        self._keeper.set_pace(poll_s)

    def drain(self) -> KeeperUpdate:
        """Return the keeper's records since the last call; see that another one comes if it has died."""
        update = self._keeper.drain()
        if self._keeper.alive or self._over:
            return update
        return replace(update, notices=update.notices + self._renew())

    def close(self) -> KeeperUpdate:
        """Reset the clocks and end the keeper; return its last records."""
        self._over = True
        return self._keeper.close()

    def _renew(self) -> tuple[str, ...]:
        """Take the next keeper if it is there, or have it started; return messages for people."""
        if self._next is None:
            if not self._limit.survives(time.monotonic()):
                self._over = True
                return (user_message("keepers-die"),)
            self._next = Future()
            arguments = (self._keeper, self._next)
            threading.Thread(target=self._bring, args=arguments, name="perseus_ds-keeper", daemon=True).start()
        if not self._next.done():
            return ()
        coming, self._next = self._next, None
        if error := coming.exception():
            return (one_line(error),)
        self._keeper = coming.result()
        if self._poll_s is not None:
            self._keeper.set_pace(self._poll_s)
        return (user_message("keeper-back", pid=self._keeper.info.pid),)

    def _bring(self, dead: ClockKeeper, coming: Future[ClockKeeper]) -> None:
        try:
            dead.await_reset(_RESET_S)  # a late one would undo the next keeper's clocks
            coming.set_result(self._start(False))
        except Exception as error:
            coming.set_exception(error)
