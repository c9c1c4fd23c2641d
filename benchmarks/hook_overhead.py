"""What the hooks cost per instruction on the trainer's thread: report, two marks, and the next clock's request.

The clock keeper is a real process; its GPU is simulated. On CUDA the two marks are two event records more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.patches.integration import instruction, reported
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import Recorder
from perseus_ds.profiling.timers import CudaTimer, HostTimer
from perseus_ds.runtime.frequency_controller import FrequencyController
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.gpu import GpuSpec, create_gpu
from perseus_ds.simulator.state import state_path

_CLOCKS_MHZ = range(1410, 854, -15)
_MICROBATCHES = 32


class _NoEvent:
    """Takes an event's place where there is no CUDA; the stream has always come to it."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


@dataclass
class _Hooked:
    """A framework function, hooked as the patches hook it."""

    listener: Recorder | None = None
    microbatch: int = 0
    run: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        def nothing() -> None:
            pass

        integration: Any = self
        self.run = reported(integration, nothing, self._describe)

    def _describe(self) -> Operation:
        self.microbatch += 1
        kind = Kind.FORWARD if self.microbatch % 2 else Kind.BACKWARD
        return instruction(kind, self.microbatch // 2, 0)


def seconds_per_instruction(recorder: Recorder | None, clocks: IterationClocks, repeat: int) -> list[float]:
    """Return the mean cost of an instruction in each of ``repeat`` iterations."""
    hooked = _Hooked(recorder)
    costs_s = []
    for _ in range(repeat):
        if recorder is not None:
            recorder.iteration_begin(clocks, 0, [0.0] * len(clocks.planned_mhz))
        hooked.microbatch = 0
        begin_s = time.perf_counter()
        for _ in clocks.planned_mhz:
            hooked.run()
        costs_s.append((time.perf_counter() - begin_s) / len(clocks.planned_mhz))
        if recorder is not None:
            recorder.iteration_end()
    return costs_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=200)
    repeat = parser.parse_args().repeat
    count = 2 * _MICROBATCHES
    same = IterationClocks(_CLOCKS_MHZ[0], (_CLOCKS_MHZ[0],) * count)
    changing = IterationClocks(_CLOCKS_MHZ[0], tuple(_CLOCKS_MHZ[i % len(_CLOCKS_MHZ)] for i in range(count)))
    table = Table("", "median", "95th percentile", title="Hooks, per instruction on the trainer's thread")
    with tempfile.TemporaryDirectory() as directory:
        os.environ[SIMULATOR_VARIABLE] = directory
        create_gpu(state_path(directory, 0), GpuSpec(clocks_mhz=_CLOCKS_MHZ))
        keeper = ClockKeeper.start()
        frequencies = FrequencyController(keeper.set_mhz, lambda mhz: 0.01)
        asking = (frequencies.begin, frequencies.instruction_ended, frequencies.instruction_began)
        on_cuda = CudaTimer(_NoEvent)
        rows = {
            "no listener": (None, same),
            "recorded, clock stays": (Recorder(HostTimer(), *asking), same),
            "recorded, clock changes every time": (
                Recorder(HostTimer(), *asking),
                changing,
            ),
            "the same off the trainer's thread": (Recorder(on_cuda, *asking), changing),
        }
        for name, (recorder, clocks) in rows.items():
            costs_s = seconds_per_instruction(recorder, clocks, repeat)
            high_s = sorted(costs_s)[int(0.95 * (repeat - 1))]
            table.add_row(name, f"{statistics.median(costs_s) * 1e6:.2f} us", f"{high_s * 1e6:.2f} us")
        on_cuda.close()
        keeper.close()
    Console().print(table)


if __name__ == "__main__":
    main()
