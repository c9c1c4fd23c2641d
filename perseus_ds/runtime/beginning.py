"""When a rank attaches: at its first iteration, and after a failure once more some iterations later."""

from __future__ import annotations

from perseus_ds.messages import PerseusError

__all__ = ["AttachFailed", "Beginning"]

_PAUSE_ITERATIONS = 10
# What the user has to mend first.
_LASTING = (
    "gpu-not-found",
    "gpu-not-visible",
    "gpu-order",
    "nvml-mig",
    "nvml-old-package",
    "profile-clock",
    "run-dir-not-writable",
    "simulator-stages",
    "site-clock",
)


class AttachFailed(Exception):
    """No rank attaches.

    Args:
        cause: The first failure of any rank; all ranks act on it alike.
        error: What this rank has met; None: another rank's failure.

    Attributes:
        error: What this rank has met.
        lasts: Whether another attempt would end in the same way.
    """

    def __init__(self, cause: str, error: Exception | None = None) -> None:
        super().__init__(cause)
        self.error = error or PerseusError("failed-elsewhere", ranks=cause)
        self.lasts = any(f"[{code}]" in cause for code in _LASTING)


class Beginning:
    """Says at which iterations a rank attaches. All ranks count alike, so they try together.

    Attributes:
        attempt: Number of failed attempts.
    """

    def __init__(self) -> None:
        self.attempt = 0
        self._iteration = -1
        self._next = 0

    def is_due(self) -> bool:
        """Count an iteration that begins; return whether to attach with it."""
        self._iteration += 1
        return self._iteration >= self._next

    def again(self, attempts: int) -> int | None:
        """Count a failure.

        Args:
            attempts: Number of failures that are survived.

        Returns:
            Iterations to the next attempt; None: there is none.
        """
        self.attempt += 1
        self._next = self._iteration + _PAUSE_ITERATIONS
        return _PAUSE_ITERATIONS if self.attempt <= attempts else None
