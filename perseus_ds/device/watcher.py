"""Watches one GPU: the changes of its energy counter, and whether it reaches the requested clocks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from perseus_ds.device.calibration import Calibration
from perseus_ds.device.counter_rhythm import CounterRhythm
from perseus_ds.device.driver import DriverError, Gpu, NotSupported, is_reached
from perseus_ds.device.foreign import ForeignClocks
from perseus_ds.device.protocol import RESET, PowerReading, Sample, Switch
from perseus_ds.device.send_queue import SendQueue
from perseus_ds.messages import user_message

__all__ = ["Watcher"]

_UNREACHED_S = 0.5  # a clock not read back after this time, or 5 switch latencies, is reported
_MOST_EXPECTED = 16  # readings may be rarer than requests
_FROZEN_S = 3.0
_FLUSH_S = 0.05
_TELLING = 0.25  # of the time between two renewals of the power: rarer readings do not tell when they were


class _Reading(NamedTuple):
    """A reading of the energy counter, and its time."""

    energy_j: float
    begin_s: float


def _overtaken(switches: Sequence[Switch], until_s: float) -> list[Switch]:
    """Return all switches but the last, with until when they had not come, if none had by ``until_s``."""
    return [
        one._replace(missing_s=missing_s) if (missing_s := min(until_s, newer.applied_s)) > one.applied_s else one
        for one, newer in pairwise(switches)
    ]


class Watcher:
    """Reads a GPU repeatedly on a thread of its own, and puts changes into the send queue.

    Args:
        gpu: The GPU.
        send_queue: Receives samples, switches and messages.
        calibration: Constants of the GPU's model.
        poll_s: Time between two readings.

    Attributes:
        poll_s: As given; may change at any time.
        foreign_mhz: Clock that somebody else has set, as noticed last; 0: none. Who acts on it makes it 0.
    """

    def __init__(self, gpu: Gpu, send_queue: SendQueue, calibration: Calibration, poll_s: float) -> None:
        self.poll_s = poll_s
        self._gpu = gpu
        self._send_queue = send_queue
        self._calibration = calibration
        self._expected: deque[Switch] = deque()
        self._expected_lock = threading.Lock()
        self._shown_mhz = 0
        self._seen_mhz = 0  # of the last switch that was seen
        self._quickest_s: dict[int, float] = {}  # by clock: no request has brought it sooner
        self._last: _Reading | None = None
        self._rhythm = CounterRhythm()
        self._last_power: PowerReading | None = None
        self._power_rhythm = CounterRhythm()
        self._shows_power = True
        self._moved_s = self._looked_s = 0.0
        self._restarted_at_j = 0.0
        self._foreign = ForeignClocks(gpu, calibration.switch_latency_s)
        self.foreign_mhz = 0

    def expect(self, switch: Switch) -> None:
        """Watch for this switch's clock too, after those of the switches before: a slow one comes after newer requests.

        Those before a reset are passed on as not seen, and nothing is looked for after it.
        """
        self._foreign.asked(switch.applied_s, switch.mhz)
        with self._expected_lock:
            resets = RESET in (switch.mhz, *(one.mhz for one in self._expected))
            unseen = len(self._expected) if resets else max(0, len(self._expected) - _MOST_EXPECTED + 1)
            passed_on = [self._expected.popleft() for _ in range(unseen)]
            self._expected.append(switch)
            if resets:
                self._shown_mhz = 0
        for one in passed_on:
            self._send_queue.put(one)

    def tell(self, code: str, **values: object) -> None:
        """Put a catalogue message about this GPU into the send queue, once per code."""
        self._send_queue.tell(code, user_message(code, gpu=f"{self._gpu.name} {self._gpu.uuid}", **values))

    def watch(self, stopping: threading.Event) -> None:
        """Read the GPU until stopped.

        Args:
            stopping: Ends it.
        """
        flushed_s = 0.0
        while not stopping.wait(self.poll_s):
            for look in (self._read_counter, self._read_power, self._read_back):
                try:
                    look()
                except DriverError as error:
                    self._send_queue.tell(error.code, str(error))
            if time.monotonic() - flushed_s >= _FLUSH_S:
                flushed_s = time.monotonic()
                self._send_queue.flush()

    def _read_counter(self) -> None:
        """Check whether the energy counter has moved, unless it is too early for that."""
        begin_s = time.monotonic()
        if begin_s < self._rhythm.quiet_until_s:
            return
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
        self._rhythm.moved(last.begin_s, now_s)
        # It moves once per period: between rare readings, the latest move is a recent one.
        gap_s = now_s - last.begin_s
        doubt_s = min(gap_s, self._calibration.counter_period_s or gap_s) / 2.0
        self._send_queue.put(Sample(now_s - doubt_s, energy_j + self._restarted_at_j, doubt_s, *self._clock()))

    def _read_power(self) -> None:
        """Check whether the power that the driver shows was renewed, if readings are frequent enough to tell when."""
        begin_s, often_s = time.monotonic(), _TELLING * self._calibration.readings_period_s
        if not self._shows_power or self.poll_s > often_s or begin_s < self._power_rhythm.quiet_until_s:
            return
        try:
            now = PowerReading(begin_s, self._gpu.power_w())
        except NotSupported:
            self._shows_power = False
            return
        last, self._last_power = self._last_power, now
        if last is not None and now.power_w != last.power_w:
            self._power_rhythm.moved(last.time_s, begin_s)
            self._send_queue.put(now._replace(time_s=(last.time_s + begin_s) / 2.0))

    def _clock(self) -> tuple[int, int]:
        """Return SM clock and throttle reasons, zeros if unreadable."""
        try:
            actual_mhz, reasons = self._gpu.sm_clock_mhz(), self._gpu.throttle()
        except DriverError as error:
            self._send_queue.tell(error.code, str(error))
            return 0, 0
        self.foreign_mhz = self._foreign.sees(time.monotonic(), actual_mhz, reasons) or self.foreign_mhz
        return actual_mhz, reasons

    def _read_back(self) -> None:
        """Check whether a requested clock has been reached: the first of them that the GPU shows and did not show."""
        with self._expected_lock:
            expected, shown_mhz = tuple(self._expected), self._shown_mhz
        if not expected or expected[-1].mhz == RESET:
            return
        actual_mhz, now_s = self._gpu.sm_clock_mhz(), time.monotonic()
        looked_s, self._looked_s = self._looked_s, now_s
        latest = expected[-1]
        if shown_mhz and is_reached(self._gpu, actual_mhz, shown_mhz):
            seen = None
        else:
            self._shown_mhz = actual_mhz
            seen = next((one for one in expected if is_reached(self._gpu, actual_mhz, one.mhz)), None)
        if seen is not None:
            # It came after what the last look has shown, and that may have been old.
            before_s = max(looked_s - self._calibration.readings_period_s, seen.applied_s)
            if certain := self._is_certain(seen, now_s, expected):
                least_s = before_s - seen.applied_s
                self._quickest_s[seen.mhz] = min(self._quickest_s.get(seen.mhz, least_s), least_s)
            told = seen._replace(
                reached_s=(now_s + before_s) / 2.0,
                actual_mhz=actual_mhz,
                certain=certain,
                uncertainty_s=(now_s - before_s) / 2.0,
            )
        elif now_s - latest.applied_s > max(_UNREACHED_S, 5.0 * self._calibration.switch_latency_s):
            seen = told = latest
            if not is_reached(self._gpu, actual_mhz, latest.mhz):
                told = latest._replace(actual_mhz=actual_mhz)
                reason = self._gpu.throttle().text
                self.tell("clock-not-reached", mhz=latest.mhz, actual_mhz=actual_mhz, reason=reason)
        else:
            return
        with self._expected_lock:
            if seen not in self._expected:
                return
            over = [self._expected.popleft() for _ in range(self._expected.index(seen))]
            self._expected.popleft()
        # The last look, which may have been old, showed the clock before all of them. One held lower may have come.
        unheld = bool(shown_mhz) and is_reached(self._gpu, shown_mhz, self._seen_mhz)
        shows_none = seen is not told and unheld and self._seen_mhz not in [one.mhz for one in over]
        until_s = looked_s - self._calibration.readings_period_s if shows_none else 0.0
        self._seen_mhz = seen.mhz if seen is not told else 0
        for one in (*_overtaken((*over, seen), until_s), told):
            self._send_queue.put(one)

    def _is_certain(self, seen: Switch, now_s: float, expected: Sequence[Switch]) -> bool:
        """Whether no later request for the same clock can have brought it.

        Clocks asked for in turn, faster than they come, may come and go between two looks. Then each of them would be
        credited to the request before, and so on.
        """
        quickest_s = self._quickest_s.get(seen.mhz, 0.0)
        equal = (one for one in expected if one.mhz == seen.mhz and one is not seen)
        return all(now_s - one.applied_s < quickest_s for one in equal)
