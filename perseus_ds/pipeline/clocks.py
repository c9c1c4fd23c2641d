"""The clocks of one rank's iteration, by instruction."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

__all__ = ["IterationClocks"]


@dataclass(frozen=True)
class IterationClocks:
    """What each instruction of an iteration is to run at.

    How many instructions an iteration has, only its trace tells: those without a clock of their own have a common one.

    Attributes:
        beyond_mhz: SM clock of every instruction after the planned ones.
        planned_mhz: SM clocks of the first instructions, in program order.
    """

    beyond_mhz: int
    planned_mhz: tuple[int, ...] = ()

    def of(self, index: int) -> int:
        """Return the SM clock of an instruction, counted from 0 in program order."""
        return self.planned_mhz[index] if index < len(self.planned_mhz) else self.beyond_mhz

    @property
    def switches(self) -> int:
        """How often the clock changes in an iteration that follows itself."""
        return sum(a != b for a, b in pairwise((*self.planned_mhz, *self.planned_mhz[:1])))
