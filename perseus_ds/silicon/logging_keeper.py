"""A clock keeper that logs what it would set: the real one's pipe, setter and protocol around a GPU that is none."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Protocol

from perseus_ds import isolated
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.protocol import MESSAGE_BYTES, Switch, decode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.setter import Setter
from perseus_ds.silicon.lab import Asked

__all__ = ["LoggingKeeper", "main", "serve"]

_END_TIMEOUT_S = 5.0


class _Clock(Protocol):
    """What a setter asks of a GPU."""

    def lock_clock(self, mhz: int) -> None: ...

    def reset_clocks(self) -> None: ...


class _NoClock:
    """Takes every clock and sets none."""

    def lock_clock(self, mhz: int) -> None:
        pass

    def reset_clocks(self) -> None:
        pass


class _Log:
    """Stands where the setter's watcher does: it learns of each accepted request."""

    poll_s, foreign_mhz = 1.0, 0

    def __init__(self, expect: Callable[[Switch], None]) -> None:
        self.expect = expect


def serve(pipe: socket.socket, send_queue: SendQueue, clock: _Clock, accepted: Callable[[Switch], None]) -> None:
    """Greet the trainer, and pass its requests to a clock until it closes the pipe.

    Args:
        pipe: Socket to the trainer.
        send_queue: Receives messages.
        clock: Stands where the GPU does.
        accepted: Learns of each request that the clock has taken.
    """
    pipe.send(b"ready")
    Setter(clock, pipe, send_queue, _Log(accepted), 0.0).serve()  # pyright: ignore[reportArgumentType]


def main() -> int:
    """Log requests until the trainer closes the pipe, which is standard input, then send the log."""
    pipe = socket.socket(fileno=sys.stdin.fileno())
    send_queue = SendQueue(pipe)
    serve(pipe, send_queue, _NoClock(), send_queue.put)
    send_queue.close()
    return 0


class LoggingKeeper:
    """The trainer's side; see ``Keeper``. The process imports neither torch nor numpy.

    Args:
        *arguments: Of the process.

    Attributes:
        module: The process's.
    """

    module = "perseus_ds.silicon.logging_keeper"

    def __init__(self, *arguments: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*isolated.command(self.module), *arguments]
        with theirs:
            self._process = subprocess.Popen(command, stdin=theirs.fileno())
        self._pipe = ours
        ours.settimeout(30.0)
        if ours.recv(MESSAGE_BYTES) != b"ready":
            raise RuntimeError("the logging keeper did not start")
        self.set_mhz = ClockKeeper(self._process, ours, command).set_mhz

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def close(self) -> list[Asked]:
        """See ``Keeper``."""
        self._pipe.shutdown(socket.SHUT_WR)
        self._pipe.settimeout(_END_TIMEOUT_S)
        records = []
        while message := self._pipe.recv(MESSAGE_BYTES):
            records += decode(message)
        self._process.wait(_END_TIMEOUT_S)
        self._pipe.close()
        return [Asked(one.mhz, one.applied_s) for one in records if isinstance(one, Switch)]


if __name__ == "__main__":
    sys.exit(main())
