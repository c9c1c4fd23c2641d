"""Kernels at the speed of a clock that a process of its own writes into memory that the device reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, LATENCIES_S, NUMBERS, RUNNING, ClockWords
from perseus_ds.silicon.lab import Asked
from perseus_ds.silicon.word_keeper import WordKeeper

__all__ = ["CudaClocked"]

_WORD_BYTES = 8
_IN_MEMORY = "/dev/shm"  # CUDA takes no mapped file of a disk


class CudaClocked:
    """See ``Clocked``.

    Args:
        launch: Launches a kernel by name, with its arguments.
    """

    clocks_mhz = CLOCKS_MHZ

    def __init__(self, launch: Callable[..., None]) -> None:
        self._launch = launch
        self._directory = tempfile.TemporaryDirectory(dir=_IN_MEMORY)
        path = Path(self._directory.name) / "clock"
        self._words = ClockWords(path)
        self._words.set_mhz(CLOCKS_MHZ[0])
        # The device sees registered memory where the host does.
        self._runtime: Any = torch.cuda.cudart()
        _check(self._runtime.cudaHostRegister(self._words.address, _WORD_BYTES * (RUNNING + 1), 0))
        self._keeper = WordKeeper(path)
        self.set_mhz = self._keeper.set_mhz

    def run(self, kind: Kind) -> None:
        """See ``Clocked``."""
        address = self._words.address
        self._launch("clocked", address, address + _WORD_BYTES * RUNNING, NUMBERS[kind])

    def latency_s(self, mhz: int) -> float:
        """See ``Clocked``."""
        return LATENCIES_S[mhz]

    def close(self) -> list[Asked]:
        """See ``Clocked``; the device is idle."""
        log = self._keeper.close()
        _check(self._runtime.cudaHostUnregister(self._words.address))
        self._directory.cleanup()
        return log


def _check(code: object) -> None:
    if int(code):  # pyright: ignore[reportArgumentType]
        raise RuntimeError(f"CUDA, memory of the clock: error {code}")
