"""What one GPU did, and at which clock: work, waiting, and other work between instructions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

from perseus_ds.pipeline.instruction import Instruction
from perseus_ds.profiling.recorder import RecordedIteration
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.visits import Settled

__all__ = [
    "Batch",
    "Between",
    "Change",
    "Segment",
    "Span",
    "changes",
    "segments",
    "settled_durations",
    "spans_of",
    "with_requests",
]

_TAKEN_WITHIN_S = 0.1  # a request later than that was another one
_AT_THE_END = 0.05  # of an instruction: how far a request's time and the GPU's may be apart


Batch = tuple[int, int]
"""Iteration, and micro-batch within it; of a joint instruction the forward's."""


class Between(Enum):
    """What a GPU does that runs no instruction."""

    WAITING = "waiting"
    OTHER = "other work"


@dataclass(frozen=True)
class Span:
    """A GPU at work.

    Attributes:
        begin_s: Begin on ``time.monotonic()``.
        end_s: End on ``time.monotonic()``.
        key: The curve of an instruction; None for other work (optimizer, reduction, loading), or where only a clock was
            asked for.
        frequency_mhz: SM clock asked for while it ran, or then; 0 for other work.
        asked_s: When that clock was asked for, or the driver took the request; infinitely early: at the end of the
            instruction before, if it differs.
        excluded: Whatever the energy counter saw of it is left out: evaluation.
        batch: Iteration and micro-batch of an instruction.
        size: Work of that micro-batch, as a multiple of the usual; NaN: unknown.
        slowed: How many times as long it takes at its position, as something beside it slows it down.
    """

    begin_s: float
    end_s: float
    key: CurveKey | None
    frequency_mhz: int = 0
    asked_s: float = -inf
    excluded: bool = False
    batch: Batch | None = None
    size: float = 1.0
    slowed: float = 1.0

    @property
    def lasted_s(self) -> float:
        """From begin to end."""
        return self.end_s - self.begin_s

    @property
    def longer(self) -> float:
        """How many times as long it takes as usual instructions."""
        return self.size * self.slowed


@dataclass(frozen=True)
class Change:
    """A change of the clock.

    Attributes:
        asked_s: When it was asked for.
        arrives_s: From when on it was in force.
        mhz: The new clock.
    """

    asked_s: float
    arrives_s: float
    mhz: int


@dataclass(frozen=True)
class Segment:
    """A time in which one GPU did one thing at one clock.

    Attributes:
        begin_s: Begin on ``time.monotonic()``.
        end_s: End on ``time.monotonic()``.
        what: The curve of an instruction, or what was between two.
        clock_mhz: SM clock in force; 0 while none has been asked for.
        whole: Whether it lasted from begin to end, no change of the clock under way.
        batch: Iteration and micro-batch of an instruction.
        slowed: How many times as long it takes at its position, as something beside it slows it down: its energy is the
            same, and in the extra time the GPU draws what waiting does.
    """

    begin_s: float
    end_s: float
    what: CurveKey | Between
    clock_mhz: int
    whole: bool = False
    batch: Batch | None = None
    slowed: float = 1.0


def spans_of(iteration: RecordedIteration, stage: int) -> list[Span]:
    """Return the work of a recorded iteration; whatever is between is waiting.

    Args:
        iteration: One rank's operations.
        stage: The rank's pipeline stage.

    Returns:
        Spans in program order, with one of no length where a clock was asked for while nothing ran: that of a rest, or
        after the last instruction the first one's again. Of an evaluation one that is left out as a whole.
    """
    if not iteration.training:
        return [Span(iteration.begin_s, iteration.end_s, None, excluded=True)]
    spans: list[Span] = []
    if iteration.rest is not None:
        asked_s, rest_mhz = iteration.rest
        spans.append(Span(asked_s, asked_s, None, rest_mhz, asked_s))
    index, instructions = 0, iteration.instructions
    for timed in iteration.operations:
        kind = timed.operation.kind
        begin_s, end_s = iteration.begin_s + timed.begin_s, iteration.begin_s + timed.end_s
        if kind.is_instruction and timed.frequency_mhz:  # without a clock of ours it belongs to no curve
            key = CurveKey.of(Instruction.of(stage, timed.operation))
            asked_s, batch = iteration.requested_s.get(index, -inf), (iteration.iteration, timed.operation.microbatch)
            spans.append(Span(begin_s, end_s, key, timed.frequency_mhz, asked_s, batch=batch))
        elif not kind.is_communication:
            spans.append(Span(begin_s, end_s, None))
        index += kind.is_instruction
        over = kind.is_instruction and index == len(instructions)
        if over and (again_s := iteration.requested_s.get(index)) is not None:
            spans.append(Span(end_s, end_s, None, instructions[0].frequency_mhz, again_s))
    return spans


def with_requests(spans: Sequence[Span], taken: Iterable[tuple[float, int]]) -> list[Span]:
    """Return spans whose clocks were asked for when the driver took the request, where that is known.

    Args:
        spans: Work in order of time.
        taken: (time, MHz) of each request, in order of time.
    """
    coming = deque(taken)
    return [
        span if asked_s is None else replace(span, asked_s=_taken_s(coming, span.frequency_mhz, asked_s, span.asked_s))
        for span, asked_s in zip(spans, _asked_s(spans), strict=True)
    ]


def _asked_s(spans: Iterable[Span]) -> Iterator[float | None]:
    """Yield when each span's clock was asked for; None where none was."""
    asked_mhz, free_s = 0, -inf
    for span in spans:
        mhz = span.frequency_mhz
        asks = mhz and (mhz != asked_mhz or span.asked_s > -inf)
        yield None if not asks else span.asked_s if span.asked_s > -inf else free_s
        if mhz:
            asked_mhz, free_s = mhz, span.end_s


def _taken_s(coming: deque[tuple[float, int]], mhz: int, asked_s: float, otherwise_s: float) -> float:
    """Return when the driver took a request, and drop those before it."""
    while coming and coming[0][0] < asked_s:
        coming.popleft()
    for at_s, taken_mhz in coming:
        if at_s >= asked_s + _TAKEN_WITHIN_S:
            break
        if taken_mhz == mhz:
            return at_s
    return otherwise_s


def changes(spans: Sequence[Span], latency_s: float) -> list[Change]:
    """Return when the clock changed, in order of time, if every change takes equally long.

    Args:
        spans: Work in order of time.
        latency_s: From a clock request to the new clock.
    """
    return [
        Change(asked_s, asked_s + latency_s, span.frequency_mhz)
        for span, asked_s in zip(spans, _asked_s(spans), strict=True)
        if asked_s is not None
    ]


def segments(spans: Sequence[Span], changed: Iterable[Change]) -> list[Segment]:
    """Return what the GPU did from the first span's begin to the last one's end, cut where the clock changed.

    Args:
        spans: Work in order of time; between them the GPU waits.
        changed: Changes of the clock in order of time.
    """
    if not spans:
        return []
    coming = deque(changed)
    clock = next((span.frequency_mhz for span in spans if span.key is not None), 0)
    found: list[Segment] = []
    now_s = spans[0].begin_s
    for one in _activities(spans):
        now_s, end_s = max(one.begin_s, now_s), one.end_s
        while coming and coming[0].arrives_s <= now_s:
            clock = coming.popleft().mhz
        # A request before the instruction's end may have let it stand still.
        whole = not coming or coming[0].asked_s > end_s - _AT_THE_END * (end_s - one.begin_s)
        while coming and coming[0].arrives_s < end_s:
            change = coming.popleft()
            found.append(replace(one, begin_s=now_s, end_s=change.arrives_s, clock_mhz=clock))
            now_s, clock = change.arrives_s, change.mhz
        if now_s < end_s:
            found.append(replace(one, begin_s=now_s, clock_mhz=clock, whole=whole))
            now_s = end_s
    return found


def _activities(spans: Sequence[Span]) -> Iterator[Segment]:
    """Yield what was done, waits included; the clock is not known."""
    free_s = spans[0].begin_s
    for span in spans:
        if span.begin_s > free_s:
            yield Segment(free_s, span.begin_s, Between.WAITING, 0)
        what = Between.OTHER if span.key is None else span.key
        yield Segment(span.begin_s, span.end_s, what, 0, batch=span.batch, slowed=span.slowed)
        free_s = max(free_s, span.end_s)


def settled_durations(found: Sequence[Segment], sizes: Mapping[Batch, float] = {}) -> list[Settled]:
    """Return the instructions under which the clock did not change.

    Args:
        found: What the GPU did.
        sizes: Work of each micro-batch; the durations are those of a usual one, none where it is not known. Empty:
            all are alike.
    """
    settled: list[Settled] = []
    visit, before_mhz = 0, 0
    for one in found:
        visit, before_mhz = visit + (one.clock_mhz != before_mhz), one.clock_mhz
        size = sizes.get(one.batch) if sizes and one.batch is not None else 1.0
        if one.whole and isinstance(one.what, CurveKey) and size is not None:
            settled.append(Settled(one.what, one.clock_mhz, (one.end_s - one.begin_s) / size, visit))
    return settled
