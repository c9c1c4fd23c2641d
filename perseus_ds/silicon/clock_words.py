"""The clock of the kernels that have one of their own: numbers that a keeper writes and the device reads.

Each holds the nanoseconds that a unit of work takes: a forward's or a backward's.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

from perseus_ds.pipeline.kinds import Kind

__all__ = ["CLOCKS_MHZ", "LATENCIES_S", "NUMBERS", "RUNNING", "UNIT_S", "ClockWords", "work_s"]

CLOCKS_MHZ = tuple(range(1980, 1200, -120))
"""Values of the clock, descending."""

LATENCIES_S = {mhz: 0.010 + 0.040 * (mhz * 37 % 97) / 97 for mhz in CLOCKS_MHZ}
"""From a request to the clock: 10 to 50 ms, by clock."""

NUMBERS = {Kind.FORWARD: 1, Kind.BACKWARD: 2}
"""Place of each kind of instruction."""

RUNNING = 3
"""Place of the number of the instruction that runs; 0: none."""

UNIT_S = 0.060
"""Time of a forward at the highest clock; a backward takes twice as long."""

_FIXED = {Kind.FORWARD: 0.0, Kind.BACKWARD: 1.0}


def work_s(kind: Kind, mhz: int) -> float:
    """Return the time of an instruction at a clock; half of a backward follows none."""
    return UNIT_S * (CLOCKS_MHZ[0] / mhz + _FIXED[kind])


class ClockWords:
    """The numbers in a file that two processes map.

    Args:
        path: The file; it is made if it is not there.

    Attributes:
        address: Of the first number in this process.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._words = (ctypes.c_uint64 * (RUNNING + 1)).from_buffer(self._map)
        self.address = ctypes.addressof(self._words)

    def set_mhz(self, mhz: int) -> None:
        """Let instructions run at a clock from now on."""
        for kind, number in NUMBERS.items():
            self._words[number] = round(work_s(kind, mhz) * 1e9)

    def unit_s(self, kind: Kind) -> float:
        """Return the time of an instruction at the clock as it is."""
        return self._words[NUMBERS[kind]] / 1e9
