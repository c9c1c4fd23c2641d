"""What a run's switches and samples amount to."""

import math

import pytest

from perseus_ds.device.clock_keeper import KeeperUpdate
from perseus_ds.device.clock_statistics import ClockStatistics
from perseus_ds.device.protocol import Sample, Switch


def test_switches_are_reached_or_not_or_replaced_before_a_look():
    statistics = ClockStatistics()
    reached = [Switch(0.0, 0.001, 0.001 + 0.001 * n, 900, 900, 0) for n in range(1, 101)]
    replaced = Switch(1.0, 1.001, math.nan, 1200, 0, 3)
    throttled = Switch(2.0, 2.001, math.nan, 1200, 1050, 0)
    samples = [Sample(float(n), 10.0 * n, 0.001, 1050, 0x40 if n == 3 else 0) for n in range(4)]
    statistics.add(KeeperUpdate(samples=tuple(samples[:2]), switches=(*reached, replaced), notices=()))
    statistics.add(KeeperUpdate(samples=tuple(samples[2:]), switches=(throttled,), notices=()))
    assert statistics.throttled_s == pytest.approx(1.0)
    assert statistics.to_json() == {
        "switches": 102,
        "superseded": 3,
        "reached": 100,
        "not_reached": 1,
        "throttled_share": 0.25,
        "throttle_reasons": "hardware thermal slowdown",
        "latency_median_s": pytest.approx(0.0505),
        "latency_p95_s": pytest.approx(0.095),
    }


def test_nothing_seen_is_nothing_claimed():
    empty = ClockStatistics().to_json()
    assert (empty["switches"], empty["latency_median_s"], empty["throttle_reasons"]) == (0, None, "")
