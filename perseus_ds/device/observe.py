"""A GPU with untouched clocks: profile and plan without privileges."""

from __future__ import annotations

from perseus_ds.device.driver import Gpu

__all__ = ["ObservedGpu"]


class ObservedGpu:
    """Reads the underlying GPU and sets nothing; see ``Gpu``."""

    sets_clocks = False

    def __init__(self, gpu: Gpu) -> None:
        """Observe a GPU."""
        self.index = gpu.index
        self.pci_bus_id = gpu.pci_bus_id
        self.uuid = gpu.uuid
        self.name = gpu.name
        self.driver_version = gpu.driver_version
        self.supported_clocks_mhz = gpu.supported_clocks_mhz
        self.clock_step_mhz = gpu.clock_step_mhz
        self.energy_j = gpu.energy_j
        self.power_w = gpu.power_w
        self.sm_clock_mhz = gpu.sm_clock_mhz
        self.throttle = gpu.throttle
        self.power_limit_w = gpu.power_limit_w
        self.modes = gpu.modes
        self.remarks = gpu.remarks

    def lock_clock(self, mhz: int) -> None:
        """Do nothing."""

    def reset_clocks(self) -> None:
        """Do nothing."""
