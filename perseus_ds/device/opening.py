"""Opens a rank's GPU with the requested backend, or with the best available one."""

from __future__ import annotations

import importlib
import os
from typing import NamedTuple

from perseus_ds.device.driver import Driver, DriverError, Gpu, NoDriver, NotPermitted, NotSupported, reset_patiently
from perseus_ds.device.exclusive import claim
from perseus_ds.device.mapping import gpu_index
from perseus_ds.device.observe import ObservedGpu
from perseus_ds.device.reading_only import is_reading_only
from perseus_ds.device.site_policy import SitePolicy

__all__ = ["DEFAULT_ZEUSD_ADDRESS", "DRIVERS", "OpenedGpu", "open_driver", "open_gpu"]

DEFAULT_ZEUSD_ADDRESS = "/run/zeusd/zeusd.sock"

_NO_RULES = SitePolicy()

DRIVERS = {
    "nvml": "perseus_ds.device.nvml:NvmlDriver",
}
"""Module and class of each driver, by backend name. The first driver present on this host is used."""


class OpenedGpu(NamedTuple):
    """A GPU ready for use, at the site's default clocks.

    Attributes:
        gpu: The GPU.
        backend: Interface that sets its clocks: a key of ``DRIVERS``, ``zeusd`` or ``observe``.
        reason: Reason for this backend, for people.
    """

    gpu: Gpu
    backend: str
    reason: str


def open_driver(name: str | None = None) -> Driver:
    """Start the driver of this host.

    Args:
        name: Key of ``DRIVERS``; None: the first present on this host.

    Raises:
        NoDriver: This host has none.
        DriverError, PerseusError: The driver does not start.
    """
    missing: NoDriver | None = None
    for candidate in [name] if name else DRIVERS:
        module, _, factory = DRIVERS[candidate].partition(":")
        driver: Driver = getattr(importlib.import_module(module), factory)()
        try:
            driver.start()
            return driver
        except NoDriver as error:
            missing = missing or error
    assert missing is not None, "there is a driver to try"
    raise missing


def open_gpu(
    cuda_index: int,
    backend: str = "auto",
    *,
    uuid: str | None = None,
    zeusd_address: str = DEFAULT_ZEUSD_ADDRESS,
    exclusive: bool = False,
    policy: SitePolicy = _NO_RULES,
) -> OpenedGpu:
    """Open a GPU and, unless it is only observed, clear locks left by a crash.

    Args:
        cuda_index: CUDA's index of the device in this process.
        backend: Interface that sets the clocks: a key of ``DRIVERS``, ``zeusd``, ``observe``, or ``auto``. ``auto``
            takes the driver if permitted, else zeusd if it runs, else ``observe``.
        uuid: The device's UUID, if CUDA knows it.
        zeusd_address: UNIX socket or ``host:port`` of zeusd.
        exclusive: Whether to keep other processes of this host away until this one ends.
        policy: The site's rules for its clocks.

    Returns:
        The GPU, the backend and its reason.

    Raises:
        PerseusError: No such GPU, an unusable backend, or a GPU held by another process.
    """
    if is_reading_only():
        backend = "observe"
    driver = open_driver(backend if backend in DRIVERS else None)
    gpu = driver.open(gpu_index(driver, cuda_index, uuid))
    if backend == "observe":
        return OpenedGpu(policy.govern(ObservedGpu(gpu)), "observe", "observing was asked for: no clock is set")
    claimed = claim(gpu.uuid) if exclusive else None
    address = zeusd_address
    if address == DEFAULT_ZEUSD_ADDRESS:  # Zeus's own variable gives way to our configuration
        address = os.environ.get("ZEUSD_SOCK_PATH", address)
    if backend == "zeusd":
        return OpenedGpu(_cleared(policy.govern(_through_zeusd(gpu, address))), "zeusd", f"asked for: {address}")
    try:
        return OpenedGpu(_cleared(policy.govern(gpu)), driver.name, "this process may set clocks")
    except (NotPermitted, NotSupported) as error:
        if backend == driver.name:
            raise
        refusal = str(error)
    try:
        reason = f"{driver.title} refuses this process, {address} answers"
        return OpenedGpu(_cleared(policy.govern(_through_zeusd(gpu, address))), "zeusd", reason)
    except DriverError as error:
        if claimed is not None:
            os.close(claimed)
        return OpenedGpu(policy.govern(ObservedGpu(gpu)), "observe", f"no clock will be set: {refusal}; {error}")


def _through_zeusd(gpu: Gpu, address: str) -> Gpu:
    from perseus_ds.device.zeusd import ZeusdGpu  # imported where used: it brings ssl and email

    return ZeusdGpu(gpu, address)


def _cleared(gpu: Gpu) -> Gpu:
    """Reset the clocks: this clears stale locks, and tests the permission."""
    reset_patiently(gpu)
    return gpu
