"""A virtual GPU's description: its clocks and every constant of its physics.

The defaults describe an ideal GPU: only work, waiting and switches.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields

__all__ = ["CONSTANTS", "GpuSpec", "Nature"]


@dataclass(frozen=True, kw_only=True)
class Nature:
    """The constants of a GPU's physics. ``docs/worlds.md`` gives the source of each.

    Attributes:
        blocking_power_w: Power without an instruction, at the highest clock.
        waiting_slope_w: Drop of that power down to the lowest clock; linear between.
        power_limit_w: As NVML reports it.
        power_limit_window_s: The governor keeps the average over this window below the limit; 0: no governor.
        power_limit_rise: So many times slower than it lowers the clock the governor raises it again.
        switch_latency_s: From a clock request to the new clock.
        switch_latency_spread: The latency is uniform within ± this share.
        switch_latency_by_clock: The latency grows by up to this share, by a fixed draw for each target clock.
        switch_tail_share: Share of the switches that take longer.
        switch_tail_s: Their mean additional time, exponentially distributed.
        request_stall_s: Stall of the stream after each clock request.
        query_s: Duration of each NVML call on a GPU.
        readings_period_s: Clock, power and throttle reasons that NVML shows are renewed this often; 0: they are of now.
        power_window_s: The power that NVML shows is the mean over this time before it is renewed; 0: of that moment.
        counter_period_s: Update period of the energy counter.
        sampling_duty: Share of the period in which power is sampled.
        counter_window_s: Window of the power average that the counter integrates.
        noise: Relative standard deviation of each counter increment, and of each power that NVML shows.
        leakage_per_k: Relative growth of the power per kelvin of warming.
        thermal_resistance_k_per_w: Warming per watt.
        thermal_window_s: Time constant of the warming.
    """

    blocking_power_w: float = 83.64
    waiting_slope_w: float = 0.0
    power_limit_w: float = 400.0
    power_limit_window_s: float = 0.0
    power_limit_rise: float = 1.0
    switch_latency_s: float = 0.010
    switch_latency_spread: float = 0.0
    switch_latency_by_clock: float = 0.0
    switch_tail_share: float = 0.0
    switch_tail_s: float = 0.0
    request_stall_s: float = 0.0
    query_s: float = 0.0
    readings_period_s: float = 0.0
    power_window_s: float = 0.0
    counter_period_s: float = 0.050
    sampling_duty: float = 1.0
    counter_window_s: float = 0.0
    noise: float = 0.0
    leakage_per_k: float = 0.0
    thermal_resistance_k_per_w: float = 0.1
    thermal_window_s: float = 60.0


CONSTANTS = tuple(one.name for one in fields(Nature))
"""Names of the physics' constants, in the order of the state file."""


@dataclass(frozen=True)
class GpuSpec(Nature):
    """Description of a virtual GPU.

    Attributes:
        clocks_mhz: Supported SM clocks.
        name: As NVML reports it.
        driver_version: As NVML reports it; default: derived from the physics, because calibrations depend on it.
        seed: Of noise, latencies and the counter's phase.
        mig: Whether MIG mode is on.
    """

    clocks_mhz: Sequence[int]
    name: str = "Simulated GPU"
    driver_version: str = ""
    seed: int = 0
    mig: bool = False

    @property
    def behaviour(self) -> str:
        """A driver version that differs whenever the physics do."""
        digest = zlib.crc32(repr([getattr(self, name) for name in CONSTANTS]).encode())
        return f"simulated-{self.switch_latency_s * 1e3:g}ms-{self.counter_period_s * 1e3:g}ms-{digest:08x}"

    def waiting_power_w(self, clock: int) -> float:
        """Return the power of a waiting GPU at a clock, given by its index."""
        highest, lowest = self.clocks_mhz[0], self.clocks_mhz[-1]
        if not self.waiting_slope_w or highest == lowest:
            return self.blocking_power_w
        share = (highest - self.clocks_mhz[clock]) / (highest - lowest)
        return self.blocking_power_w - self.waiting_slope_w * share
