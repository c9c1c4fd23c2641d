"""NVML through pynvml (the package nvidia-ml-py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from perseus_ds.device.gpu import THROTTLING
from perseus_ds.messages import PerseusError

__all__ = ["NvmlGpu", "initialise_nvml", "nvml_errors"]

_CODES = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "nvml-not-supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "nvml-no-permission",
    pynvml.NVML_ERROR_TIMEOUT: "nvml-timeout",
    pynvml.NVML_ERROR_GPU_IS_LOST: "nvml-gpu-is-lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "nvml-gpu-is-lost",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "nvml-no-driver",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "nvml-no-driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "nvml-no-driver",
}


@contextmanager
def nvml_errors(gpu: str, action: str) -> Iterator[None]:
    """Turn NVML's errors into messages with a remedy.

    Args:
        gpu: Which GPU, for the message.
        action: What was tried, for the message.

    Raises:
        PerseusError: NVML refused.
    """
    try:
        yield
    except pynvml.NVMLError as error:
        code = _CODES.get(error.args[0], "nvml-unknown")
        raise PerseusError(code, gpu=gpu, action=action, detail=error) from error


def initialise_nvml() -> None:
    """Load NVML, or the virtual GPUs that ``PERSEUS_DS_SIMULATOR`` names.

    Raises:
        PerseusError: No usable driver, or the long deprecated package named pynvml shadows nvidia-ml-py.
    """
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise PerseusError("nvml-old-package", file=pynvml.__file__)
    if state_dir := os.environ.get("PERSEUS_DS_SIMULATOR"):
        from perseus_ds.simulator.driver import install_driver

        try:
            install_driver(state_dir)
        except (FileNotFoundError, ValueError) as error:
            raise PerseusError("simulator-missing", path=state_dir, detail=error) from error
    with nvml_errors("this host", "start NVML"):
        pynvml.nvmlInit()


class NvmlGpu:
    """One GPU through NVML; see ``Gpu``. Setting clocks needs root or CAP_SYS_ADMIN."""

    sets_clocks = True

    def __init__(self, handle: Any) -> None:
        """Read what never changes.

        Args:
            handle: NVML's device handle.

        Raises:
            PerseusError: NVML refuses, or the GPU is in MIG mode.
        """
        self._handle = handle
        with nvml_errors("GPU", "read the GPU's identity"):
            self.nvml_index: int = pynvml.nvmlDeviceGetIndex(handle)
            self.pci_bus_id: str = pynvml.nvmlDeviceGetPciInfo(handle).busId
            self.uuid: str = pynvml.nvmlDeviceGetUUID(handle)
            self.name: str = pynvml.nvmlDeviceGetName(handle)
            self.driver_version: str = pynvml.nvmlSystemGetDriverVersion()
        self._label = f"{self.name} {self.uuid}"
        self._refuse_mig()
        with nvml_errors(self._label, "read the supported clocks"):
            memory_mhz = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))
            clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz)
        self.supported_clocks_mhz: tuple[int, ...] = tuple(sorted(set(clocks), reverse=True))

    def _refuse_mig(self) -> None:
        """Slices of a GPU have neither a power reading nor clocks of their own."""
        try:
            mig = pynvml.nvmlDeviceGetMigMode(self._handle)[0]
        except pynvml.NVMLError:  # a GPU without MIG says "not supported"
            return
        if mig:
            raise PerseusError("nvml-mig", gpu=self._label)

    def lock_clock(self, mhz: int) -> None:
        """See ``Gpu``."""
        with nvml_errors(self._label, f"lock the clock at {mhz} MHz"):
            pynvml.nvmlDeviceSetGpuLockedClocks(self._handle, mhz, mhz)

    def reset_clocks(self) -> None:
        """See ``Gpu``."""
        with nvml_errors(self._label, "reset the clocks"):
            pynvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def energy_j(self) -> float:
        """See ``Gpu``."""
        with nvml_errors(self._label, "read the energy counter"):
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1000.0

    def sm_clock_mhz(self) -> int:
        """See ``Gpu``."""
        with nvml_errors(self._label, "read the SM clock"):
            return pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)

    def throttle_reasons(self) -> int:
        """See ``Gpu``."""
        with nvml_errors(self._label, "read the throttle reasons"):
            try:
                reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
            except pynvml.NVMLError as error:
                if error.args[0] != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    raise
                # drivers before 535 know it by its older name
                reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        return reasons & THROTTLING

    def power_limit_w(self) -> float:
        """See ``Gpu``."""
        with nvml_errors(self._label, "read the power limit"):
            return pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1000.0
