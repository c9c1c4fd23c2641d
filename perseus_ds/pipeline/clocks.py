"""The clocks of one rank's iteration, by instruction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

__all__ = ["UNLOCKED", "USUAL_JITTER", "IterationClocks"]

UNLOCKED = 0
"""Instead of a clock to request: the default clocks, without a lock of ours."""

USUAL_JITTER = 0.1
"""Standard deviation of a GPU's switch latency, as a part of it, where it is not measured."""


@dataclass(frozen=True)
class IterationClocks:
    """The planned clock of each instruction of an iteration.

    Only the trace tells how many instructions an iteration has. Instructions without a planned clock share one.

    Attributes:
        beyond_mhz: SM clock of instructions after the planned ones.
        planned_mhz: SM clocks of the first instructions, in program order.
        locked: False: the default clocks are requested, and the clocks above are what they amount to.
        asks_early: Whether each clock is asked for as soon as the instruction before begins.
        rest_mhz: SM clock in a long wait before the first instruction; 0: that of the first instruction.
        aims_s: How long after each of the first instructions begins its clock is to come; negative: before.
    """

    beyond_mhz: int
    planned_mhz: tuple[int, ...] = ()
    locked: bool = True
    asks_early: bool = False
    rest_mhz: int = 0
    aims_s: tuple[float, ...] = ()

    def aim_s(self, index: int) -> float:
        """Return how long after an instruction's begin its clock is to come, in seconds."""
        return self.aims_s[index] if index < len(self.aims_s) else 0.0

    def of(self, index: int) -> int:
        """Return the SM clock of an instruction, counted from 0 in program order.

        Right after the planned ones it is the clock of the first: the next iteration most likely follows.
        """
        if index < len(self.planned_mhz):
            return self.planned_mhz[index]
        return self.planned_mhz[0] if index and index == len(self.planned_mhz) else self.beyond_mhz

    def requested(self, index: int) -> int:
        """Return what to request for an instruction: its SM clock, or ``UNLOCKED``."""
        return self.of(index) if self.locked else UNLOCKED

    @cached_property
    def changes(self) -> tuple[int, ...]:
        """Indices of the planned instructions, but the first, whose clock differs from the one before."""
        if not self.locked:
            return ()
        return tuple(index for index, (a, b) in enumerate(pairwise(self.planned_mhz), start=1) if a != b)

    @property
    def switches(self) -> int:
        """Number of clock changes per iteration when the iteration repeats."""
        return sum(a != b for a, b in pairwise((*self.planned_mhz, *self.planned_mhz[:1])))
