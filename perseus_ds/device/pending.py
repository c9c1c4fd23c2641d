"""Clock requests on their way to the driver."""

from __future__ import annotations

import math
from collections import deque

from perseus_ds.device.protocol import Request

__all__ = ["PendingRequests"]


class PendingRequests:
    """Requests in the order of their due times.

    A newer request is better informed than an older one. It cancels all requests due at its own time or later;
    earlier ones stay. If the driver is busy, the next due request replaces a waiting one.

    Attributes:
        superseded: Requests cancelled or replaced since this was last set to 0.
    """

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self.superseded = 0

    def add(self, request: Request) -> None:
        """Add a request, newer than all before."""
        while self._requests and self._requests[-1].not_before_s >= request.not_before_s:
            self._requests.pop()
            self.superseded += 1
        self._requests.append(request)

    @property
    def due_s(self) -> float:
        """Due time of the first one on the monotonic clock; infinite without any."""
        return self._requests[0].not_before_s if self._requests else math.inf

    def due(self, now_s: float) -> Request | None:
        """Return the newest due request; it stays until ``settle``."""
        while len(self._requests) > 1 and self._requests[1].not_before_s <= now_s:
            self._requests.popleft()
            self.superseded += 1
        return self._requests[0] if self.due_s <= now_s else None

    def settle(self) -> None:
        """Remove the request returned by ``due``: it is done or unnecessary."""
        self._requests.popleft()
