"""One rank's timed operations, iteration by iteration; it never waits for the device.

Source: design of Perseus (SOSP '24, section 5), with CUDA events instead of its device synchronisations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.trace import TimedOperation

__all__ = ["IterationToken", "RecordedIteration", "Recorder", "Rest", "Timer"]


class Timer(Protocol):
    """Sets marks in program order and reads their times later."""

    def mark(self, followed: bool = False) -> Any:
        """Mark this point of the program. Returns at once.

        Args:
            followed: Whether ``when_reached`` follows. To be waited for costs a device some time.
        """
        ...

    def when_reached(self, mark: Any, callback: Callable[..., None], *arguments: Any) -> None:
        """Call ``callback(*arguments, reached_s)`` as soon as the device reaches ``mark``; on any thread, in order.

        The mark was made to be followed.

        ``reached_s`` is the mark's time on ``time.monotonic()``.
        """
        ...

    def times_s(self, marks: Sequence[Any]) -> list[float] | None:
        """Return each mark's time in ``time.monotonic()`` seconds; None until the device has reached all of them."""
        ...


class Rest(NamedTuple):
    """A low clock asked for while a GPU waits for its first instruction.

    Attributes:
        asked_s: Time of the request on ``time.monotonic()``.
        mhz: The clock.
    """

    asked_s: float
    mhz: int


@dataclass(eq=False, slots=True)
class IterationToken:
    """One iteration on its way from the host to the device: the host enqueues it, the device reaches it later.

    Attributes:
        clocks: Planned clocks of its instructions.
        iteration: Its number among the training iterations; None: an evaluation or forward-only pass.
        expected_begins_s: Begin of each instruction as in earlier iterations with the same clocks, counted from the
            iteration's; empty without such iterations.
        rests_until_s: When to ask for the first clock after a rest, counted from the iteration's begin; 0: no rest.
        requested_s: Time of each instruction's clock request on ``time.monotonic()``, by index; none for an unchanged
            clock.
        rest: The rest that there was, if any.
        settled: Whether the device has reached its end and all of its clocks have been requested.
    """

    clocks: IterationClocks
    iteration: int | None = None
    expected_begins_s: Sequence[float] = ()
    rests_until_s: float = 0.0
    requested_s: dict[int, float] = field(default_factory=dict)
    rest: Rest | None = None
    settled: bool = False

    def expects(self, index: int) -> bool:
        """Return whether an instruction's begin is expected: its clock is then asked for ahead."""
        return index < len(self.expected_begins_s)

    def settle(self, reached_s: float) -> None:
        """The device has reached its end, at a time that nobody asks for."""
        self.settled = True


@dataclass(frozen=True)
class RecordedIteration:
    """One rank's record of one iteration.

    Attributes:
        begin_s: Begin on ``time.monotonic()``.
        end_s: End on ``time.monotonic()``.
        operations: In program order; their times count from ``begin_s``.
        training: False for evaluation and forward-only passes.
        iteration: Its number among the training iterations.
        requested_s: Time of each instruction's clock request, by index; see ``IterationToken``.
        rest: See ``IterationToken``.
        clocks: Those planned; None: nobody asked for any.
    """

    begin_s: float
    end_s: float
    operations: tuple[TimedOperation, ...]
    training: bool = True
    iteration: int = 0
    requested_s: Mapping[int, float] = field(default_factory=dict)
    rest: Rest | None = None
    clocks: IterationClocks | None = None

    @cached_property
    def instructions(self) -> list[TimedOperation]:
        """The instructions in program order."""
        return [timed for timed in self.operations if timed.operation.kind.is_instruction]


@dataclass(frozen=True)
class _Pending:
    """The marks of an iteration that has ended on the host, but not yet on the device."""

    token: IterationToken
    begin: Any
    rows: list[tuple[Operation, Any, Any, int]]
    end: Any


class Recorder:
    """Collects the operations of one rank.

    The cost is two marks and two list appends per operation on the trainer thread. ``finished`` returns an iteration
    once the device has reached its end, usually during the next one. One mark of each instruction is followed: its
    begin where that was expected, else its end; both of the last one that was expected.

    Args:
        timer: ``HostTimer`` on CPU, ``CudaTimer`` on NVIDIA GPUs.
        on_begin: Called with an iteration's token and the time as soon as the device reaches its begin.
        on_instruction_end: Called with the token, an instruction's index (from 0) and the time as soon as the device
            ends the instruction, if the begin of the next one is not expected.
        on_instruction_begin: The same as soon as it begins one that was expected.
    """

    def __init__(
        self,
        timer: Timer,
        on_begin: Callable[[IterationToken, float], None] | None = None,
        on_instruction_end: Callable[[IterationToken, int, float], None] | None = None,
        on_instruction_begin: Callable[[IterationToken, int, float], None] | None = None,
    ) -> None:
        self._timer = timer
        self._on_begin = on_begin
        self._on_instruction_end = on_instruction_end
        self._on_instruction_begin = on_instruction_begin
        self._open: list[tuple[Operation, Any, Any, int]] | None = None
        self._pending: deque[_Pending] = deque()

    def iteration_begin(
        self,
        clocks: IterationClocks,
        iteration: int | None = None,
        expected_begins_s: Sequence[float] = (),
        rests_until_s: float = 0.0,
    ) -> None:
        """Begin an iteration; discard one left open by an exception.

        Args:
            clocks: Planned clocks of its instructions.
            iteration: Its number; None for evaluation and forward-only passes.
            expected_begins_s: See ``IterationToken``.
            rests_until_s: See ``IterationToken``.
        """
        self._token = IterationToken(clocks, iteration, expected_begins_s, rests_until_s)
        self._index = 0
        self._open = []
        self._begin = self._timer.mark(self._on_begin is not None)
        if self._on_begin is not None:
            self._timer.when_reached(self._begin, self._on_begin, self._token)

    def operation_begin(self, operation: Operation) -> None:
        """Record that ``operation`` is about to run; ignored outside an iteration."""
        if self._open is None:
            return
        followed = operation.kind.is_instruction and self._token.expects(self._index)
        on_begin = self._on_instruction_begin if followed else None
        self._operation_begin = self._timer.mark(on_begin is not None)
        if on_begin is not None:
            self._timer.when_reached(self._operation_begin, on_begin, self._token, self._index)

    def operation_end(self, operation: Operation) -> None:
        """Record that ``operation`` has run; on CUDA: has been enqueued."""
        if self._open is None:
            return
        index, frequency = self._index, 0
        followed = operation.kind.is_instruction and not self._token.expects(index + 1)
        on_end = self._on_instruction_end if followed else None
        end = self._timer.mark(on_end is not None)
        if operation.kind.is_instruction:
            self._index = index + 1
            frequency = self._token.clocks.of(index)
        if on_end is not None:
            self._timer.when_reached(end, on_end, self._token, index)
        self._open.append((operation, self._operation_begin, end, frequency))

    def iteration_end(self) -> None:
        """End the iteration."""
        if self._open is not None:
            followed = self._on_begin is not None or self._on_instruction_end is not None
            end = self._timer.mark(followed)
            if followed:
                self._timer.when_reached(end, self._token.settle)
            else:
                self._token.settled = True  # nobody asks for clocks
            self._pending.append(_Pending(self._token, self._begin, self._open, end))
            self._open = None

    def finished(self) -> list[RecordedIteration]:
        """Return the iterations whose end the device has reached, oldest first. Never waits."""
        done: list[RecordedIteration] = []
        while self._pending:
            first = self._pending[0]
            marks = [first.begin, *(mark for row in first.rows for mark in row[1:3]), first.end]
            times = self._timer.times_s(marks)
            if times is None or not first.token.settled:
                break
            done.append(_recorded(self._pending.popleft(), times))
        return done


def _recorded(pending: _Pending, times_s: list[float]) -> RecordedIteration:
    """Assemble an iteration from its marks and their times."""
    begin_s = times_s[0]
    operations = tuple(
        TimedOperation(row[0], first_s - begin_s, last_s - begin_s, row[3])
        for row, first_s, last_s in zip(pending.rows, times_s[1:-1:2], times_s[2:-1:2], strict=True)
    )
    token = pending.token
    number = token.iteration
    asked = token.requested_s, token.rest, token.clocks
    return RecordedIteration(begin_s, times_s[-1], operations, number is not None, number or 0, *asked)
