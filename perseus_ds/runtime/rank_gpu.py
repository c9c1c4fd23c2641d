"""A rank's GPU: the clock keeper, the timer and, where GPUs are simulated, the work they do."""

from __future__ import annotations

import os
from typing import Any

from perseus_ds.config import Config
from perseus_ds.console import log
from perseus_ds.device.clock_keeper import ClockKeeper, KeeperUpdate
from perseus_ds.device.clock_statistics import ClockStatistics
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.profiling.recorder import Timer
from perseus_ds.profiling.timers import CudaTimer, HostTimer
from perseus_ds.runtime.simulation import Simulation

__all__ = ["RankGpu"]


class RankGpu:
    """What a rank measures with and acts through.

    Args:
        config: The whole configuration.
        topology: Where this rank stands.

    Attributes:
        gpu_name: Model of the GPU.
        clocks_mhz: Clocks that may be asked for, descending.
        sets_clocks: False when clocks are only observed.
        driver_version: NVIDIA driver.
        throttled_s: How long, up to the samples update last, the driver said that something holds the clock down.
        switch_latency_s: Calibrated time from a clock request to the new clock.
        timer: Marks begins and ends of operations.

    Raises:
        PerseusError: The GPU or its driver refuses.
    """

    def __init__(self, config: Config, topology: Topology) -> None:
        self._simulation = Simulation(config.simulator, config.run_dir, topology) if config.simulator else None
        uuid, cuda_index = self._device()
        self._keeper = ClockKeeper.start(
            cuda_index,
            uuid=uuid,
            backend="observe" if config.mode == "observe" else config.device.backend,
            zeusd_address=config.device.zeusd_address,
            counter_poll_s=config.device.counter_poll_s,
            min_switch_interval_s=config.device.min_switch_interval_s,
            calibrate=True,
            cache_dir=config.profiling.cache_dir,
        )
        info = self._keeper.info
        self._rank = topology.rank
        self._statistics = ClockStatistics()
        self.gpu_name = info.name
        self.driver_version = info.driver_version
        self.throttled_s = 0.0
        self.clocks_mhz = info.supported_clocks_mhz
        self.sets_clocks = info.sets_clocks
        self.backend_reason = f"{info.backend}: {info.reason}"
        self.switch_latency_s = max(info.calibration.switch_latencies_s, default=0.0)
        self.timer: Timer = HostTimer() if self._simulation or not _on_cuda() else CudaTimer()

    @property
    def max_mhz(self) -> int:
        """The highest clock."""
        return self.clocks_mhz[0]

    def describe(self) -> dict[str, Any]:
        """Return what the report says of this GPU."""
        return {
            "name": self.gpu_name,
            "driver_version": self._keeper.info.driver_version,
            "clocks_mhz": [self.clocks_mhz[0], self.clocks_mhz[-1], len(self.clocks_mhz)],
            "clocks_through": self.backend_reason,
            "switch_latency_s": self.switch_latency_s,
            "counter_period_s": self._keeper.info.calibration.counter_period_s,
        }

    def set_mhz(self, mhz: int) -> None:
        """Ask for a clock; returns at once."""
        self._keeper.set_mhz(mhz)

    def drain_samples(self) -> list[tuple[float, float]]:
        """Return the changed points (monotonic seconds, joules) of the energy counter since the last call."""
        before_s = self._statistics.throttled_s
        update = self._take(self._keeper.drain())
        self.throttled_s = self._statistics.throttled_s - before_s
        return [(sample.time_s, sample.energy_j) for sample in update.samples]

    def iteration_begins(self, iteration: int) -> None:
        """Let what is to happen to simulated GPUs happen."""
        if self._simulation:
            self._simulation.iteration_begins(iteration)

    def operation_begin(self, operation: Operation) -> None:
        """A simulated GPU starts to work."""
        if self._simulation and operation.kind.is_instruction:
            self._simulation.begin(operation)

    def operation_end(self, operation: Operation) -> None:
        """The instruction lasts as long as the simulated GPU needs for it."""
        if self._simulation and operation.kind.is_instruction:
            self._simulation.workload.finish()

    def close(self) -> ClockStatistics:
        """Reset the clocks and end the keeper.

        Returns:
            How well the driver did what it was asked for.
        """
        self._take(self._keeper.close())
        if isinstance(self.timer, CudaTimer):
            self.timer.close()
        return self._statistics

    def _take(self, update: KeeperUpdate) -> KeeperUpdate:
        """Count what the keeper says, and pass its messages on."""
        self._statistics.add(update)
        for line in update.notices:
            log.warning("rank %d: %s", self._rank, line)
        return update

    def _device(self) -> tuple[str | None, int]:
        """Return UUID and CUDA index of this rank's device."""
        if self._simulation:
            return self._simulation.workload.gpu.uuid, 0
        if _on_cuda():
            import torch

            index = torch.cuda.current_device()
            return str(torch.cuda.get_device_properties(index).uuid), index
        return None, int(os.environ.get("LOCAL_RANK", "0"))


def _on_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
