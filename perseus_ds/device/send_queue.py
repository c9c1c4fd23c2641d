"""The keeper's records on their way to the trainer."""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from perseus_ds.device.protocol import MESSAGE_BYTES, PowerReading, Sample, Switch, encode

__all__ = ["SendQueue"]

_BACKLOG = 200_000  # half an hour at 100 records per second


class SendQueue:
    """Records for the trainer. It never blocks; if the trainer stops reading for long, the oldest records are lost.

    Args:
        pipe: Socket to the trainer.
    """

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._records: deque[bytes] = deque(maxlen=_BACKLOG)
        self._unsent = b""
        self._lock = threading.Lock()
        self._told: dict[str, str] = {}

    def put(self, record: Sample | PowerReading | Switch | dict[str, Any]) -> None:
        """Add a record."""
        self._records.append(encode(record))

    def tell(self, code: str, line: str) -> None:
        """Add a message for people, once per cause."""
        if code not in self._told:
            self._told[code] = line
            self.put({"notice": line})

    def flush(self) -> None:
        """Send all queued records, many per message: a socket holds few messages, however short."""
        with self._lock, suppress(OSError):
            while self._unsent or self._records:
                while self._records and len(self._unsent) + len(self._records[0]) <= MESSAGE_BYTES:
                    self._unsent += self._records.popleft()
                self._pipe.send(self._unsent, socket.MSG_DONTWAIT)
                self._unsent = b""

    def close(self) -> None:
        """Send the rest; if the trainer is gone, print the messages on its terminal."""
        self.flush()
        if self._unsent or self._records:
            with suppress(OSError, ValueError):
                print(*self._told.values(), sep="\n", file=sys.stderr, flush=True)
