"""A GPU whose clocks are left alone: profile and plan without privileges."""

from __future__ import annotations

from perseus_ds.device.nvml import NvmlGpu

__all__ = ["ObservedGpu"]


class ObservedGpu:
    """Reads like the GPU beneath and sets nothing; see ``Gpu``."""

    sets_clocks = False

    def __init__(self, gpu: NvmlGpu) -> None:
        """Observe a GPU."""
        self.uuid = gpu.uuid
        self.name = gpu.name
        self.driver_version = gpu.driver_version
        self.supported_clocks_mhz = gpu.supported_clocks_mhz
        self.energy_j = gpu.energy_j
        self.sm_clock_mhz = gpu.sm_clock_mhz
        self.throttle_reasons = gpu.throttle_reasons
        self.power_limit_w = gpu.power_limit_w

    def lock_clock(self, mhz: int) -> None:
        """Do nothing."""

    def reset_clocks(self) -> None:
        """Do nothing."""
