"""The site's rules for clocks: a highest clock, and the operator's own lock, which is put back instead of erased."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.device.driver import Gpu
from perseus_ds.device.observe import ObservedGpu
from perseus_ds.messages import PerseusError

__all__ = ["SiteGpu", "SitePolicy"]


@dataclass(frozen=True)
class SitePolicy:
    """The site's rules.

    Attributes:
        max_mhz: Highest clock to request; None: ``restore_mhz``, or the highest supported one.
        restore_mhz: The operator's own lock, which NVML cannot read back; None: the operator has locked nothing.
    """

    max_mhz: int | None = None
    restore_mhz: int | None = None

    def govern(self, gpu: Gpu) -> Gpu:
        """Return the GPU under these rules.

        Raises:
            PerseusError: The GPU has no clock that is low enough.
        """
        return gpu if self == SitePolicy() else SiteGpu(gpu, self)


class SiteGpu(ObservedGpu):
    """A GPU that keeps to the site's rules: its default clocks are the operator's; see ``Gpu``."""

    def __init__(self, gpu: Gpu, policy: SitePolicy) -> None:
        """Apply the rules; nothing is requested yet.

        Args:
            gpu: The GPU as it is.
            policy: The rules.

        Raises:
            PerseusError: The GPU has no clock that is low enough.
        """
        super().__init__(gpu)
        self.sets_clocks = gpu.sets_clocks
        self._gpu = gpu
        self._restore_mhz = policy.restore_mhz
        limit_mhz = policy.max_mhz or policy.restore_mhz or gpu.supported_clocks_mhz[0]
        self.supported_clocks_mhz = tuple(mhz for mhz in gpu.supported_clocks_mhz if mhz <= limit_mhz)
        if not self.supported_clocks_mhz:
            lowest_mhz = gpu.supported_clocks_mhz[-1]
            raise PerseusError("site-clock", gpu=f"{gpu.name} {gpu.uuid}", mhz=limit_mhz, lowest_mhz=lowest_mhz)

    def lock_clock(self, mhz: int) -> None:
        """See ``Gpu``."""
        self._gpu.lock_clock(mhz)

    def reset_clocks(self) -> None:
        """See ``Gpu``: back to the operator's lock, if there is one."""
        if self._restore_mhz is None:
            self._gpu.reset_clocks()
        else:
            self._gpu.lock_clock(self._restore_mhz)
