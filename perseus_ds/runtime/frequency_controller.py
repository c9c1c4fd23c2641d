"""Asks for the next instruction's clock as soon as the present instruction has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from perseus_ds.pipeline.clocks import IterationClocks

__all__ = ["FrequencyController"]


class FrequencyController:
    """The clocks of one rank's present iteration.

    Args:
        set_mhz: Requests a clock, returns at once (the clock keeper's).

    Attributes:
        requested_s: When the clock of an instruction of the present iteration was asked for, on ``time.monotonic()``,
            by index; missing where it was the same as before. A new dictionary every iteration.
    """

    def __init__(self, set_mhz: Callable[[int], None]) -> None:
        self._set_mhz = set_mhz
        self._clocks: IterationClocks | None = None
        self.requested_s: dict[int, float] = {}

    def begin(self, clocks: IterationClocks) -> None:
        """Begin an iteration."""
        self._clocks = clocks
        self.requested_s = {}
        self._set_mhz(clocks.of(0))

    def instruction_ended(self, index: int) -> None:
        """Request what comes next; after the last instruction, what the next iteration most likely begins with."""
        clocks = self._clocks
        if clocks is None:
            return
        following = index + 1
        if following == len(clocks.planned_mhz):
            self._set_mhz(clocks.of(0))
            return
        if clocks.of(following) != clocks.of(index):
            self.requested_s[following] = time.monotonic()
        self._set_mhz(clocks.of(following))

    def hold(self, clock_mhz: int) -> None:
        """Keep one clock until the next ``begin``: evaluation and whatever is not planned."""
        self._clocks = None
        self._set_mhz(clock_mhz)
