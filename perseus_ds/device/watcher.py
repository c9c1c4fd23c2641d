"""Watches one GPU: when its energy counter moves, and whether it reaches the clocks it was asked for."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from perseus_ds.device.calibration import Calibration
from perseus_ds.device.gpu import Gpu, is_reached, throttle_text
from perseus_ds.device.protocol import RESET, Sample, Switch
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.messages import PerseusError, user_message

__all__ = ["Watcher"]

_UNREACHED_S = 0.5  # a clock not read back after this time, or 5 switch latencies, is reported
_FROZEN_S = 3.0
_FLUSH_S = 0.05


class _Reading(NamedTuple):
    """The energy counter, and when it was asked for."""

    energy_j: float
    begin_s: float


class Watcher:
    """Reads a GPU over and over, on a thread of its own, and puts what changes into the send_queue.

    Args:
        gpu: The GPU.
        send_queue: Where samples, switches and messages go.
        calibration: What the GPU's model is like.
    """

    def __init__(self, gpu: Gpu, send_queue: SendQueue, calibration: Calibration) -> None:
        self._gpu = gpu
        self._send_queue = send_queue
        self._calibration = calibration
        self._expected: Switch | None = None
        self._expected_lock = threading.Lock()
        self._last: _Reading | None = None
        self._moved_s = 0.0
        self._restarted_at_j = 0.0

    def expect(self, switch: Switch) -> None:
        """Look from now on for this switch's clock; the one before is reported as not seen."""
        with self._expected_lock:
            before, self._expected = self._expected, switch
        if before is not None:
            self._send_queue.put(before)

    def tell(self, code: str, **values: object) -> None:
        """Put a catalogue message about this GPU into the send_queue, once per code."""
        self._send_queue.tell(code, user_message(code, gpu=f"{self._gpu.name} {self._gpu.uuid}", **values))

    def watch(self, poll_s: float, stopping: threading.Event) -> None:
        """Read the GPU until told to stop.

        Args:
            poll_s: Time between two looks.
            stopping: Ends it.
        """
        flushed_s = 0.0
        while not stopping.wait(poll_s):
            for look in (self._read_counter, self._read_back):
                try:
                    look()
                except PerseusError as error:
                    self._send_queue.tell(error.code, str(error))
            if time.monotonic() - flushed_s >= _FLUSH_S:
                flushed_s = time.monotonic()
                self._send_queue.flush()

    def _read_counter(self) -> None:
        """See whether the energy counter has moved."""
        begin_s = time.monotonic()
        energy_j = self._gpu.energy_j()
        now_s = time.monotonic()
        last, self._last = self._last, _Reading(energy_j, begin_s)
        if last is None or energy_j != last.energy_j:
            self._moved_s = now_s
        elif now_s - self._moved_s > max(_FROZEN_S, 10.0 * self._calibration.counter_period_s):
            self.tell("counter-frozen", seconds=now_s - self._moved_s)
        if last is None or energy_j == last.energy_j:
            return
        if energy_j < last.energy_j:
            self.tell("counter-restarted", lost_j=last.energy_j - energy_j)
            self._restarted_at_j += last.energy_j
        middle_s = (last.begin_s + now_s) / 2.0
        self._send_queue.put(Sample(middle_s, energy_j + self._restarted_at_j, now_s - middle_s, *self._clock()))

    def _clock(self) -> tuple[int, int]:
        """Return SM clock and throttle reasons, zeros where they cannot be read."""
        try:
            return self._gpu.sm_clock_mhz(), self._gpu.throttle_reasons()
        except PerseusError as error:
            self._send_queue.tell(error.code, str(error))
            return 0, 0

    def _read_back(self) -> None:
        """See whether the clock asked for has been reached."""
        switch = self._expected
        if switch is None or switch.mhz == RESET:
            return
        actual_mhz, now_s = self._gpu.sm_clock_mhz(), time.monotonic()
        if is_reached(actual_mhz, switch.mhz):
            seen = switch._replace(reached_s=now_s, actual_mhz=actual_mhz)
        elif now_s - switch.applied_s > max(_UNREACHED_S, 5.0 * self._calibration.switch_latency_s):
            seen = switch._replace(actual_mhz=actual_mhz)
            reason = throttle_text(self._gpu.throttle_reasons())
            self.tell("clock-not-reached", mhz=switch.mhz, actual_mhz=actual_mhz, reason=reason)
        else:
            return
        with self._expected_lock:
            if self._expected is not switch:
                return
            self._expected = None
        self._send_queue.put(seen)
