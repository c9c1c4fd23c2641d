"""Timers for the recorder: the host clock, and CUDA events watched by another thread."""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from perseus_ds.timer_slack import end_waits_on_time

__all__ = ["CudaTimer", "HostTimer"]

_SWITCH_INTERVAL_S = 0.1e-3  # a trainer in pure Python keeps the interpreter for 5 ms: Python's default
_TIGHT_S = 1e-3
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: captures of other threads are none of this one's business


class HostTimer:
    """Instructions are over when the host says so: CPU training and simulated GPUs."""

    def mark(self, followed: bool = False) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def when_reached(self, mark: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back at once: on the host a mark is reached when it is made."""
        callback(*arguments, mark)

    def times_s(self, marks: Sequence[float]) -> list[float]:
        """Return the marks."""
        return list(marks)


class _Mark:
    """A recorded event, with the host times of its recording and of its first sighting as complete."""

    __slots__ = ("event", "recorded_s", "seen_s")

    def __init__(self, event: Any, recorded_s: float) -> None:
        self.event = event
        self.recorded_s = recorded_s
        self.seen_s = float("inf")


class CudaTimer:
    """CUDA events on the current stream; the trainer thread records them and never waits.

    A separate thread, the follower, waits for the marks that are followed in stream order, without the GIL. It calls
    back as soon as the device reaches each. The timer reads the times from the events once all are complete. While
    there is a follower, Python's switch interval is 0.1 ms at most: else each GIL it waits for may cost 5 ms.

    Bounds tie device time to ``time.monotonic()``: an event completes after its recording, and before the follower
    sees it complete. Each iteration's origin continues the last one's by device time, within its own bounds. The
    tightest bounds count, and the two clocks cannot drift apart. Where they have, by some 20 us a second on an H100,
    the middle of tight bounds counts.

    Args:
        new_event: Makes an event with ``record``, ``query``, ``synchronize`` and ``elapsed_time``; default: a timing
            ``torch.cuda.Event``, whose wait sleeps instead of spinning if it is followed.
        now_s: The host's clock.
    """

    def __init__(self, new_event: Callable[[], Any] | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._new_event = (lambda _: new_event()) if new_event else _cuda_event
        self._now_s = now_s
        self._enter_device = (lambda: None) if new_event else _device_of_this_thread()
        self._queue: queue.SimpleQueue[tuple[_Mark, Callable[..., None], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._origin: tuple[Any, float] | None = None

    def mark(self, followed: bool = False) -> _Mark:
        """Record an event on the current stream."""
        event = self._new_event(followed)
        before_s = self._now_s()
        event.record()
        return _Mark(event, before_s)

    def when_reached(self, mark: _Mark, callback: Callable[..., None], *arguments: Any) -> None:
        """Let the follower call back, with the device's time, once the device reaches ``mark``."""
        if self._thread is None:
            _switch_faster()
            self._thread = threading.Thread(target=self._follow, name="perseus-ds-stream", daemon=True)
            self._thread.start()
        self._queue.put((mark, callback, arguments))

    def times_s(self, marks: Sequence[_Mark]) -> list[float] | None:
        """Return the marks' times on ``time.monotonic()``, or None until the device has reached them all.

        Raises the follower's fatal error: a CUDA error, or an exception of a callback.
        """
        if self._error is not None:
            raise self._error
        if not all(mark.event.query() for mark in reversed(marks)):
            return None
        anchor = marks[0].event
        elapsed = [anchor.elapsed_time(mark.event) / 1e3 for mark in marks]
        earliest_s = max(mark.recorded_s - at for mark, at in zip(marks, elapsed, strict=True))
        latest_s = min(mark.seen_s - at for mark, at in zip(marks, elapsed, strict=True))
        event, at_s = self._origin or (anchor, latest_s if latest_s < float("inf") else earliest_s)
        origin_s = at_s + event.elapsed_time(anchor) / 1e3
        if self._origin is None or not earliest_s <= origin_s <= latest_s:
            tight = 0.0 <= latest_s - earliest_s < _TIGHT_S
            origin_s = (earliest_s + latest_s) / 2.0 if tight else min(max(origin_s, earliest_s), latest_s)
        self._origin = (anchor, origin_s)
        return [origin_s + at for at in elapsed]

    def _reached_s(self, mark: _Mark) -> float:
        """Return a complete mark's time. The device knows it better than the follower, which may have come late."""
        if self._origin is None:
            return mark.seen_s
        event, at_s = self._origin
        return min(max(at_s + event.elapsed_time(mark.event) / 1e3, mark.recorded_s), mark.seen_s)

    def reached(self, mark: _Mark, callback: Callable[..., None], *arguments: Any) -> None:
        """The device has just been seen to have reached ``mark``: call back with the device's time."""
        mark.seen_s = self._now_s()
        callback(*arguments, self._reached_s(mark))

    def close(self) -> None:
        """End the follower after its queue."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=5.0)
            self._thread = None
            _switch_as_before()

    def _follow(self) -> None:
        try:
            end_waits_on_time()
            self._enter_device()
            while (item := self._queue.get()) is not None:
                mark, callback, arguments = item
                mark.event.synchronize()
                self.reached(mark, callback, *arguments)
        except BaseException as error:
            self._error = error


_intervals_s: list[float] = []  # the switch interval before each follower


def _switch_faster() -> None:
    _intervals_s.append(sys.getswitchinterval())
    sys.setswitchinterval(min(_intervals_s[0], _SWITCH_INTERVAL_S))


def _switch_as_before() -> None:
    first_s = _intervals_s[0]
    _intervals_s.pop()
    if not _intervals_s:
        sys.setswitchinterval(first_s)


def _device_of_this_thread() -> Callable[[], None]:
    """Return a function that puts a new thread on this device; else it would take memory on device 0."""
    import torch

    device = torch.cuda.current_device()

    def enter() -> None:
        torch.cuda.set_device(device)
        # Else a wait for an event would invalidate a CUDA graph that another thread captures meanwhile.
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))

    return enter


def _cuda_event(followed: bool) -> Any:
    import torch

    # On an H100 an event costs 1.6 us of the device's time, one that a thread can sleep for 1.7 us more.
    return torch.cuda.Event(enable_timing=True, blocking=followed)
