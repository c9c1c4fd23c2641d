"""SIGTERM announces the end of a job. Whatever the trainer still does in its grace period, the clocks come first.

Its grace period may end with SIGKILL for all processes at once: then no keeper would be left to reset them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["TerminationNotice"]


class TerminationNotice:
    """Hears of SIGTERM before the program's own handler does.

    Args:
        told: Called in the handler; must not wait.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._ours: Callable[..., Any] | None = None
        self._own: Callable[..., Any] | None = None

    def watch(self) -> None:
        """Go before the handler that the program has now. Without one SIGTERM ends the process, and keepers notice."""
        own = signal.getsignal(signal.SIGTERM)
        if own is self._ours or not callable(own) or threading.current_thread() is not threading.main_thread():
            return

        def handle(number: int, frame: Any) -> Any:
            self._told()
            return own(number, frame)

        self._ours, self._own = handle, own
        signal.signal(signal.SIGTERM, handle)

    def release(self) -> None:
        """Leave the program its own handler alone."""
        in_force = self._ours is not None and signal.getsignal(signal.SIGTERM) is self._ours
        if in_force and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._own)
        self._ours = self._own = None
