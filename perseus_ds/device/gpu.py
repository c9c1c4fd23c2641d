"""What Perseus needs of a GPU."""

from __future__ import annotations

import time
from typing import Literal, Protocol

from perseus_ds.messages import PerseusError

__all__ = ["DEFAULT_ZEUSD_ADDRESS", "PERMANENT", "Backend", "Gpu", "is_reached", "reset_patiently", "throttle_text"]

Backend = Literal["auto", "nvml", "zeusd", "observe"]
"""Who sets the clocks; ``auto``: whoever may."""

DEFAULT_ZEUSD_ADDRESS = "/run/zeusd/zeusd.sock"

PERMANENT = ("nvml-no-permission", "nvml-not-supported", "nvml-gpu-is-lost", "zeusd-token")
"""Codes of the errors that do not pass by themselves."""

_RESET_ATTEMPTS = 15
_RESET_PAUSE_S = 0.05

_REASONS = {  # nvml.h, nvmlClocksEventReason*
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Gpu(Protocol):
    """One GPU of this host. Every method raises ``PerseusError`` with a remedy when the driver refuses.

    Attributes:
        uuid: NVML's UUID.
        name: Model, such as ``"NVIDIA A100-SXM4-80GB"``.
        driver_version: NVIDIA driver.
        supported_clocks_mhz: SM clocks that can be asked for, descending.
        sets_clocks: False for a backend that only observes.
    """

    uuid: str
    name: str
    driver_version: str
    supported_clocks_mhz: tuple[int, ...]
    sets_clocks: bool

    def lock_clock(self, mhz: int) -> None:
        """Ask for an SM clock. Success means that it was asked for, not that it is reached."""
        ...

    def reset_clocks(self) -> None:
        """Ask for the default clocks."""
        ...

    def energy_j(self) -> float:
        """Return the cumulative energy counter in J; it moves only every 10 to 100 ms."""
        ...

    def sm_clock_mhz(self) -> int:
        """Return the SM clock at this moment."""
        ...

    def throttle_reasons(self) -> int:
        """Return NVML's bit mask of what holds the clock down, without idleness and our own locks."""
        ...

    def power_limit_w(self) -> float:
        """Return the enforced power limit in W."""
        ...


def is_reached(actual_mhz: int, asked_mhz: int) -> bool:
    """Return whether a clock read back is the one asked for; supported clocks are 15 MHz apart."""
    return abs(actual_mhz - asked_mhz) < 8


def throttle_text(reasons: int) -> str:
    """Return the names of the throttle reasons in a bit mask."""
    return ", ".join(text for bit, text in _REASONS.items() if reasons & bit) or "no reason given"


THROTTLING = sum(_REASONS)
"""The bits of the reasons that hold a clock down against our will."""


def reset_patiently(gpu: Gpu) -> None:
    """Reset a GPU's clocks; errors that may pass are tried again for up to 0.7 s.

    Raises:
        PerseusError: The last error.
    """
    for attempt in range(_RESET_ATTEMPTS):
        try:
            gpu.reset_clocks()
            return
        except PerseusError as error:
            if error.code in PERMANENT or attempt == _RESET_ATTEMPTS - 1:
                raise
        time.sleep(_RESET_PAUSE_S)
