"""Refreshes the baseline: every so often, iterations among the plan's run at the default clocks.

In the first iteration of a refresh the clocks settle; the others are measured. The first refreshes come soon: the
baseline before the plan is of colder GPUs, which draw less. Then each comes twice as late as the one before. Where the
plan gets late, one comes up to eight times as soon: it tells whether the plan is the cause.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["MEASURED", "BaselineRefresh", "RefreshStep"]

MEASURED = 4
"""Iterations that a refresh measures."""

_FIRST = 16  # iterations of a plan before its first refresh
_QUIET = 8  # of them with nothing but the plan just before a refresh: it is compared with these
_SOONER = 8  # times, where the plan gets late


class RefreshStep(Enum):
    """The part of an iteration in a refresh."""

    NONE = "none"
    SETTLES = "settles"
    MEASURES = "measures"


class BaselineRefresh:
    """Decides which iterations refresh the baseline. It is deterministic: equal calls give equal steps on all ranks.

    Args:
        every: Most iterations from one refresh to the next; 0: none.

    Attributes:
        wanted: Whether the plan gets late, so that the next one shall come sooner.
    """

    def __init__(self, every: int) -> None:
        self.wanted = False
        self._every = every
        self._pause = min(_FIRST, every)
        self._counted_from: int | None = None  # the end of the latest refresh, or the first iteration under a plan
        self._quiet_from: int | None = None
        self._settling, self._end = 0, 0  # of the latest refresh

    def step(self, iteration: int, allowed: bool) -> RefreshStep:
        """Return the next iteration's part.

        Args:
            iteration: Its number.
            allowed: Whether a plan is in force, and nothing but the plan. Where it is not, a refresh ends early.
        """
        if self.covers(iteration):
            if allowed:
                return RefreshStep.MEASURES
            # Cut short it tells little: the next one comes no later than this one did.
            self._end, self._pause = iteration, max(self._pause // 2, min(_FIRST, self._every))
        if not self._every or not allowed:
            self._quiet_from = None
            return RefreshStep.NONE
        self._counted_from = iteration if self._counted_from is None else self._counted_from
        self._quiet_from = iteration if self._quiet_from is None else self._quiet_from
        quiet = iteration - self._quiet_from
        pause = self._pause / _SOONER if self.wanted else self._pause
        if iteration - self._counted_from < pause or quiet < min(_QUIET, self._every):
            return RefreshStep.NONE
        self._settling, self._end = iteration, iteration + 1 + MEASURED
        self._counted_from, self._pause = self._end, min(2 * self._pause, self._every)
        return RefreshStep.SETTLES

    def covers(self, iteration: int) -> bool:
        """Whether an iteration is part of the latest refresh."""
        return self._settling <= iteration < self._end

    def soon(self) -> None:
        """Another plan is in force: refresh as soon as after the first one."""
        self._counted_from, self._pause = None, min(_FIRST, self._every)
