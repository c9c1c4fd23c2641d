"""Opens a rank's GPU with the backend asked for, or with the best that works here."""

from __future__ import annotations

import os
from typing import NamedTuple

from perseus_ds.device.exclusive import claim
from perseus_ds.device.gpu import DEFAULT_ZEUSD_ADDRESS, Backend, Gpu, reset_patiently
from perseus_ds.device.mapping import nvml_handle
from perseus_ds.device.nvml import NvmlGpu, initialise_nvml
from perseus_ds.device.observe import ObservedGpu
from perseus_ds.messages import PerseusError

__all__ = ["OpenedGpu", "open_gpu"]


class OpenedGpu(NamedTuple):
    """A GPU that is ready for use, at its default clocks.

    Attributes:
        gpu: The GPU.
        backend: What sets its clocks.
        reason: Why this backend, for people.
    """

    gpu: Gpu
    backend: Backend
    reason: str


def open_gpu(
    cuda_index: int,
    backend: Backend = "auto",
    *,
    uuid: str | None = None,
    pci_bus_id: str | None = None,
    zeusd_address: str = DEFAULT_ZEUSD_ADDRESS,
    exclusive: bool = False,
) -> OpenedGpu:
    """Open a GPU and, unless it is only observed, clear locks that a crash has left.

    Args:
        cuda_index: CUDA's index of the device in this process.
        backend: Who sets the clocks; ``auto``: NVML where permitted, else zeusd where it runs, else nobody.
        uuid: The device's UUID where CUDA could be asked.
        pci_bus_id: The device's PCI bus id, likewise.
        zeusd_address: UNIX socket or ``host:port`` of zeusd.
        exclusive: Whether no other process of this host may do likewise until this one ends.

    Returns:
        The GPU, the backend and why.

    Raises:
        PerseusError: No such GPU, the backend asked for does not work here, or another process has the GPU.
    """
    initialise_nvml()
    nvml = NvmlGpu(nvml_handle(cuda_index, uuid, pci_bus_id))
    if backend == "observe":
        return OpenedGpu(ObservedGpu(nvml), "observe", "observing was asked for: no clock is set")
    claimed = claim(nvml.uuid) if exclusive else None
    address = zeusd_address
    if address == DEFAULT_ZEUSD_ADDRESS:  # Zeus's own variable gives way to our configuration
        address = os.environ.get("ZEUSD_SOCK_PATH", address)
    if backend == "zeusd":
        return OpenedGpu(_cleared(_through_zeusd(nvml, address)), "zeusd", f"asked for: {address}")
    try:
        return OpenedGpu(_cleared(nvml), "nvml", "this process may set clocks")
    except PerseusError as error:
        if backend == "nvml" or error.code not in ("nvml-no-permission", "nvml-not-supported"):
            raise
        refusal = str(error)
    try:
        return OpenedGpu(
            _cleared(_through_zeusd(nvml, address)), "zeusd", f"NVML refuses this process, {address} answers"
        )
    except PerseusError as error:
        if claimed is not None:
            os.close(claimed)
        return OpenedGpu(ObservedGpu(nvml), "observe", f"no clock will be set: {refusal}; {error}")


def _through_zeusd(gpu: NvmlGpu, address: str) -> Gpu:
    from perseus_ds.device.zeusd import ZeusdGpu  # imported where used: it brings ssl and email

    return ZeusdGpu(gpu, address)


def _cleared(gpu: Gpu) -> Gpu:
    """Reset the clocks: clears stale locks, and shows whether this process may set any."""
    reset_patiently(gpu)
    return gpu
