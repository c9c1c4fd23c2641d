"""What a session needs of a GPU, in virtual time; and a network whose kernels are virtual."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from perseus_ds.device.clock_statistics import ClockStatistics
from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.profiling.achieved import Reading
from perseus_ds.profiling.latencies import Bounds
from perseus_ds.silicon.lab import Load

if TYPE_CHECKING:
    from perseus_ds.silicon.virtual_lab import VirtualLab

__all__ = ["VirtualNetwork", "VirtualRankGpu"]

_KERNEL_S = 100e-6


class VirtualRankGpu:
    """See ``RankGpu``; it observes, so it takes no clock."""

    readings: tuple[Reading, ...] = ()
    requests: tuple[tuple[float, int], ...] = ()
    shown_w: tuple[tuple[float, float], ...] = ()
    has_keeper, sets_clocks = True, False
    throttled_s, held_mhz, capped_mhz = 0.0, 0, 0
    unheld_latencies_s: Mapping[int, Sequence[Bounds]] = MappingProxyType({})

    def __init__(self, lab: VirtualLab) -> None:
        self._lab = lab
        self.timer = lab.timer()
        self.clocks_mhz = tuple(lab.spec.clocks_mhz)
        self.max_mhz = self.clocks_mhz[0]
        self.default_clocks = IterationClocks(self.max_mhz, locked=False)

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Do nothing."""

    def latency_s(self, mhz: int) -> float:
        """Return 0: no clock is set."""
        return 0.0

    def expect_latencies(self, latencies_s: Mapping[int, float]) -> None:
        """Do nothing."""

    def drain_samples(self) -> list[tuple[float, float]]:
        """Read the energy counter once."""
        return [(time.monotonic(), self._lab.readings["energy_j"]())]

    def watch_calmly(self, iteration_s: float) -> None:
        """Do nothing."""

    def iteration_begins(self, iteration: int | None) -> None:
        """Do nothing."""

    def iteration_ends(self) -> None:
        """Do nothing."""

    def operation_begin(self, operation: Operation) -> None:
        """Do nothing."""

    def operation_end(self, operation: Operation) -> None:
        """Do nothing."""

    def close(self) -> ClockStatistics:
        """Return statistics of no request."""
        return ClockStatistics()


class VirtualNetwork:
    """See ``Network``: the kernels are virtual, the loss is real."""

    def __init__(self, lab: VirtualLab) -> None:
        self._lab = lab
        generator = torch.Generator().manual_seed(0)
        self._weight = torch.randn(8, 8, generator=generator) / 4.0
        self._value = torch.ones(8)

    def run(self, kernels: int) -> None:
        """See ``Network``."""
        self._value = torch.tanh(self._weight @ self._value) + 0.1
        self._lab.work(Load.GENTLE, kernels * _KERNEL_S)

    def loss(self) -> bytes:
        """See ``Network``."""
        return self._value.numpy().tobytes()
