"""A thread that makes one call after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["CallThread"]


class CallThread:
    """Makes calls in the order of submission. A daemon: a hanging call never keeps the job alive.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Return the future result of a call."""
        future: Future[Any] = Future()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """Make the submitted calls, then end."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait for the end, with a timeout."""
        self._thread.join(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether it still makes calls."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            try:
                result = call()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)
