"""What NVML tells of a GPU: each reading is one call of pynvml."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pynvml

__all__ = ["READINGS", "nvml_readings"]

_AVERAGE_POWER, _INSTANT_POWER = 185, 186

READINGS = ("energy_j", "power_w", "average_power_w", "instant_power_w", "sm_clock_mhz", "reasons")
"""Names of all readings."""


def nvml_readings(index: int) -> dict[str, Callable[[], float]]:
    """Return the readings of a GPU by name; NVML is running.

    Args:
        index: NVML's index of the GPU.
    """
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def field_w(field: int) -> float:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        return value.value.uiVal / 1e3 if value.nvmlReturn == pynvml.NVML_SUCCESS else float("nan")

    calls = (
        lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
        lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        partial(field_w, _AVERAGE_POWER),
        partial(field_w, _INSTANT_POWER),
        lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        lambda: float(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
    )
    return dict(zip(READINGS, calls, strict=True))
