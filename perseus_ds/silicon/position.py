"""Experiment: when are clocks asked for, seen from where the device is?

The device's own clock stamps the borders of instructions. A keeper logs what it would set, and when. The host is ahead
of the device by nothing, some instructions, or more than an iteration, and it is idle, launching, or in Python.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import RecordedIteration, Recorder
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.silicon.lab import Asked, Event, Host, Lab, Load, between
from perseus_ds.silicon.outcome import Limit, Outcome, judged, percentile

__all__ = [
    "INSTRUCTION_S",
    "LATENCY_S",
    "PLANNED",
    "SITUATIONS",
    "Requests",
    "Situation",
    "judge",
    "measure",
    "position",
]

NAME = "position"
_ITERATIONS = 4
_EARLY_S, _TYPICAL_S, _RARE_S = 30e-6, 0.2e-3, 1e-3
_HANDSHAKES = 20
_OTHERS = 7

PLANNED = IterationClocks(1980, (1980, 1500, 1200) * 7)
"""What each iteration runs at."""

INSTRUCTION_S = 0.010
"""Time of each of its instructions."""

LATENCY_S = 0.004
"""From a request to the clock, as the controller believes."""


@dataclass(frozen=True)
class Situation:
    """Where the host is, and what it does.

    Attributes:
        ahead_s: Its lead over the device.
        host: What it does while it waits.
    """

    ahead_s: float
    host: Host


SITUATIONS = tuple(Situation(ahead_s, host) for ahead_s, host in itertools.product((0.0, 0.2, 1.0), Host))


@dataclass(frozen=True)
class Requests:
    """What happened in one situation.

    Attributes:
        in_order: Whether exactly the planned clocks were asked for, in their order.
        late_s: How long after its moment each clock was asked for. Its moment is the one that was planned, or else
            the border where the device is done with the instruction before.
        off_s: How far from the instruction's begin each clock that was asked for ahead would have arrived.
    """

    in_order: bool
    late_s: tuple[float, ...]
    off_s: tuple[float, ...]


@dataclass(frozen=True)
class _Iteration:
    """The stamps of an iteration's borders, and whether its begins were expected."""

    begin: int
    begins: list[int]
    ends: list[int]
    ahead: bool


def position(lab: Lab) -> Outcome:
    """Run and judge all situations, alone and beside seven other trainers."""
    alone = [measure(lab, situation) for situation in SITUATIONS]
    with lab.other_trainers(_OTHERS):
        among = [measure(lab, situation) for situation in SITUATIONS]
    return judge(alone, among)


def judge(alone: Sequence[Requests], among: Sequence[Requests] = ()) -> Outcome:
    """Judge what happened, all situations together.

    Args:
        alone: What happened on a GPU of its own.
        among: The same beside other trainers on the host.
    """
    found = [*alone, *among]
    late_s = [late for one in found for late in one.late_s]
    off_s = [abs(off) for one in found for off in one.off_s]
    first_s, typical_s, rare_s = min(late_s, default=0.0), percentile(late_s, 50), percentile(late_s, 99)
    figures = {
        "requests": len(late_s),
        "earliest_us": first_s * 1e6,
        "p50_us": typical_s * 1e6,
        "p99_us": rare_s * 1e6,
        "among_8_p99_us": percentile([late for one in among for late in one.late_s], 99) * 1e6,
        "arrival_off_p99_us": percentile(off_s, 99) * 1e6,
    }
    disorder = sum(not one.in_order for one in found)
    return judged(
        NAME,
        figures,
        Limit(disorder == 0, f"other clocks than planned in {disorder} of {len(found)} situations"),
        Limit(first_s > -_EARLY_S, f"a clock was asked for {-first_s * 1e6:.0f} us before its moment"),
        Limit(typical_s < _TYPICAL_S, f"p50 {typical_s * 1e3:.2f} ms, limit 0.2 ms"),
        Limit(rare_s < _RARE_S, f"p99 {rare_s * 1e3:.2f} ms, limit 1 ms"),
        Limit(percentile(off_s, 99) < _RARE_S, f"clocks would arrive {percentile(off_s, 99) * 1e3:.2f} ms off, p99"),
    )


def measure(lab: Lab, situation: Situation) -> Requests:
    """Run some iterations, every other one with known begins, and compare stamps and log."""
    timer, keeper = lab.timer(), lab.keeper()
    frequencies = FrequencyController(keeper.set_mhz, lambda mhz: LATENCY_S, lab.now_s)
    recorder = Recorder(timer, frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began)
    handshakes = [lab.handshake() for _ in range(_HANDSHAKES)]
    held: deque[Event] = deque()
    iterations = [_run(lab, recorder, situation, number, held) for number in range(_ITERATIONS)]
    lab.synchronize()
    lab.sleep(0.05)
    handshakes += [lab.handshake() for _ in range(_HANDSHAKES)]
    recorded = recorder.finished()
    timer.close()
    log = keeper.close()
    on_host = between(handshakes)
    moments = [
        moment
        for iteration, record in zip(iterations, recorded, strict=True)
        for moment in _moments(iteration, record, lambda stamp: on_host(lab.device_s([stamp])[0]))
    ]
    return _compare(moments, log)


def _run(lab: Lab, recorder: Recorder, situation: Situation, number: int, held: deque[Event]) -> _Iteration:
    """Enqueue an iteration, holding the host to its lead."""
    count = len(PLANNED.planned_mhz)
    ahead = bool(number % 2)
    expected_s = [k * INSTRUCTION_S for k in range(count)] if ahead else ()
    iteration = _Iteration(lab.stamp(), [], [], ahead)
    recorder.iteration_begin(PLANNED, number, expected_s)
    for k in range(count):
        operation = Operation(Kind.FORWARD, k)
        iteration.begins.append(lab.stamp())
        recorder.operation_begin(operation)
        lab.work(Load.SPIN, INSTRUCTION_S)
        recorder.operation_end(operation)
        iteration.ends.append(lab.stamp())
        held.append(lab.event())
        held[-1].record()
        while len(held) * INSTRUCTION_S > situation.ahead_s + 1e-9:
            lab.wait(held.popleft(), situation.host)
    recorder.iteration_end()
    return iteration


def _moments(iteration: _Iteration, record: RecordedIteration, on_host) -> list[tuple[int, float, float | None]]:
    """Return each clock's MHz, the moment for its request, and the begin that it is for if asked for ahead."""
    found: list[tuple[int, float, float | None]] = []
    for k, mhz in enumerate(PLANNED.planned_mhz):
        if k and iteration.ahead:
            found.append((mhz, record.requested_s[k], on_host(iteration.begins[k])))
        else:
            found.append((mhz, on_host(iteration.ends[k - 1] if k else iteration.begin), None))
    # After its last instruction, an iteration asks for its first clock.
    found.append((PLANNED.planned_mhz[0], on_host(iteration.ends[-1]), None))
    return found


def _compare(moments: Sequence[tuple[int, float, float | None]], log: Sequence[Asked]) -> Requests:
    """Compare what was to be asked for with what was; an unchanged clock is not asked for."""
    due = [one for before, one in itertools.pairwise([(0, 0.0, None), *moments]) if one[0] != before[0]]
    in_order = [one[0] for one in due] == [asked.mhz for asked in log]
    pairs = list(zip(due, log, strict=False)) if in_order else []
    late_s = tuple(asked.at_s - moment_s for (_, moment_s, _), asked in pairs)
    off_s = tuple(asked.at_s + LATENCY_S - begin_s for (_, _, begin_s), asked in pairs if begin_s is not None)
    return Requests(in_order, late_s, off_s)
