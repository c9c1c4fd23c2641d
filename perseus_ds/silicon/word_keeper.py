"""A clock keeper whose clock is a number in memory: the real one's pipe, setter and protocol, and no GPU.

The clock is there 10 to 50 ms after its request, as a GPU's is, and not quite on time.
"""

from __future__ import annotations

import math
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from perseus_ds.device.protocol import Switch
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, LATENCIES_S, ClockWords
from perseus_ds.silicon.logging_keeper import LoggingKeeper, serve

__all__ = ["WordKeeper", "main"]

_JITTER_S = 0.001


class _LateClock:
    """Takes clocks, which are there one latency later, in their order."""

    def __init__(self, words: ClockWords, send_queue: SendQueue) -> None:
        self._words, self._send_queue = words, send_queue
        self._chance = random.Random(0)
        self._coming: queue.SimpleQueue[tuple[float, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._arrive)
        self._thread.start()

    def lock_clock(self, mhz: int) -> None:
        """Take a clock."""
        latency_s = LATENCIES_S[mhz] + self._chance.uniform(-_JITTER_S, _JITTER_S)
        self._coming.put((time.monotonic() + latency_s, mhz))

    def reset_clocks(self) -> None:
        """Take the highest clock."""
        self.lock_clock(CLOCKS_MHZ[0])

    def close(self) -> None:
        """Wait for the last clock."""
        self._coming.put(None)
        self._thread.join()

    def _arrive(self) -> None:
        while (one := self._coming.get()) is not None:
            at_s, mhz = one
            time.sleep(max(0.0, at_s - time.monotonic()))
            self._words.set_mhz(mhz)
            self._send_queue.put(Switch(0.0, time.monotonic(), math.nan, mhz, 0, 0))


def main(arguments: Sequence[str]) -> int:
    """Set clocks until the trainer closes the pipe, then send when each was there.

    Args:
        arguments: The words' file. The pipe is standard input.
    """
    pipe = socket.socket(fileno=sys.stdin.fileno())
    send_queue = SendQueue(pipe)
    clock = _LateClock(ClockWords(Path(arguments[0])), send_queue)
    serve(pipe, send_queue, clock, lambda switch: None)
    clock.close()
    send_queue.close()
    return 0


class WordKeeper(LoggingKeeper):
    """The trainer's side.

    Args:
        path: The words' file.
    """

    module = "perseus_ds.silicon.word_keeper"

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
