"""NVML's C functions on virtual GPUs: an object that replaces ``pynvml.nvmlLib``.

Names, arguments and return codes follow nvml.h, which documents them. A missing function is "not found" for pynvml,
as with an old driver.
"""
# ruff: noqa: D102

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perseus_ds.simulator.gpu import READING, SETTING, VirtualGpu
from perseus_ds.simulator.state import state_paths

__all__ = ["SIMULATOR_VARIABLE", "SimulatedDriver", "install_driver", "uninstall_driver"]

SIMULATOR_VARIABLE = "PERSEUS_DS_SIMULATOR"
"""Environment variable: the state directory whose GPUs this process shall see in place of real ones."""

_SUCCESS, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _INSUFFICIENT_SIZE = 0, 2, 3, 6, 7
_MEMORY_CLOCK_MHZ = 1215
_FIELD_AVERAGE_POWER, _FIELD_INSTANT_POWER = 185, 186
_VALUE_UNSIGNED_INT = 1


def _write(reference: Any, value: int) -> int:
    """Store a value through a by-reference argument."""
    reference._obj.value = value
    return _SUCCESS


def _write_text(buffer: Any, text: bytes) -> int:
    """Store a text in a caller's buffer."""
    buffer.value = text
    return _SUCCESS


def _value(argument: Any) -> int:
    """Return an integer argument, wrapped by ctypes or not."""
    return getattr(argument, "value", argument)


class SimulatedDriver:
    """The virtual GPUs of one state directory behind NVML's C interface."""

    def __init__(
        self,
        state_dir: str | Path,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open every GPU of a state directory.

        Args:
            state_dir: Directory of the state files.
            now: The GPUs' clock in s.
            sleep: Lets the time of a query pass on that clock.

        Raises:
            FileNotFoundError: There are none.
        """
        paths = state_paths(state_dir)
        if not paths:
            raise FileNotFoundError(f"{state_dir}: no virtual GPUs")
        self.gpus = [VirtualGpu(path, now) for path in paths]
        self._sleep = sleep
        # pynvml sets .restype on this one, which a bound method would refuse.
        self.nvmlErrorString = functools.partial(lambda code: f"simulated NVML error {code}".encode())

    def _gpu(self, handle: Any) -> VirtualGpu:
        """Return a handle's GPU, after the time that a query takes."""
        gpu = self.gpus[(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]
        if gpu.spec.query_s:
            self._sleep(gpu.spec.query_s)
        return gpu

    def _hand_out(self, reference: Any, index: int) -> int:
        ctypes.c_void_p.from_buffer(reference._obj).value = index + 1
        return _SUCCESS

    def _set(self, gpu: VirtualGpu, mhz: int | None) -> int:
        if code := gpu.fault_code(SETTING):
            return code
        if mhz is None:
            gpu.reset_clocks()
        else:
            gpu.lock_clock(mhz)
        return _SUCCESS

    # -- system -------------------------------------------------------------------------------------------

    def nvmlInitWithFlags(self, flags: Any) -> int:
        return _SUCCESS

    def nvmlInit_v2(self) -> int:
        return _SUCCESS

    def nvmlShutdown(self) -> int:
        return _SUCCESS

    def nvmlSystemGetDriverVersion(self, buffer: Any, length: Any) -> int:
        return _write_text(buffer, self.gpus[0].constants.driver_version)

    def nvmlSystemGetNVMLVersion(self, buffer: Any, length: Any) -> int:
        return _write_text(buffer, b"simulated")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        return _write(count, len(self.gpus))

    # -- handles ------------------------------------------------------------------------------------------

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        if not 0 <= _value(index) < len(self.gpus):
            return _INVALID_ARGUMENT
        return self._hand_out(handle, _value(index))

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        for index, gpu in enumerate(self.gpus):
            if gpu.constants.uuid == _value(uuid):
                return self._hand_out(handle, index)
        return _NOT_FOUND

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id: Any, handle: Any) -> int:
        for index, gpu in enumerate(self.gpus):
            if gpu.constants.pci_bus_id.lower() == bus_id.value.lower():
                return self._hand_out(handle, index)
        return _NOT_FOUND

    def nvmlDeviceGetIndex(self, handle: Any, index: Any) -> int:
        return _write(index, self.gpus.index(self._gpu(handle)))

    # -- what the GPU is ------------------------------------------------------------------------------------

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
        return _write_text(buffer, self._gpu(handle).constants.name)

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: Any) -> int:
        return _write_text(buffer, self._gpu(handle).constants.uuid)

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        bus_id = self._gpu(handle).constants.pci_bus_id
        info._obj.busId = bus_id
        info._obj.bus = int(bus_id.split(b":")[1], 16)
        return _SUCCESS

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        mig = self._gpu(handle).constants.mig
        return _write(current, mig) or _write(pending, mig)

    def nvmlDeviceGetEccMode(self, handle: Any, current: Any, pending: Any) -> int:
        return _write(current, 1) or _write(pending, 1)

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: Any, count: Any, clocks: Any) -> int:
        return _write_list(count, clocks, (_MEMORY_CLOCK_MHZ,))

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: Any, memory_mhz: Any, count: Any, clocks: Any) -> int:
        return _write_list(count, clocks, self._gpu(handle).clocks_mhz)

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, clock: Any) -> int:
        return _write(clock, self._gpu(handle).clocks_mhz[0])

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, limit: Any) -> int:
        return _write(limit, int(self._gpu(handle).spec.power_limit_w * 1000.0))

    # -- what the GPU does ----------------------------------------------------------------------------------

    def nvmlDeviceSetGpuLockedClocks(self, handle: Any, minimum: Any, maximum: Any) -> int:
        if _value(minimum) > _value(maximum):
            return _INVALID_ARGUMENT
        return self._set(self._gpu(handle), _value(maximum))

    def nvmlDeviceResetGpuLockedClocks(self, handle: Any) -> int:
        return self._set(self._gpu(handle), None)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> int:
        gpu = self._gpu(handle)
        return gpu.fault_code(READING) or _write(energy, gpu.counter_mj())

    def nvmlDeviceGetPowerUsage(self, handle: Any, power: Any) -> int:
        gpu = self._gpu(handle)
        return gpu.fault_code(READING) or _write(power, round(gpu.power_w() * 1000.0))

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, clock: Any) -> int:
        gpu = self._gpu(handle)
        return gpu.fault_code(READING) or _write(clock, gpu.sm_clock_mhz())

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, reasons: Any) -> int:
        gpu = self._gpu(handle)
        return gpu.fault_code(READING) or _write(reasons, gpu.throttle_reasons())

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons

    def nvmlDeviceGetFieldValues(self, handle: Any, count: Any, values: Any) -> int:
        gpu = self._gpu(handle)
        if code := gpu.fault_code(READING):
            return code
        for field in values._obj:
            known = field.fieldId in (_FIELD_AVERAGE_POWER, _FIELD_INSTANT_POWER)
            field.nvmlReturn = _SUCCESS if known else _NOT_SUPPORTED
            field.valueType = _VALUE_UNSIGNED_INT
            field.value.uiVal = round(gpu.power_w() * 1000.0)
        return _SUCCESS


def _write_list(count: Any, array: Any, values: tuple[int, ...]) -> int:
    """Answer NVML's two-call protocol for arrays: the size first, then the content."""
    count._obj.value = len(values)
    if array is None:
        return _INSUFFICIENT_SIZE
    array[: len(values)] = values
    return _SUCCESS


def install_driver(
    state_dir: str | Path, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> SimulatedDriver:
    """Put the virtual GPUs beneath pynvml in this process.

    Args:
        state_dir: Directory of the state files.
        now: The GPUs' clock in s.
        sleep: Lets the time of a query pass on that clock.

    Returns:
        The driver.

    Raises:
        FileNotFoundError: No virtual GPUs there.
    """
    import pynvml

    driver = SimulatedDriver(state_dir, now, sleep)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = driver
    return driver


def uninstall_driver() -> None:
    """Remove the virtual GPUs from pynvml."""
    import pynvml

    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlLib = None
