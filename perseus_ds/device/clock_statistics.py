"""Statistics of the driver's response to clock requests, for the report."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from perseus_ds.device.clock_keeper import KeeperUpdate
from perseus_ds.device.driver import Throttle
from perseus_ds.device.protocol import Sample
from perseus_ds.profiling.latencies import Bounds, usual_latencies_s, usual_latency_s

__all__ = ["ClockStatistics", "capped_clock_mhz", "held_clock_mhz"]

_KEPT = 100  # latencies per clock
_SAME_WITHIN = 0.05
# Plain numbers: a flag's own operators take microseconds, and every sample asks.
_POWER_CAP = int(Throttle.SOFTWARE_POWER_CAP)
_HOLDS_DOWN = ~_POWER_CAP
_TRUSTED = 4  # requests that the usual latency counts for which all ranks have told


def _latest() -> defaultdict[int, deque[Bounds]]:
    return defaultdict(lambda: deque(maxlen=_KEPT))


@dataclass
class ClockStatistics:
    """Counts over a run, from the keeper's records.

    Attributes:
        switches: Requests accepted by the driver.
        superseded: Requests replaced by a newer one before they reached the driver.
        reached: Switches with the requested clock read back.
        not_reached: Switches with a different clock read back for long; the rest was over between two readings.
        samples: Points of the energy counter.
        throttled_samples: Those with a throttling GPU.
        throttled_s: Time before samples throttled by more than the power limit, each since the previous sample.
        throttle_reasons: Every reason seen, as bits of ``Throttle``.
        latencies_s: By target clock in MHz, least and most seconds from an accepted switch to that clock; the latest.
        unheld_s: The same without those of switches while a limit held the GPU.
        times_switches: Whether readings are frequent enough to tell a latency.
    """

    switches: int = 0
    superseded: int = 0
    reached: int = 0
    not_reached: int = 0
    samples: int = 0
    throttled_samples: int = 0
    throttled_s: float = 0.0
    throttle_reasons: int = 0
    latencies_s: defaultdict[int, deque[Bounds]] = field(default_factory=_latest)
    unheld_s: defaultdict[int, deque[Bounds]] = field(default_factory=_latest)
    times_switches: bool = True
    _usual_s: dict[int, float] = field(default_factory=dict)
    _of_all_s: Mapping[int, float] = field(default_factory=dict)
    _held: bool = False
    _unseen: bool = False
    _sampled_s: float = math.inf

    def add(self, update: KeeperUpdate) -> None:
        """Count the keeper's records."""
        if update.samples:
            self._held = bool(update.samples[-1].throttle_reasons)
        for switch in update.switches:
            self.switches += 1
            self.superseded += switch.superseded
            if not math.isnan(switch.reached_s):
                self.reached += 1
                if self.times_switches and switch.certain:
                    middle_s, half_s = switch.reached_s - switch.applied_s, switch.uncertainty_s
                    # Clocks come in the order of their requests: with one before that was not seen, it may have waited.
                    self._timed(switch.mhz, (0.0 if self._unseen else middle_s - half_s, middle_s + half_s))
                self._unseen = False
            elif switch.actual_mhz:
                self.not_reached += 1
            else:
                self._unseen = True
                if self.times_switches and switch.missing_s:  # else only latencies shorter than a visit would count
                    self._timed(switch.mhz, (switch.missing_s - switch.applied_s, math.inf))
        for sample in update.samples:
            self.samples += 1
            if sample.throttle_reasons:
                self.throttled_samples += 1
            if _is_held_down(sample):
                self.throttled_s += max(0.0, sample.time_s - self._sampled_s)
            self._sampled_s = sample.time_s
            self.throttle_reasons |= sample.throttle_reasons

    def _timed(self, mhz: int, latency_s: Bounds) -> None:
        self.latencies_s[mhz].append(latency_s)
        if not self._held:
            self.unheld_s[mhz].append(latency_s)
        self._usual_s.pop(mhz, None)

    def expect(self, latencies_s: Mapping[int, float]) -> None:
        """Take the usual time to each clock in MHz that all ranks have told together."""
        self._of_all_s = latencies_s
        self._usual_s.clear()

    def latency_s(self, mhz: int, otherwise_s: float) -> float:
        """Return the usual time to a clock.

        Args:
            mhz: The clock.
            otherwise_s: What to expect of a clock of which the ranks have told nothing.
        """
        if mhz not in self._usual_s:
            told_s, requests = (self._of_all_s[mhz], _TRUSTED) if mhz in self._of_all_s else (otherwise_s, 0)
            self._usual_s[mhz] = usual_latency_s(self.latencies_s.get(mhz, ()), told_s, requests)
        return self._usual_s[mhz]

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers; latencies as median and 95th percentile in s, if any, each as usual as it may be.

        ``latency_by_clock`` has switches, median and 95th percentile for each target clock, highest first.
        """
        usual_s = usual_latencies_s([self.latencies_s])
        nearest_s = {
            mhz: sorted(min(max(usual_s[mhz], least_s), most_s) for least_s, most_s in bounds)
            for mhz, bounds in sorted(self.latencies_s.items(), reverse=True)
        }
        everything = _spread(sorted(chain.from_iterable(nearest_s.values())))
        return {
            "switches": self.switches,
            "superseded": self.superseded,
            "reached": self.reached,
            "not_reached": self.not_reached,
            "throttled_share": self.throttled_samples / self.samples if self.samples else 0.0,
            "throttle_reasons": Throttle(self.throttle_reasons).text if self.throttle_reasons else "",
            "latency_median_s": everything[0],
            "latency_p95_s": everything[1],
            "latency_by_clock": {str(mhz): [len(some_s), *_spread(some_s)] for mhz, some_s in nearest_s.items()},
        }


def held_clock_mhz(samples: Sequence[Sample], before_mhz: int) -> int:
    """Return the clock that a throttled GPU is held at, whatever is requested.

    Args:
        samples: Points of the energy counter with the GPU's state.
        before_mhz: The result of the samples before. It counts until a sample shows a clock above it: few samples tell
            of a ceiling, as nothing holds a GPU below it.

    Returns:
        MHz; 0 if it is not throttled, or if its clock follows the requests.
    """
    free_mhz = max((sample.sm_clock_mhz for sample in samples if not _is_held_down(sample)), default=0)
    clocks_mhz = sorted(sample.sm_clock_mhz for sample in samples if _is_held_down(sample) and sample.sm_clock_mhz)
    tenth = len(clocks_mhz) // 10  # a clock on its way is read now and then
    within = clocks_mhz[tenth : len(clocks_mhz) - tenth]
    if within and within[-1] - within[0] <= _SAME_WITHIN * within[-1]:
        return within[-1]
    return before_mhz if free_mhz <= before_mhz * (1.0 + _SAME_WITHIN) else 0


def capped_clock_mhz(samples: Iterable[Sample]) -> int:
    """Return a clock that the power limit hardly goes below. Where heat holds the GPU as well, it is not the limit's.

    Args:
        samples: Points of the energy counter with the GPU's state.

    Returns:
        MHz; 0 if no sample was at the power limit alone.
    """
    capped = (one for one in samples if one.throttle_reasons & _POWER_CAP and not _is_held_down(one))
    clocks_mhz = sorted(one.sm_clock_mhz for one in capped if one.sm_clock_mhz)
    return clocks_mhz[len(clocks_mhz) // 10] if clocks_mhz else 0


def _is_held_down(sample: Sample) -> bool:
    """Whether anything holds the GPU down; at its power limit it is as it should be."""
    return bool(sample.throttle_reasons & _HOLDS_DOWN)


def _spread(ordered: Sequence[float]) -> tuple[float | None, float | None]:
    """Return median and 95th percentile; None without any."""
    return (statistics.median(ordered), ordered[int(0.95 * (len(ordered) - 1))]) if ordered else (None, None)
