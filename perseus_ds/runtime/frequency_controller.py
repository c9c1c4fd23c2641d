"""Asks for the next instruction's clock as soon as the present instruction has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

__all__ = ["FrequencyController", "count_switches"]


class FrequencyController:
    """The clocks of one rank's present iteration.

    Args:
        set_mhz: Requests a clock, returns at once (the clock keeper's).

    Attributes:
        requested_s: When the clock of each instruction of the present iteration was asked for, on
            ``time.monotonic()``; NaN where it was the same as before. A new list every iteration.
    """

    def __init__(self, set_mhz: Callable[[int], None]) -> None:
        self._set_mhz = set_mhz
        self._clocks_mhz: Sequence[int] = ()
        self.requested_s: list[float] = []

    def begin(self, clocks_mhz: Sequence[int]) -> None:
        """Begin an iteration.

        Args:
            clocks_mhz: One per instruction, in program order.
        """
        self._clocks_mhz = clocks_mhz
        self.requested_s = [float("nan")] * len(clocks_mhz)
        self._set_mhz(clocks_mhz[0])

    def instruction_ended(self, index: int) -> None:
        """Request what comes next; after the last instruction, what the next iteration most likely begins with."""
        clocks_mhz = self._clocks_mhz
        if index >= len(clocks_mhz):
            return
        following = (index + 1) % len(clocks_mhz)
        if following and clocks_mhz[following] != clocks_mhz[index]:
            self.requested_s[following] = time.monotonic()
        self._set_mhz(clocks_mhz[following])

    def hold(self, clock_mhz: int) -> None:
        """Keep one clock until the next ``begin``: evaluation and whatever is not planned."""
        self._clocks_mhz = ()
        self._set_mhz(clock_mhz)


def count_switches(clocks_mhz: Sequence[int]) -> int:
    """Return how often the clock changes in an iteration that follows itself."""
    return sum(a != b for a, b in zip(clocks_mhz, [*clocks_mhz[1:], *clocks_mhz[:1]], strict=True))
