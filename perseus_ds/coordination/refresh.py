"""Refreshes the baseline: every so often, an iteration among the plan's runs at the default clocks.

A refresh takes two iterations. In the first one the clocks settle; the second one is measured.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["BaselineRefresh", "RefreshStep"]


class RefreshStep(Enum):
    """The part of an iteration in a refresh."""

    NONE = "none"
    SETTLES = "settles"
    MEASURES = "measures"


class BaselineRefresh:
    """Decides which iterations refresh the baseline. It is deterministic: equal calls give equal steps on all ranks.

    Args:
        every: Iterations from one refresh to the next; 0: none.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._counted_from: int | None = None  # the latest refresh; before that, the first iteration under a plan
        self._settling: int | None = None

    def step(self, iteration: int, allowed: bool) -> RefreshStep:
        """Return the next iteration's part.

        Args:
            iteration: Its number.
            allowed: Whether a plan is in force, and nothing but the plan.
        """
        if self._settling == iteration - 1:
            return RefreshStep.MEASURES
        if not self._every or not allowed:
            return RefreshStep.NONE
        if self._counted_from is None:
            self._counted_from = iteration
        if iteration - self._counted_from < self._every:
            return RefreshStep.NONE
        self._counted_from = self._settling = iteration
        return RefreshStep.SETTLES

    def covers(self, iteration: int) -> bool:
        """Whether a past iteration was part of the latest refresh."""
        return self._settling is not None and 0 <= iteration - self._settling <= 1
