"""How well the driver did what it was asked for: what the report says about clocks."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from perseus_ds.device.clock_keeper import KeeperUpdate
from perseus_ds.device.gpu import throttle_text

__all__ = ["ClockStatistics"]

_KEPT = 4096


@dataclass
class ClockStatistics:
    """Counts over a run, from what the keeper sends.

    Attributes:
        switches: Requests that the driver accepted.
        superseded: Requests that a newer one overtook before the driver saw them.
        reached: Switches whose clock was read back as asked for.
        not_reached: Switches whose clock was read back as another for long; the rest was replaced before a look.
        samples: Points of the energy counter.
        throttled_samples: Those at which the GPU said that something holds its clock down.
        throttled_s: Time up to such a sample since the one before.
        throttle_reasons: Every reason seen, NVML's bit mask.
        latencies_s: From a switch accepted to its clock read back, the latest ones.
    """

    switches: int = 0
    superseded: int = 0
    reached: int = 0
    not_reached: int = 0
    samples: int = 0
    throttled_samples: int = 0
    throttled_s: float = 0.0
    throttle_reasons: int = 0
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _sampled_s: float = math.inf

    def add(self, update: KeeperUpdate) -> None:
        """Count what the keeper has sent."""
        for switch in update.switches:
            self.switches += 1
            self.superseded += switch.superseded
            if not math.isnan(switch.reached_s):
                self.reached += 1
                self.latencies_s.append(switch.reached_s - switch.applied_s)
            elif switch.actual_mhz:
                self.not_reached += 1
        for sample in update.samples:
            self.samples += 1
            if sample.throttle_reasons:
                self.throttled_samples += 1
                self.throttled_s += max(0.0, sample.time_s - self._sampled_s)
            self._sampled_s = sample.time_s
            self.throttle_reasons |= sample.throttle_reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers; latencies as median and 95th percentile in s, absent when none was seen."""
        ordered = sorted(self.latencies_s)
        return {
            "switches": self.switches,
            "superseded": self.superseded,
            "reached": self.reached,
            "not_reached": self.not_reached,
            "throttled_share": self.throttled_samples / self.samples if self.samples else 0.0,
            "throttle_reasons": throttle_text(self.throttle_reasons) if self.throttle_reasons else "",
            "latency_median_s": statistics.median(ordered) if ordered else None,
            "latency_p95_s": ordered[int(0.95 * (len(ordered) - 1))] if ordered else None,
        }
