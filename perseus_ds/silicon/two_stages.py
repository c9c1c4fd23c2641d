"""Experiment: does a stall of the neighbour show in the waits alone, and leave the instructions' times as they are?

The neighbour is another stream of the same GPU. Three programs wait for it as DeepSpeed, Megatron-Core's 1F1B and its
interleaved schedule with overlap do.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import RecordedIteration, Recorder
from perseus_ds.silicon.lab import Lab, Load
from perseus_ds.silicon.outcome import Limit, Outcome, judged

__all__ = ["PROGRAMS", "Pair", "judge", "measure", "two_stages"]

NAME = "two stages"
_STALL_S, _FORWARD_S, _BACKWARD_S = 0.050, 0.010, 0.020
_MICROBATCHES, _STALLED = 6, (1, 4)
_PAIRS = 3
_OFF_S, _CHANGED = 0.2e-3, 0.01

Do = Callable[[Kind, Callable[[], None]], None]


@dataclass(frozen=True)
class Pair:
    """The same iteration without stalls and with them."""

    calm: RecordedIteration
    stalled: RecordedIteration


def _deepspeed(lab: Lab, do: Do, stall: Callable[[], None]) -> None:
    do(Kind.EXCHANGE, stall)
    lab.synchronize()
    do(Kind.FORWARD, lambda: lab.work(Load.GENTLE, _FORWARD_S))
    do(Kind.BACKWARD, lambda: lab.work(Load.GENTLE, _BACKWARD_S))


def _megatron(lab: Lab, do: Do, stall: Callable[[], None]) -> None:
    do(Kind.FORWARD, lambda: lab.work(Load.GENTLE, _FORWARD_S))

    def exchange() -> None:
        stall()
        lab.synchronize()

    do(Kind.EXCHANGE, exchange)
    do(Kind.BACKWARD, lambda: lab.work(Load.GENTLE, _BACKWARD_S))


def _interleaved(lab: Lab, do: Do, stall: Callable[[], None]) -> None:
    do(Kind.POST, lambda: None)
    do(Kind.FORWARD, lambda: lab.work(Load.GENTLE, _FORWARD_S))
    do(Kind.WAIT, stall)
    do(Kind.BACKWARD, lambda: lab.work(Load.GENTLE, _BACKWARD_S))


PROGRAMS = {"DeepSpeed": _deepspeed, "Megatron 1F1B": _megatron, "Megatron interleaved": _interleaved}
"""One micro-batch of each framework, by name."""


def two_stages(lab: Lab) -> Outcome:
    """Run all programs and judge."""
    return judge({name: [measure(lab, name) for _ in range(_PAIRS)] for name in PROGRAMS})


def measure(lab: Lab, name: str) -> Pair:
    """Run a program without stalls and with them."""
    timer = lab.timer()
    recorder = Recorder(timer)
    for number, stalled in enumerate(((), _STALLED)):
        recorder.iteration_begin(IterationClocks(1), number)
        for microbatch in range(_MICROBATCHES):

            def do(kind: Kind, run: Callable[[], None], microbatch: int = microbatch) -> None:
                operation = Operation(kind, microbatch)
                recorder.operation_begin(operation)
                run()
                recorder.operation_end(operation)

            stalls = microbatch in stalled
            PROGRAMS[name](lab, do, (lambda: lab.stall(_STALL_S)) if stalls else (lambda: None))
        recorder.iteration_end()
    lab.synchronize()
    calm, with_stalls = recorder.finished()
    timer.close()
    return Pair(calm, with_stalls)


def judge(found: Mapping[str, Iterable[Pair]]) -> Outcome:
    """Judge where the stalls went."""
    figures: dict[str, float | str] = {}
    limits = []
    for name, pairs in found.items():
        waits_s: list[float] = []
        changes: list[float] = []
        for pair in pairs:
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                calm_s, stalled_s = (statistics.median(_times_s(one, kind)) for one in (pair.calm, pair.stalled))
                changes.append(stalled_s / calm_s - 1.0)
            waits_s += _added_s(pair)
        off_s = max(abs(wait_s - _STALL_S) for wait_s in waits_s)
        change = max(changes, key=abs)
        figures |= {f"{name}_stall_off_us": off_s * 1e6, f"{name}_instructions_changed": change}
        limits.append(Limit(off_s < _OFF_S, f"{name}: a wait tells {off_s * 1e3:.2f} ms too little or too much"))
        limits.append(Limit(abs(change) < _CHANGED, f"{name}: instructions changed by {change:+.1%}"))
    return judged(NAME, figures, *limits)


def _times_s(iteration: RecordedIteration, kind: Kind) -> list[float]:
    return [timed.duration_s for timed in iteration.operations if timed.operation.kind is kind]


def _added_s(pair: Pair) -> list[float]:
    """Return how much longer each stalled micro-batch's communication took."""
    return [sum(_waited_s(pair.stalled, microbatch)) - sum(_waited_s(pair.calm, microbatch)) for microbatch in _STALLED]


def _waited_s(iteration: RecordedIteration, microbatch: int) -> list[float]:
    return [
        timed.duration_s
        for timed in iteration.operations
        if timed.operation.kind.is_communication and timed.operation.microbatch == microbatch
    ]
