"""NVIDIA's driver: NVML through pynvml (the package nvidia-ml-py). No other module uses a GPU through it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

from perseus_ds.device.driver import (
    DriverError,
    DriverTimeout,
    GpuLost,
    NoDriver,
    NotPermitted,
    NotSupported,
    Remark,
    Throttle,
)
from perseus_ds.device.reading_only import forbid_setting, is_reading_only
from perseus_ds.messages import PerseusError

__all__ = ["NvmlDriver", "NvmlGpu"]

_TITLE = "NVML"
_CLOCK_STEP_MHZ = 15
_ERRORS: dict[int, type[DriverError]] = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NotSupported,
    pynvml.NVML_ERROR_NO_PERMISSION: NotPermitted,
    pynvml.NVML_ERROR_TIMEOUT: DriverTimeout,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuLost,
    pynvml.NVML_ERROR_RESET_REQUIRED: GpuLost,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NoDriver,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NoDriver,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NoDriver,
}
_REASONS = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: Throttle.SOFTWARE_POWER_CAP,
    pynvml.nvmlClocksThrottleReasonHwSlowdown: Throttle.HARDWARE_SLOWDOWN,
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: Throttle.SOFTWARE_THERMAL_SLOWDOWN,
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: Throttle.HARDWARE_THERMAL_SLOWDOWN,
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: Throttle.HARDWARE_POWER_BRAKE,
}

if is_reading_only():
    forbid_setting()


@contextmanager
def _errors(gpu: str, action: str) -> Iterator[None]:
    """Turn NVML's errors into ours; ``gpu`` and ``action`` are for the message."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise _ERRORS.get(error.args[0], DriverError)(driver=_TITLE, gpu=gpu, action=action, detail=error) from error


class NvmlDriver:
    """NVIDIA's driver; see ``Driver``."""

    name = "nvml"
    title = _TITLE

    def start(self) -> None:
        """Load NVML, or the virtual GPUs named by ``PERSEUS_DS_SIMULATOR``.

        Raises:
            NoDriver: There is none.
            PerseusError: The deprecated package pynvml shadows nvidia-ml-py, or the virtual GPUs are missing.
        """
        if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
            raise PerseusError("nvml-old-package", file=pynvml.__file__)
        if state_dir := os.environ.get("PERSEUS_DS_SIMULATOR"):
            from perseus_ds.simulator.driver import install_driver

            try:
                install_driver(state_dir)
            except (FileNotFoundError, ValueError) as error:
                raise PerseusError("simulator-missing", path=state_dir, detail=error) from error
        with _errors("this host", "start"):
            pynvml.nvmlInit()

    def count(self) -> int:
        """See ``Driver``."""
        with _errors("this host", "count the GPUs"):
            return pynvml.nvmlDeviceGetCount()

    def models(self) -> list[str]:
        """See ``Driver``."""
        with _errors("this host", "name the GPUs"):
            return [pynvml.nvmlDeviceGetName(handle) for handle in self._handles()]

    def find(self, uuid: str) -> int:
        """See ``Driver``; torch writes UUIDs without their ``GPU-``."""
        if uuid.startswith("MIG-"):
            raise PerseusError("nvml-mig", gpu=uuid)
        beginning = uuid.lower() if uuid.startswith("GPU-") else f"gpu-{uuid.lower()}"
        with _errors(f"GPU {uuid}", "find it"):
            for index, handle in enumerate(self._handles()):
                if pynvml.nvmlDeviceGetUUID(handle).lower().startswith(beginning):
                    return index
        raise PerseusError("gpu-not-found", gpu=uuid)

    def open(self, index: int) -> NvmlGpu:
        """See ``Driver``."""
        with _errors(f"GPU {index}", "open it"):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return NvmlGpu(handle)

    def close(self) -> None:
        """See ``Driver``."""
        with _errors("this host", "stop"):
            pynvml.nvmlShutdown()

    def _handles(self) -> Iterator[Any]:
        return (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount()))


class NvmlGpu:
    """One GPU through NVML; see ``Gpu``. Setting clocks needs root or CAP_SYS_ADMIN."""

    sets_clocks = True
    clock_step_mhz = _CLOCK_STEP_MHZ

    def __init__(self, handle: Any) -> None:
        """Read the constant properties.

        Args:
            handle: NVML's device handle.

        Raises:
            DriverError: NVML refuses.
            PerseusError: The GPU is in MIG mode.
        """
        self._handle = handle
        with _errors("GPU", "read the GPU's identity"):
            self.index: int = pynvml.nvmlDeviceGetIndex(handle)
            self.pci_bus_id: str = pynvml.nvmlDeviceGetPciInfo(handle).busId
            self.uuid: str = pynvml.nvmlDeviceGetUUID(handle)
            self.name: str = pynvml.nvmlDeviceGetName(handle)
            self.driver_version: str = pynvml.nvmlSystemGetDriverVersion()
        self._label = f"{self.name} {self.uuid}"
        self._refuse_mig()
        with _errors(self._label, "read the supported clocks"):
            memory_mhz = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))
            clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz)
        self.supported_clocks_mhz: tuple[int, ...] = tuple(sorted(set(clocks), reverse=True))

    def _refuse_mig(self) -> None:
        """Refuse a GPU in MIG mode: slices have no power reading and no clocks of their own."""
        try:
            mig = pynvml.nvmlDeviceGetMigMode(self._handle)[0]
        except pynvml.NVMLError:  # a GPU without MIG says "not supported"
            return
        if mig:
            raise PerseusError("nvml-mig", gpu=self._label)

    def lock_clock(self, mhz: int) -> None:
        """See ``Gpu``."""
        with _errors(self._label, f"lock the clock at {mhz} MHz"):
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz)

    def reset_clocks(self) -> None:
        """See ``Gpu``."""
        with _errors(self._label, "reset the clocks"):
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def energy_j(self) -> float:
        """See ``Gpu``."""
        with _errors(self._label, "read the energy counter"):
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000.0

    def power_w(self) -> float:
        """See ``Gpu``. What ``nvmlDeviceGetPowerUsage`` tells is a mean over a second on many models."""
        with _errors(self._label, "read the power"):
            instant = pynvml.nvmlDeviceGetFieldValues(self._handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0]
            if instant.nvmlReturn != pynvml.NVML_SUCCESS:
                raise pynvml.NVMLError(instant.nvmlReturn)
        return instant.value.uiVal / 1000.0

    def sm_clock_mhz(self) -> int:
        """See ``Gpu``."""
        with _errors(self._label, "read the SM clock"):
            return pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)

    def throttle(self) -> Throttle:
        """See ``Gpu``."""
        with _errors(self._label, "read the throttle reasons"):
            try:
                reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
            except pynvml.NVMLError as error:
                if error.args[0] != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    raise
                # drivers before 535 know it by its older name
                reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        return Throttle(sum(ours for theirs, ours in _REASONS.items() if reasons & theirs))

    def power_limit_w(self) -> float:
        """See ``Gpu``."""
        with _errors(self._label, "read the power limit"):
            return pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000.0

    def modes(self) -> str:
        """See ``Gpu``: ECC, and the workload power profiles that Blackwell has."""
        found = []
        with suppress(pynvml.NVMLError):  # a GPU or a driver without one says so
            found.append(f"ECC {'on' if pynvml.nvmlDeviceGetEccMode(self._handle)[0] else 'off'}")
        with suppress(pynvml.NVMLError, AttributeError):  # an older nvidia-ml-py does not know them
            profiles: Any = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
            pynvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(self._handle, pynvml.byref(profiles))
            words = enumerate(profiles.enforcedProfilesMask.mask)
            numbers = [32 * word + bit for word, bits in words for bit in range(32) if bits >> bit & 1]
            found += [f"workload power profile {number}" for number in numbers]
        return ", ".join(found)

    def remarks(self) -> list[Remark]:
        """See ``Gpu``: persistence and power limit."""
        found = []
        try:
            if not pynvml.nvmlDeviceGetPersistenceMode(self._handle):
                text = "off: clocks are forgotten when no process uses the GPU"
                found.append(Remark("persistence", text, "nvidia-smi -pm 1"))
        except pynvml.NVMLError:
            pass
        try:
            limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000
            default_w = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(self._handle) / 1000
        except pynvml.NVMLError:
            return found
        if limit_w < default_w:
            text = f"{limit_w:.0f} W of {default_w:.0f} W: high clocks may not be reached"
            return [*found, Remark("power limit", text, "nothing to do if it is meant so; else nvidia-smi -pl")]
        return [*found, Remark("power limit", f"{limit_w:.0f} W")]
