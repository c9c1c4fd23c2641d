"""A rank's GPU: the clock keeper, the timer and, on simulated GPUs, their work."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from perseus_ds.config import Config, DeviceConfig
from perseus_ds.console import log
from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.device.clock_keeper import ClockKeeper, KeeperUpdate
from perseus_ds.device.clock_statistics import ClockStatistics, capped_clock_mhz, held_clock_mhz
from perseus_ds.pipeline.clocks import UNLOCKED, IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.profiling.achieved import Reading
from perseus_ds.profiling.latencies import Bounds
from perseus_ds.profiling.recorder import Timer
from perseus_ds.profiling.timers import CudaTimer, HostTimer
from perseus_ds.runtime.lasting_keeper import LastingKeeper
from perseus_ds.runtime.simulation import Simulation

__all__ = ["RankGpu"]

_READINGS_PER_ITERATION = 20
_CALMEST_POLL_S = 1.0


class RankGpu:
    """A rank's access to its GPU, for measuring and for setting clocks.

    Args:
        config: The whole configuration.
        topology: Position of this rank.

    Attributes:
        gpu_name: Model of the GPU.
        clocks_mhz: Supported clocks, descending.
        sets_clocks: False when clocks are only observed.
        driver_version: NVIDIA driver.
        power_limit_w: Enforced power limit.
        modes: Modes that change what instructions take and draw, such as ECC.
        readings: Of the SM clock, from the samples drained last.
        requests: Time and MHz of the clock requests that the driver took, as drained last.
        shown_w: Time and watts of each renewal of the power that the driver shows, as drained last.
        throttled_s: Time of throttling reported by the driver, up to the latest samples.
        held_mhz: Clock that the throttled GPU is held at, as far as the samples tell; 0: none.
        capped_mhz: Clock that the power limit hardly went below, from the samples drained last; 0: it did not matter.
        switch_latency_s: Calibrated time from a clock request to the new clock, that hardly any exceeds.
        default_clocks: Clocks of iterations without a plan: those that the GPU has without Perseus.
        timer: Marks begins and ends of operations.

    Raises:
        PerseusError: The GPU or its driver refuses.
    """

    def __init__(self, config: Config, topology: Topology) -> None:
        self._simulation = Simulation(config.simulator, config.run_dir, topology) if config.simulator else None
        uuid, cuda_index = self._device()
        observes = {"backend": "observe"} if config.mode == "observe" else {}
        start = partial(
            ClockKeeper.start,
            cuda_index,
            uuid=uuid,
            device=config.device.model_copy(update=observes),
            cache_dir=config.profiling.cache_dir,
        )
        limit = FailureLimit(config.rejoin.attempts, config.rejoin.within_s)
        self._keeper = LastingKeeper(lambda calibrate: start(calibrate=calibrate), limit)
        info = self._keeper.info
        self._rank = topology.rank
        self._poll_s = config.device.counter_poll_s
        self._statistics = ClockStatistics()
        self.gpu_name = info.name
        self.driver_version = info.driver_version
        self.power_limit_w = info.power_limit_w
        self.modes = info.modes
        self.readings: list[Reading] = []
        self.requests: list[tuple[float, int]] = []
        self.shown_w: list[tuple[float, float]] = []
        self.throttled_s = 0.0
        self.held_mhz = self.capped_mhz = 0
        self.clocks_mhz = info.supported_clocks_mhz
        self.sets_clocks = info.sets_clocks
        self.backend_reason = f"{info.backend}: {info.reason}"
        self.switch_latency_s = info.calibration.longest_switch_s
        self.default_clocks = self._default_clocks(config.device)
        self.timer = self._timer()
        self._released = False

    @property
    def max_mhz(self) -> int:
        """The highest clock."""
        return self.clocks_mhz[0]

    @property
    def has_keeper(self) -> bool:
        """Whether a clock keeper is alive."""
        return self._keeper.alive

    def describe(self) -> dict[str, Any]:
        """Return the report's description of this GPU."""
        return {
            "name": self.gpu_name,
            "driver_version": self._keeper.info.driver_version,
            "clocks_mhz": [self.clocks_mhz[0], self.clocks_mhz[-1], len(self.clocks_mhz)],
            "clocks_through": self.backend_reason,
            "switch_latency_s": self.switch_latency_s,
            "counter_period_s": self.counter_period_s,
        }

    @property
    def counter_period_s(self) -> float:
        """About the time between two updates of the energy counter, as calibrated; 0: not known."""
        return self._keeper.info.calibration.counter_period_s

    def set_mhz(self, mhz: int, not_before_s: float = 0.0) -> None:
        """Request a clock or ``UNLOCKED`` for a time, 0 for now; returns at once. See ``ClockKeeper.set_mhz``."""
        if self._released:
            mhz, not_before_s = self.default_clocks.requested(0), 0.0
        if mhz == UNLOCKED:
            self._keeper.reset_clocks()
        else:
            self._keeper.set_mhz(mhz, not_before_s)

    def release_clocks(self) -> None:
        """Request the default clocks, and from now on nothing else; abandon the iteration on a simulated GPU."""
        self._released = True
        self.set_mhz(UNLOCKED)
        if self._simulation:
            self._simulation.close()

    def let_go(self) -> None:
        """Reset the clocks for good, and return at once; no other keeper comes."""
        threading.Thread(target=self._keeper.close, name="perseus_ds-last-reset", daemon=True).start()

    def take_clocks(self) -> None:
        """Request clocks again."""
        self._released = False

    def latency_s(self, mhz: int) -> float:
        """Return the usual time from a request to a clock, as seen here and on all ranks, else as calibrated."""
        return self._statistics.latency_s(mhz, self._keeper.info.calibration.switch_latency_s)

    def expect_latencies(self, latencies_s: Mapping[int, float]) -> None:
        """Take the usual time from a request to each clock in MHz that all ranks have told together."""
        self._statistics.expect(latencies_s)

    @property
    def unheld_latencies_s(self) -> dict[int, tuple[Bounds, ...]]:
        """Latest latencies by clock in MHz, while no limit held the GPU."""
        return {mhz: tuple(latencies_s) for mhz, latencies_s in self._statistics.unheld_s.items()}

    def watch_calmly(self, iteration_s: float) -> None:
        """Read counter and clocks less often: enough for the energy of whole iterations.

        Args:
            iteration_s: Duration of an iteration.
        """
        calm_s = min(iteration_s / _READINGS_PER_ITERATION, _CALMEST_POLL_S)
        self._keeper.set_pace(max(self._poll_s, calm_s))
        self._statistics.times_switches = False

    def drain_samples(self) -> list[tuple[float, float]]:
        """Return the changed points (monotonic seconds, joules) of the energy counter since the last call."""
        before_s = self._statistics.throttled_s
        update = self._take(self._keeper.drain())
        self.throttled_s = self._statistics.throttled_s - before_s
        self.held_mhz = held_clock_mhz(update.samples, self.held_mhz)
        self.capped_mhz = capped_clock_mhz(update.samples)
        self.readings = [Reading(one.time_s, one.sm_clock_mhz, bool(one.throttle_reasons)) for one in update.samples]
        self.requests = [(one.applied_s, one.mhz) for one in update.switches]
        self.shown_w = [(one.time_s, one.power_w) for one in update.powers]
        return [(sample.time_s, sample.energy_j) for sample in update.samples]

    def iteration_begins(self, iteration: int | None) -> None:
        """Let scheduled throttling and faults of simulated GPUs begin and end.

        Args:
            iteration: Number of the training iteration; None: an evaluation.
        """
        if self._simulation:
            self._simulation.iteration_begins(iteration)

    def operation_begin(self, operation: Operation) -> None:
        """Enqueue the operation on a simulated GPU."""
        if self._simulation:
            self._simulation.operation_begin(operation)

    def operation_end(self, operation: Operation) -> None:
        """Wait for a simulated GPU where the framework would."""
        if self._simulation:
            self._simulation.operation_end(operation)

    def iteration_ends(self) -> None:
        """Wait for a simulated GPU as training loops do after an iteration."""
        if self._simulation:
            self._simulation.iteration_ends()

    def close(self) -> ClockStatistics:
        """Reset the clocks and end the keeper.

        Returns:
            Statistics of the driver's response to clock requests.
        """
        self._take(self._keeper.close())
        if self._simulation:
            self._simulation.close()
        if isinstance(self.timer, CudaTimer):
            self.timer.close()
        return self._statistics

    def _default_clocks(self, device: DeviceConfig) -> IterationClocks:
        """Return the default clocks: under load, a GPU without a lock runs at its highest."""
        if device.restore_mhz is not None:
            lock_mhz = device.restore_mhz
            mhz = next((mhz for mhz in self.clocks_mhz if mhz <= lock_mhz), self.clocks_mhz[-1])
            return IterationClocks(mhz, locked=False)
        # Without a lock the GPU would exceed the site's highest clock.
        return IterationClocks(self.max_mhz, locked=device.max_mhz is not None)

    def _take(self, update: KeeperUpdate) -> KeeperUpdate:
        """Count the keeper's records, and pass on its messages."""
        self._statistics.add(update)
        for line in update.notices:
            log.warning("rank %d: %s", self._rank, line)
        return update

    def _timer(self) -> Timer:
        """Return the timer for this rank's device."""
        if self._simulation:
            return CudaTimer(self._simulation.new_event)
        return CudaTimer() if _on_cuda() else HostTimer()

    def _device(self) -> tuple[str | None, int]:
        """Return UUID and CUDA index of this rank's device."""
        if self._simulation:
            return self._simulation.gpu.uuid, 0
        if _on_cuda():
            import torch

            index = torch.cuda.current_device()
            return str(torch.cuda.get_device_properties(index).uuid), index
        return None, int(os.environ.get("LOCAL_RANK", "0"))


def _on_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
