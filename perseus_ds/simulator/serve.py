"""Answers ``libnvidia_ml_stub.c``: the virtual GPUs of one directory, over standard input and output.

It first writes a line with the number of GPUs and the driver's version, and four lines per GPU: MIG mode, power limit
and clocks; name; UUID; PCI bus id. Then each line ``FUNCTION GPU A B`` is answered with NVML's code and a number.
"""

from __future__ import annotations

import ctypes
import sys

from perseus_ds.simulator.driver import SimulatedDriver

__all__ = ["main"]


def main() -> None:
    """Serve until standard input ends."""
    driver = SimulatedDriver(sys.argv[1])
    print(len(driver.gpus), driver.gpus[0].constants.driver_version.decode())
    for gpu in driver.gpus:
        constants = gpu.constants
        print(constants.mig, int(gpu.spec.power_limit_w * 1000.0), len(gpu.clocks_mhz), *gpu.clocks_mhz)
        print(constants.name.decode(), gpu.uuid, constants.pci_bus_id.decode(), sep="\n", flush=True)
    for line in sys.stdin:
        function, index, first, second = line.split()
        print(*_answer(driver, function, int(index), int(first), int(second)), flush=True)


def _answer(driver: SimulatedDriver, function: str, index: int, first: int, second: int) -> tuple[int, int]:
    """Call one of the driver's functions and return code and value."""
    handle, value = ctypes.c_void_p(index + 1), ctypes.c_ulonglong()
    call = getattr(driver, function)
    if function == "nvmlDeviceSetGpuLockedClocks":
        return call(handle, first, second), 0
    if function == "nvmlDeviceResetGpuLockedClocks":
        return call(handle), 0
    if function == "nvmlDeviceGetClockInfo":
        return call(handle, first, ctypes.byref(value)), value.value
    return call(handle, ctypes.byref(value)), value.value
