"""The hooks on a real GPU: what they add to a step of real transformer layers, and whether they synchronise.

The step runs the layers of one pipeline stage, forward and backward, for several micro-batches. Hooked and
unhooked steps take turns. NVML is only read; no clock is changed. Without an NVIDIA GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from perseus_ds.patches.integration import instruction, reported
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.recorder import Recorder, Timer
from perseus_ds.profiling.timers import CudaTimer

_SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize")
_LIMIT = 0.002


@dataclass(frozen=True)
class Shape:
    """One stage and its micro-batches."""

    layers: int = 4
    hidden: int = 4096
    heads: int = 32
    sequence: int = 2048
    microbatch_size: int = 2
    microbatches: int = 8


class WatchedEvent(torch.cuda.Event):
    """A CUDA event that counts waits on the trainer's thread."""

    waits = 0

    def synchronize(self) -> None:
        """Wait for the event."""
        WatchedEvent.waits += threading.current_thread() is threading.main_thread()
        super().synchronize()


class Step:
    """Forward and backward of all micro-batches, hooked as the patches hook a framework."""

    def __init__(self, shape: Shape, device: str, timer: Timer) -> None:
        torch.manual_seed(0)
        dtype = torch.bfloat16
        layers = [
            torch.nn.TransformerEncoderLayer(
                shape.hidden, shape.heads, 4 * shape.hidden, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(shape.layers)
        ]
        self._model = torch.nn.Sequential(*layers).to(device=device, dtype=dtype)
        size = (shape.microbatch_size, shape.sequence, shape.hidden)
        self._input = torch.randn(size, device=device, dtype=dtype)
        self._microbatches = shape.microbatches
        self._output: torch.Tensor | None = None
        self.listener: Recorder | None = None
        self.reached_s: list[float] = []
        self.recorder = Recorder(timer, lambda index: self.reached_s.append(time.monotonic()))
        integration: Any = self
        self._forward = reported(integration, self._run_forward, self._describe(Kind.FORWARD))
        self._backward = reported(integration, self._run_backward, self._describe(Kind.BACKWARD))

    def run(self, *, hooked: bool) -> None:
        """Enqueue one step."""
        self.listener = self.recorder if hooked else None
        if hooked:
            self.recorder.iteration_begin([1] * (2 * self._microbatches))
        for microbatch in range(self._microbatches):
            self._forward(microbatch)
            self._backward(microbatch)
        self._model.zero_grad(set_to_none=False)
        if hooked:
            self.recorder.iteration_end()

    def _describe(self, kind: Kind) -> Callable[[int], Operation]:
        return lambda microbatch: instruction(kind, microbatch, 0)

    def _run_forward(self, microbatch: int) -> None:
        self._output = self._model(self._input)

    def _run_backward(self, microbatch: int) -> None:
        assert self._output is not None
        self._output.float().pow(2).mean().backward()


def step_times_s(step: Step, synchronize: Callable[[], None], pairs: int) -> dict[bool, list[float]]:
    """Return the times of unhooked and hooked steps, taken in turns so that a drift meets both alike."""
    times_s: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(pairs):
        for hooked in (False, True) if pair % 2 else (True, False):
            synchronize()
            begin_s = time.perf_counter()
            step.run(hooked=hooked)
            synchronize()
            times_s[hooked].append(time.perf_counter() - begin_s)
            step.recorder.finished()
    return times_s


def synchronisations(step: Step, *, hooked: bool, steps: int) -> Counter[str]:
    """Count synchronising CUDA calls by name over some steps; those that torch knows of raise at once."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(steps):
            step.run(hooked=hooked)
            step.recorder.finished()
        torch.cuda.set_sync_debug_mode("default")
    return Counter(event.name for event in profile.events() or () if event.name in _SYNCHRONISING)


def follower_delays_s(step: Step) -> list[float]:
    """Return how long after the device ended an instruction the follower called back."""
    time.sleep(0.2)
    step.recorder.finished()
    step.reached_s.clear()
    step.run(hooked=True)
    torch.cuda.synchronize()
    time.sleep(0.2)
    (iteration,) = step.recorder.finished()
    ends_s = [iteration.begin_s + timed.end_s for timed in iteration.operations]
    return [reached - end for reached, end in zip(step.reached_s, ends_s, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60, help="hooked and unhooked steps")
    parser.add_argument("--layers", type=int, default=Shape.layers)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_overhead: skipped: no NVIDIA GPU at hand (torch.cuda.is_available() is False); nothing was measured")
        return 0
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    timer = CudaTimer(functools.partial(WatchedEvent, enable_timing=True, blocking=True))
    step = Step(Shape(layers=arguments.layers), "cuda", timer)
    for _ in range(10):
        step.run(hooked=True)
    torch.cuda.synchronize()
    energy_before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    times_s = step_times_s(step, torch.cuda.synchronize, arguments.pairs)
    energy_j = (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - energy_before_mj) / 1e3
    unhooked_s, hooked_s = (statistics.median(times_s[hooked]) for hooked in (False, True))
    differences = [b - a for a, b in zip(times_s[False], times_s[True], strict=True)]
    overhead = statistics.median(differences) / unhooked_s
    doubt = 1.25 * statistics.stdev(differences) / len(differences) ** 0.5 / unhooked_s
    delays_s = follower_delays_s(step)
    calls = {hooked: synchronisations(step, hooked=hooked, steps=5) for hooked in (False, True)}
    timer.close()

    table = Table("", "", title=f"Hooks on {torch.cuda.get_device_name()}")
    table.add_row("driver, torch", f"{pynvml.nvmlSystemGetDriverVersion()}, {torch.__version__}")
    table.add_row("step without hooks", f"{unhooked_s * 1e3:.3f} ms (median of {arguments.pairs})")
    table.add_row("step with hooks", f"{hooked_s * 1e3:.3f} ms")
    table.add_row("overhead, limit", f"{overhead:+.3%} ± {doubt:.3%}, {_LIMIT:.1%}")
    table.add_row("end of an instruction until the call back", f"{statistics.median(delays_s) * 1e6:.0f} us (median)")
    table.add_row("energy read from NVML meanwhile", f"{energy_j:.0f} J")
    for name in _SYNCHRONISING:
        table.add_row(name, f"{calls[False][name]} without, {calls[True][name]} with hooks")
    table.add_row("waits for events on the trainer's thread", str(WatchedEvent.waits))
    Console().print(table)
    added = WatchedEvent.waits + sum(calls[True][name] - calls[False][name] for name in _SYNCHRONISING)
    print(f"gpu_overhead: {added} synchronisations added; no clock was changed")
    return int(added > 0 or overhead - doubt > _LIMIT)


if __name__ == "__main__":
    sys.exit(main())
