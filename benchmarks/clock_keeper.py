"""What the clock keeper costs and how quick it is, on simulated GPUs."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left

from rich.console import Console
from rich.table import Table

from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.state import state_path

_TRAINER = """
import time
from perseus_ds.device.clock_keeper import ClockKeeper
keeper = ClockKeeper.start()
keeper.set_mhz(900)
time.sleep(60)
"""


def measure(gpu: VirtualGpu, repeat: int) -> dict[str, list[float]]:
    """Return seconds per measured thing."""
    result: dict[str, list[float]] = {"start until ready": [], "close": []}
    for _ in range(repeat):
        begin_s = time.perf_counter()
        keeper = ClockKeeper.start()
        ready_s = time.perf_counter()
        keeper.close()
        result["start until ready"].append(ready_s - begin_s)
        result["close"].append(time.perf_counter() - ready_s)
    keeper = ClockKeeper.start()
    costs_s, equal_s = [], []
    for number in range(50 * repeat):
        for costs in (costs_s, equal_s):
            begin_s = time.perf_counter()
            keeper.set_mhz(900 if number % 2 else 1200)
            costs.append(time.perf_counter() - begin_s)
        time.sleep(0.005)
    time.sleep(0.2)
    switches = keeper.drain().switches
    for name, occupied in (("trainer sleeps", False), ("trainer runs Python", True)):
        result[f"asked for ahead, until the driver has it: {name}"] = _lateness_s(keeper, 50 * repeat, occupied)
    keeper.close()
    result["set_mhz on the trainer's thread"] = costs_s
    result["set_mhz, equal target"] = equal_s
    result["request until the driver has it"] = [switch.applied_s - switch.requested_s for switch in switches]
    result["reset after the trainer's SIGKILL"] = [_reset_after_kill_s(gpu) for _ in range(repeat)]
    return result


def _lateness_s(keeper: ClockKeeper, count: int, occupied: bool) -> list[float]:
    """Return how long after the time asked for the driver gets each clock.

    Args:
        keeper: A keeper at rest.
        count: Number of requests.
        occupied: Whether this thread runs pure Python meanwhile, as a busy trainer does.
    """
    due_s = []
    for number in range(count):
        due_s.append(time.monotonic() + 0.01)
        keeper.set_mhz(930 if number % 2 else 1230, due_s[-1])
        while occupied and time.monotonic() < due_s[-1] + 0.005:
            sum(range(100))
        time.sleep(max(0.0, due_s[-1] + 0.005 - time.monotonic()))
    time.sleep(0.2)
    # A request came before its due time, and after that of the one before.
    return [
        switch.applied_s - due_s[bisect_left(due_s, switch.requested_s)]
        for switch in keeper.drain().switches
        if switch.requested_s <= due_s[-1] and switch.mhz in (930, 1230)
    ]


def _reset_after_kill_s(gpu: VirtualGpu) -> float:
    trainer = subprocess.Popen([sys.executable, "-c", _TRAINER])
    while not gpu.is_locked():
        time.sleep(0.001)
    trainer.kill()
    begin_s = time.perf_counter()
    while gpu.is_locked():
        time.sleep(0.0001)
    trainer.wait()
    return time.perf_counter() - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as directory:
        os.environ[SIMULATOR_VARIABLE] = directory
        create_gpu(state_path(directory, 0), GpuSpec(clocks_mhz=range(855, 1411, 15)))
        rows = measure(VirtualGpu(state_path(directory, 0)), repeat)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    table = Table(
        "",
        "median",
        "95th percentile",
        "99th percentile",
        title=f"Clock keeper, simulated GPUs (load {load:.1f} per core)",
    )
    for name, seconds in rows.items():
        ordered = sorted(seconds)
        high_s = [ordered[int(share * (len(ordered) - 1))] for share in (0.95, 0.99)]
        table.add_row(name, *(f"{value_s * 1e3:.4f} ms" for value_s in (statistics.median(seconds), *high_s)))
    Console().print(table)


if __name__ == "__main__":
    main()
