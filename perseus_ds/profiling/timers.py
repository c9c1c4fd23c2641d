"""Timers for the recorder: the host's clock, and CUDA events followed off the trainer's thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

__all__ = ["CudaTimer", "HostTimer", "late_switches"]


class HostTimer:
    """Instructions are over when the host says so: CPU training and simulated GPUs."""

    def mark(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def when_reached(self, mark: float, callback: Callable[[int], None], index: int) -> None:
        """Call back at once: on the host a mark is reached when it is made."""
        callback(index)

    def times_s(self, marks: Sequence[float]) -> list[float]:
        """Return the marks."""
        return list(marks)


class _Mark:
    """A recorded event, the host's time when it was recorded and when it was seen complete."""

    __slots__ = ("event", "recorded_s", "seen_s")

    def __init__(self, event: Any, recorded_s: float) -> None:
        self.event = event
        self.recorded_s = recorded_s
        self.seen_s = float("inf")


class CudaTimer:
    """CUDA events on the current stream; the trainer's thread records them and never waits.

    A thread of its own waits for the ends of instructions, in the order of the stream (the wait releases the
    GIL), and calls back as soon as each is reached. Times are read from the events once all are complete.
    Device time is tied to ``time.monotonic()`` by bounds: no event completes before it is recorded, nor after
    the follower has seen it complete. Each iteration's origin continues the last one's by device time, within
    its own bounds, so the tightest of them counts and the two clocks cannot drift apart.

    Args:
        new_event: Makes an event with ``record``, ``query``, ``synchronize`` and ``elapsed_time``; default: a
            timing ``torch.cuda.Event`` whose wait sleeps instead of spinning.
    """

    def __init__(self, new_event: Callable[[], Any] | None = None) -> None:
        self._new_event = new_event or _cuda_event
        self._enter_device = (lambda: None) if new_event else _device_of_this_thread()
        self._queue: queue.SimpleQueue[tuple[_Mark, Callable[[int], None], int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._origin: tuple[Any, float] | None = None

    def mark(self) -> _Mark:
        """Record an event on the current stream."""
        event = self._new_event()
        before_s = time.monotonic()
        event.record()
        return _Mark(event, before_s)

    def when_reached(self, mark: _Mark, callback: Callable[[int], None], index: int) -> None:
        """Have the follower call back once the device has come to ``mark``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="perseus-ds-stream", daemon=True)
            self._thread.start()
        self._queue.put((mark, callback, index))

    def times_s(self, marks: Sequence[_Mark]) -> list[float] | None:
        """Return the marks' times on ``time.monotonic()``, or None while the device has not come to them all.

        Raises whatever ended the follower: a CUDA error, or an exception of a callback.
        """
        if self._error is not None:
            raise self._error
        if not all(mark.event.query() for mark in reversed(marks)):
            return None
        anchor = marks[0].event
        elapsed = [anchor.elapsed_time(mark.event) / 1e3 for mark in marks]
        earliest_s = max(mark.recorded_s - at for mark, at in zip(marks, elapsed, strict=True))
        latest_s = min(mark.seen_s - at for mark, at in zip(marks, elapsed, strict=True))
        if self._origin is None:
            origin_s = latest_s if latest_s < float("inf") else earliest_s
        else:
            event, at_s = self._origin
            origin_s = min(max(at_s + event.elapsed_time(anchor) / 1e3, earliest_s), latest_s)
        self._origin = (anchor, origin_s)
        return [origin_s + at for at in elapsed]

    def close(self) -> None:
        """End the follower after what is already queued."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=5.0)
            self._thread = None

    def _follow(self) -> None:
        try:
            self._enter_device()
            while (item := self._queue.get()) is not None:
                mark, callback, index = item
                mark.event.synchronize()
                mark.seen_s = time.monotonic()
                callback(index)
        except BaseException as error:
            self._error = error


def late_switches(requested_s: Mapping[int, float], begins_s: Sequence[float], tolerance_s: float = 1e-3) -> int:
    """Count clock requests that came after their instruction had begun.

    Args:
        requested_s: When a clock was requested, by its instruction's index.
        begins_s: Per instruction, when it began, on the same clock.
        tolerance_s: Lateness that does not count, in seconds.

    Returns:
        Number of requests later than begin + tolerance.
    """
    return sum(asked_s > begins_s[index] + tolerance_s for index, asked_s in requested_s.items())


def _device_of_this_thread() -> Callable[[], None]:
    """Return what puts a new thread on this device; it would start on device 0 and take memory there."""
    import torch

    return partial(torch.cuda.set_device, torch.cuda.current_device())


def _cuda_event() -> Any:
    import torch

    return torch.cuda.Event(enable_timing=True, blocking=True)
