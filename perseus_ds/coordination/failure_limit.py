"""Failures are survived, unless there are too many in a short time."""

from __future__ import annotations

from collections import deque

__all__ = ["FailureLimit"]


class FailureLimit:
    """Counts failures: too many in a short time are final.

    Args:
        attempts: Number of failures within ``within_s`` that are survived.
        within_s: That time.
    """

    def __init__(self, attempts: int, within_s: float) -> None:
        self._attempts = attempts
        self._within_s = within_s
        self._failed_s: deque[float] = deque(maxlen=attempts + 1)

    def survives(self, now_s: float) -> bool:
        """Count a failure; return whether it is survived.

        Args:
            now_s: Time of the failure, on ``time.monotonic()``.
        """
        self._failed_s.append(now_s)
        recent = [one for one in self._failed_s if now_s - one < self._within_s]
        return len(recent) <= self._attempts
