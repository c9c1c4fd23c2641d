"""Sets the clocks requested by the trainer: the driver has each at its due time."""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections import deque
from statistics import median

from perseus_ds.device.driver import DriverError, Gpu
from perseus_ds.device.pending import PendingRequests
from perseus_ds.device.protocol import RESET, Pace, Request, Switch, decode_order
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.device.watcher import Watcher

__all__ = ["Setter"]

_PARENT_CHECK_S = 0.1
_CALLS = 9  # whose median is how long the next one takes
_RETRY_PAUSE_S = 0.05


class Setter:
    """Passes requests from a pipe to the driver.

    Args:
        gpu: The GPU.
        pipe: Socket to the trainer.
        send_queue: Receives messages.
        watcher: Learns of every clock that was set.
        min_interval_s: Shortest time between two requests to the driver.
        respects: Whether a clock that somebody else sets stays, instead of being taken back.

    Attributes:
        left_to_others: Whether there is such a clock; then none is set any more, not even at the end.
    """

    def __init__(
        self,
        gpu: Gpu,
        pipe: socket.socket,
        send_queue: SendQueue,
        watcher: Watcher,
        min_interval_s: float,
        respects: bool = True,
    ) -> None:
        self._gpu = gpu
        self._pipe = pipe
        self._send_queue = send_queue
        self._watcher = watcher
        self._min_interval_s = min_interval_s
        self._pending = PendingRequests()
        self._current_mhz = RESET
        self._ready_s = -math.inf  # when the driver may be asked again
        self._calls_s: deque[float] = deque([0.0], maxlen=_CALLS)
        self._refused = False
        self._respects = respects
        self.left_to_others = False

    def serve(self) -> None:
        """Set the requested clocks until the trainer is gone."""
        parent = os.getppid()
        while os.getppid() == parent:
            # A request is for when the driver has it, and the driver takes its time.
            call_s = median(self._calls_s)
            wait_s = max(self._ready_s, self._pending.due_s - call_s) - time.monotonic()
            if select.select([self._pipe], [], [], min(max(wait_s, 0.0), _PARENT_CHECK_S))[0] and not self._receive():
                return
            now_s = time.monotonic()
            if now_s >= self._ready_s and (request := self._pending.due(now_s + call_s)):
                self._settle(request)
            if self._watcher.foreign_mhz:
                self._meet_foreign(self._watcher.foreign_mhz)
                self._watcher.foreign_mhz = 0

    def _receive(self) -> bool:
        """Read all available requests; return False once the trainer has closed the pipe."""
        try:
            while message := self._pipe.recv(64, socket.MSG_DONTWAIT):
                match decode_order(message):
                    case Request() as request:
                        self._pending.add(request)
                    case Pace(poll_s):
                        self._watcher.poll_s = poll_s
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass  # the trainer has died with something of ours unread
        return False

    def _meet_foreign(self, mhz: int) -> None:
        """Leave the GPU to whoever else sets its clock, or take it back."""
        if self._refused or self._current_mhz == RESET:
            return
        # A clock above the site's highest is nobody's right.
        if self._respects and mhz <= self._gpu.supported_clocks_mhz[0]:
            self.left_to_others = self._refused = True
            self._watcher.tell("foreign-clock-respected", mhz=mhz, own_mhz=self._current_mhz)
            own_mhz = mhz  # a request of ours may have come after it
        else:
            self._watcher.tell("foreign-clock-taken-back", mhz=mhz, own_mhz=self._current_mhz)
            own_mhz = self._current_mhz
        try:
            self._gpu.lock_clock(own_mhz)
        except DriverError as error:
            self._send_queue.tell(error.code, str(error))

    def _settle(self, request: Request) -> None:
        """Carry a request out; retry after a failure, unless a newer one falls due meanwhile."""
        if request.mhz == self._current_mhz or self._refused:
            self._pending.settle()
        elif self._set(request):
            self._pending.settle()
            self._current_mhz, self._pending.superseded = request.mhz, 0
            self._ready_s = time.monotonic() + self._min_interval_s
        else:
            self._ready_s = time.monotonic() + _RETRY_PAUSE_S

    def _set(self, request: Request) -> bool:
        """Request a clock from the driver and return whether it accepted."""
        began_s = time.monotonic()
        try:
            if request.mhz == RESET:
                self._gpu.reset_clocks()
            else:
                self._gpu.lock_clock(request.mhz)
        except DriverError as error:
            self._refused = error.permanent
            self._send_queue.tell(error.code, str(error))
            return False
        superseded, applied_s = self._pending.superseded, time.monotonic()
        self._calls_s.append(applied_s - began_s)
        self._watcher.expect(Switch(request.requested_s, applied_s, math.nan, request.mhz, 0, superseded))
        return True
