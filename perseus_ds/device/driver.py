"""The interface to a vendor's driver, and its errors.

``Driver`` finds GPUs, and ``Gpu`` is one of them. No other module knows more of a vendor; see ``opening.DRIVERS``.
"""

from __future__ import annotations

import time
from enum import IntFlag, auto
from typing import ClassVar, NamedTuple, Protocol

from perseus_ds.messages import PerseusError

__all__ = [
    "Driver",
    "DriverError",
    "DriverTimeout",
    "Gpu",
    "GpuLost",
    "NoDriver",
    "NotPermitted",
    "NotSupported",
    "Remark",
    "Throttle",
    "is_reached",
    "reset_patiently",
]

_RESET_ATTEMPTS = 15
_RESET_PAUSE_S = 0.05


class DriverError(PerseusError):
    """The driver or its clock-setting service refuses. This base class itself means a possibly passing cause.

    Attributes:
        permanent: Whether another try is useless.
    """

    permanent: ClassVar[bool] = False
    default_code: ClassVar[str] = "driver-failed"

    def __init__(self, code: str = "", **values: object) -> None:
        """Describe the refusal.

        Args:
            code: Key of the catalogue of messages; default: the class's own.
            values: Values for the message; our own codes use ``driver``, ``gpu``, ``action`` and ``detail``.
        """
        super().__init__(code or self.default_code, **values)


class NotPermitted(DriverError):
    """This process lacks the permission."""

    permanent = True
    default_code = "gpu-not-permitted"


class NotSupported(DriverError):
    """This GPU or driver cannot do it."""

    permanent = True
    default_code = "gpu-not-supported"


class GpuLost(DriverError):
    """The GPU is gone, together with its clocks."""

    permanent = True
    default_code = "gpu-lost"


class DriverTimeout(DriverError):
    """The driver did not answer in time; it may next time."""

    default_code = "driver-timeout"


class NoDriver(DriverError):
    """This host has no such driver."""

    permanent = True
    default_code = "driver-missing"


class Throttle(IntFlag):
    """Reasons for a clock below the requested one."""

    SOFTWARE_POWER_CAP = auto()
    HARDWARE_SLOWDOWN = auto()
    SOFTWARE_THERMAL_SLOWDOWN = auto()
    HARDWARE_THERMAL_SLOWDOWN = auto()
    HARDWARE_POWER_BRAKE = auto()

    @property
    def text(self) -> str:
        """The reasons as text."""
        names = [reason.name or "" for reason in Throttle if reason & self]
        return ", ".join(name.lower().replace("_", " ") for name in names) or "no reason given"


class Remark(NamedTuple):
    """A remark on a GPU's settings.

    Attributes:
        about: The setting.
        found: Its state.
        remedy: A possible remedy; empty: no action needed.
    """

    about: str
    found: str
    remedy: str = ""


class Gpu(Protocol):
    """One GPU of this host. Every method raises ``DriverError`` with a remedy when the driver refuses.

    Attributes:
        index: Its number in the driver.
        pci_bus_id: PCI address.
        uuid: Unique identifier.
        name: Model, such as ``"NVIDIA A100-SXM4-80GB"``.
        driver_version: Version of the driver.
        supported_clocks_mhz: Supported SM clocks, descending.
        clock_step_mhz: Smallest distance between two clocks of the hardware.
        sets_clocks: False for a backend that only observes.
    """

    index: int
    pci_bus_id: str
    uuid: str
    name: str
    driver_version: str
    supported_clocks_mhz: tuple[int, ...]
    clock_step_mhz: int
    sets_clocks: bool

    def lock_clock(self, mhz: int) -> None:
        """Request an SM clock. Success means an accepted request, not a reached clock."""
        ...

    def reset_clocks(self) -> None:
        """Request the default clocks; a site may have its own."""
        ...

    def energy_j(self) -> float:
        """Return the cumulative energy counter in J; it moves only every 10 to 100 ms."""
        ...

    def power_w(self) -> float:
        """Return the power in W as sampled last, over a time shorter than the energy counter may average."""
        ...

    def sm_clock_mhz(self) -> int:
        """Return the current SM clock."""
        ...

    def throttle(self) -> Throttle:
        """Return the throttle reasons, without idleness and our own locks."""
        ...

    def power_limit_w(self) -> float:
        """Return the enforced power limit in W."""
        ...

    def modes(self) -> str:
        """Return the modes that change what instructions take and draw, as text; empty where there are none."""
        ...

    def remarks(self) -> list[Remark]:
        """Return remarks on the settings that the driver reports."""
        ...


class Driver(Protocol):
    """A vendor's driver on this host. Every method raises ``DriverError`` when the driver refuses.

    Attributes:
        name: Its key in ``opening.DRIVERS``, and the name of the backend.
        title: Its name for people.
    """

    name: str
    title: str

    def start(self) -> None:
        """Load the driver.

        Raises:
            NoDriver: This host has none.
        """
        ...

    def count(self) -> int:
        """Return the number of GPUs."""
        ...

    def models(self) -> list[str]:
        """Return every GPU's model, by index."""
        ...

    def find(self, uuid: str) -> int:
        """Return the index of the GPU with this UUID or UUID prefix; CUDA allows both.

        Raises:
            PerseusError: There is none, or it is only a part of a GPU.
        """
        ...

    def open(self, index: int) -> Gpu:
        """Return a GPU."""
        ...

    def close(self) -> None:
        """Unload the driver."""
        ...


def is_reached(gpu: Gpu, actual_mhz: int, asked_mhz: int) -> bool:
    """Return whether a clock read back is the requested one: nearer to it than to the next one."""
    return 2 * abs(actual_mhz - asked_mhz) <= gpu.clock_step_mhz


def reset_patiently(gpu: Gpu) -> None:
    """Reset a GPU's clocks; retry for up to 0.7 s after errors that may pass.

    Raises:
        DriverError: The last error.
    """
    for attempt in range(_RESET_ATTEMPTS):
        try:
            gpu.reset_clocks()
            return
        except DriverError as error:
            if error.permanent or attempt == _RESET_ATTEMPTS - 1:
                raise
        time.sleep(_RESET_PAUSE_S)
