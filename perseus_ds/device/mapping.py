"""Which of NVML's GPUs a rank computes on: CUDA numbers them differently."""

from __future__ import annotations

import os
from typing import Any

import pynvml

from perseus_ds.device.nvml import nvml_errors
from perseus_ds.messages import PerseusError

__all__ = ["nvml_handle"]


def nvml_handle(cuda_index: int, uuid: str | None = None, pci_bus_id: str | None = None) -> Any:
    """Return NVML's handle of a CUDA device.

    Args:
        cuda_index: CUDA's index of the device in this process.
        uuid: The device's UUID, with or without ``GPU-``, where CUDA could be asked: the surest way.
        pci_bus_id: The device's PCI bus id, likewise.

    Returns:
        The handle. Without UUID and bus id, ``CUDA_VISIBLE_DEVICES`` is followed.

    Raises:
        PerseusError: No such GPU, a MIG slice, or an index that could mean two different GPUs.
    """
    if uuid or pci_bus_id:
        with nvml_errors(f"GPU {uuid or pci_bus_id}", "find it in NVML"):
            if uuid:
                return _handle_by_uuid(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
            return pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in visible.split(",") if entry.strip()] if visible else None
    if entries is None:
        return _handle_by_index(cuda_index)
    if cuda_index >= len(entries):
        raise PerseusError("gpu-not-visible", index=cuda_index, visible=visible)
    entry = entries[cuda_index]
    if entry.isdigit():
        return _handle_by_index(int(entry))
    with nvml_errors(f"GPU {entry}", "find it in NVML"):
        return _handle_by_uuid(entry)


def _handle_by_uuid(uuid: str) -> Any:
    """Find a GPU by its UUID or, as CUDA allows, by the UUID's beginning."""
    if uuid.startswith("MIG-"):
        raise PerseusError("nvml-mig", gpu=uuid)
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        if pynvml.nvmlDeviceGetUUID(handle).lower().startswith(uuid.lower()):
            return handle
    raise PerseusError("gpu-not-found", gpu=uuid)


def _handle_by_index(index: int) -> Any:
    """Find a GPU by its place in PCI order, which is CUDA's unless it sorts different models by speed."""
    with nvml_errors(f"GPU {index}", "find it in NVML"):
        count = pynvml.nvmlDeviceGetCount()
        if index >= count:
            raise PerseusError("gpu-not-found", gpu=index)
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        names = {pynvml.nvmlDeviceGetName(handle) for handle in handles}
    if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise PerseusError("gpu-order", index=index, names=", ".join(sorted(names)))
    return handles[index]
