"""Finds the driver's index of a rank's GPU: CUDA numbers GPUs differently."""

from __future__ import annotations

import os

from perseus_ds.device.driver import Driver
from perseus_ds.messages import PerseusError

__all__ = ["gpu_index"]


def gpu_index(driver: Driver, cuda_index: int, uuid: str | None = None) -> int:
    """Return the driver's index of a CUDA device.

    Args:
        driver: The started driver.
        cuda_index: CUDA's index of the device in this process.
        uuid: The device's UUID, with or without the vendor's prefix, if CUDA knows it: the most reliable way.

    Returns:
        The index. Without a UUID it follows ``CUDA_VISIBLE_DEVICES``.

    Raises:
        PerseusError: No such GPU, a part of one, or an ambiguous index.
    """
    if uuid:
        return driver.find(uuid)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [entry.strip() for entry in visible.split(",") if entry.strip()] if visible else None
    if entries is None:
        return _checked(driver, cuda_index)
    if cuda_index >= len(entries):
        raise PerseusError("gpu-not-visible", index=cuda_index, visible=visible)
    entry = entries[cuda_index]
    return _checked(driver, int(entry)) if entry.isdigit() else driver.find(entry)


def _checked(driver: Driver, index: int) -> int:
    """Return a place in PCI order, CUDA's order unless it sorts different models by speed."""
    models = driver.models()
    if index >= len(models):
        raise PerseusError("gpu-not-found", gpu=index)
    if len(set(models)) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise PerseusError("gpu-order", index=index, names=", ".join(sorted(set(models))))
    return index
