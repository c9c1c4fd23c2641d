"""A network on a real GPU, and how often a thread waits for the device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest import mock

import torch

__all__ = ["CudaNetwork", "count_waits"]

_SIZE = 3072  # kernels of some 50 us: a step waits for the device, not for the host
_SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize")


class CudaNetwork:
    """See ``Network``: pairs of a product and an activation."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._weight = (torch.randn(_SIZE, _SIZE, generator=generator) / _SIZE**0.5).to("cuda", torch.bfloat16)
        self._value = torch.ones_like(self._weight)

    def run(self, kernels: int) -> None:
        """See ``Network``."""
        for _ in range(max(1, kernels // 2)):
            self._value = torch.tanh(self._weight @ self._value)

    def loss(self) -> bytes:
        """See ``Network``."""
        return self._value.float().sum().cpu().numpy().tobytes()


def count_waits(run: Callable[[], None]) -> int:
    """Return how often this thread waits for the device in a function; what torch knows to wait raises at once."""
    waits = []
    here, wait = threading.current_thread(), torch.cuda.Event.synchronize

    def counted(event: torch.cuda.Event) -> None:
        if threading.current_thread() is here:
            waits.append(event)
        wait(event)

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        torch.profiler.profile(activities=activities) as profile,
        mock.patch.object(torch.cuda.Event, "synchronize", counted),
    ):
        torch.cuda.set_sync_debug_mode("error")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return len(waits) + sum(event.name in _SYNCHRONISING for event in profile.events() or ())
