"""A process that trains beside others on the same host, busy in Python, with a keeper of its own, until its input ends.

It has no work for the GPU: processes that share one take turns of milliseconds on it, which ranks do not.
"""

from __future__ import annotations

import select
import sys
import time

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import Recorder
from perseus_ds.profiling.timers import HostTimer
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.silicon.logging_keeper import LoggingKeeper
from perseus_ds.silicon.position import INSTRUCTION_S, LATENCY_S, PLANNED

__all__ = ["main"]

_TOGETHER = 20  # iterations of one keeper, which holds its log


def main() -> int:
    """Train until the input ends."""
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        keeper = LoggingKeeper()
        frequencies = FrequencyController(keeper.set_mhz, lambda mhz: LATENCY_S)
        recorder = Recorder(
            HostTimer(), frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began
        )
        for number in range(_TOGETHER):
            _iterate(recorder, number)
        keeper.close()
    return 0


def _iterate(recorder: Recorder, number: int) -> None:
    count = len(PLANNED.planned_mhz)
    recorder.iteration_begin(PLANNED, number, [k * INSTRUCTION_S for k in range(count)])
    for k in range(count):
        recorder.operation_begin(Operation(Kind.FORWARD, k))
        end_s = time.monotonic() + INSTRUCTION_S
        while time.monotonic() < end_s:
            sum(range(100))
        recorder.operation_end(Operation(Kind.FORWARD, k))
    recorder.iteration_end()
    recorder.finished()


if __name__ == "__main__":
    sys.exit(main())
