"""A clock keeper that logs what it would set: the real one's pipe, setter and protocol around a GPU that is none."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from perseus_ds import isolated
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.device.protocol import MESSAGE_BYTES, RESET, Switch, decode
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.setter import Setter
from perseus_ds.silicon.lab import Asked

__all__ = ["LoggingKeeper", "main"]

_END_TIMEOUT_S = 5.0


class _NoGpu:
    """Takes every clock and sets none."""

    def __init__(self, take: Callable[[int], None]) -> None:
        self.lock_clock = take

    def reset_clocks(self) -> None:
        self.lock_clock(RESET)


class _Log:
    """Stands where the setter's watcher does: each accepted request is on record at once."""

    poll_s = 1.0

    def __init__(self, send_queue: SendQueue) -> None:
        self.expect: Callable[[Switch], None] = send_queue.put


def main(arguments: Sequence[str]) -> int:
    """Log requests until the trainer closes the pipe, then send the log.

    Args:
        arguments: The pipe's file descriptor.
    """
    pipe = socket.socket(fileno=int(arguments[0]))
    send_queue = SendQueue(pipe)
    pipe.send(b"ready")
    gpu, log = _NoGpu(lambda mhz: None), _Log(send_queue)
    Setter(gpu, pipe, send_queue, log, 0.0).serve()  # pyright: ignore[reportArgumentType]
    send_queue.close()
    return 0


class LoggingKeeper:
    """The trainer's side; see ``Keeper``. The process imports neither torch nor numpy."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*isolated.command("perseus_ds.silicon.logging_keeper"), str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
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
    sys.exit(main(sys.argv[1:]))
