"""One rank's timed operations, iteration by iteration, without ever waiting for the device.

Source: design of Perseus (SOSP '24, section 5), with CUDA events instead of its device synchronisations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.trace import TimedOperation

__all__ = ["RecordedIteration", "Recorder", "Timer"]


class Timer(Protocol):
    """Marks points in the program's order and tells later when they were reached."""

    def mark(self) -> Any:
        """Mark the present point of the program. Returns at once."""
        ...

    def when_reached(self, mark: Any, callback: Callable[[int], None], index: int) -> None:
        """Call ``callback(index)`` as soon as ``mark`` has been reached, on whatever thread."""
        ...

    def times_s(self, marks: Sequence[Any]) -> list[float] | None:
        """Return when each mark was reached, in ``time.monotonic()`` seconds; None if some were not yet."""
        ...


@dataclass(frozen=True)
class RecordedIteration:
    """What a rank ran in one iteration.

    Attributes:
        begin_s: Begin on ``time.monotonic()``.
        end_s: End on ``time.monotonic()``.
        operations: In program order; their times count from ``begin_s``.
        training: False for evaluation and forward-only passes.
    """

    begin_s: float
    end_s: float
    operations: tuple[TimedOperation, ...]
    training: bool = True


class Recorder:
    """Collects the operations of one rank.

    Costs two marks and two list appends per operation on the trainer's thread. An iteration is handed out by
    ``finished`` once the device has come to its end, usually when the next one is under way.

    Args:
        timer: ``HostTimer`` on CPU, ``CudaTimer`` on NVIDIA GPUs.
        on_instruction_end: Called with the index of an instruction within its iteration (from 0) as soon as it has
            really ended: time to request the next instruction's clock.
    """

    def __init__(self, timer: Timer, on_instruction_end: Callable[[int], None] | None = None) -> None:
        self._timer = timer
        self._on_instruction_end = on_instruction_end
        self._open: list[tuple[Operation, Any, Any, int]] | None = None
        self._pending: deque[tuple[Any, list[tuple[Operation, Any, Any, int]], Any, bool]] = deque()

    def iteration_begin(self, clocks: IterationClocks | None = None) -> None:
        """Begin an iteration; one that was left open by an exception is forgotten.

        Args:
            clocks: Clocks asked for; None for evaluation and forward-only passes (noted as 0 MHz).
        """
        self._clocks = clocks
        self._index = 0
        self._open = []
        self._begin = self._timer.mark()

    def operation_begin(self, operation: Operation) -> None:
        """Note that ``operation`` is about to run; outside an iteration nothing is noted."""
        if self._open is not None:
            self._operation_begin = self._timer.mark()

    def operation_end(self, operation: Operation) -> None:
        """Note that ``operation`` has run, on CUDA: has been enqueued."""
        if self._open is None:
            return
        end = self._timer.mark()
        frequency = 0
        if operation.kind.is_instruction:
            index = self._index
            self._index = index + 1
            if self._clocks is not None:
                frequency = self._clocks.of(index)
            if self._on_instruction_end is not None:
                self._timer.when_reached(end, self._on_instruction_end, index)
        self._open.append((operation, self._operation_begin, end, frequency))

    def iteration_end(self) -> None:
        """End the iteration."""
        if self._open is not None:
            self._pending.append((self._begin, self._open, self._timer.mark(), self._clocks is not None))
            self._open = None

    def finished(self) -> list[RecordedIteration]:
        """Hand out, oldest first, the iterations whose end has been reached. Never waits."""
        done: list[RecordedIteration] = []
        while self._pending:
            first_mark, rows, last_mark, training = self._pending[0]
            times = self._timer.times_s([first_mark, *(mark for row in rows for mark in row[1:3]), last_mark])
            if times is None:
                break
            self._pending.popleft()
            begin = times[0]
            operations = tuple(
                TimedOperation(row[0], first - begin, last - begin, row[3])
                for row, first, last in zip(rows, times[1:-1:2], times[2:-1:2], strict=True)
            )
            done.append(RecordedIteration(begin, times[-1], operations, training))
        return done
