"""What a run's switches and samples amount to."""

import math

import pytest

from perseus_ds.device.clock_keeper import KeeperUpdate
from perseus_ds.device.clock_statistics import ClockStatistics, capped_clock_mhz, held_clock_mhz
from perseus_ds.device.driver import Throttle
from perseus_ds.device.protocol import Sample, Switch

HOT = int(Throttle.HARDWARE_THERMAL_SLOWDOWN)


def test_switches_are_reached_or_not_or_replaced_before_a_look():
    statistics = ClockStatistics()
    reached = [Switch(0.0, 0.001, 0.001 + 0.001 * n, 900, 900, 0) for n in range(1, 101)]
    replaced = Switch(1.0, 1.001, math.nan, 1200, 0, 3)
    throttled = Switch(2.0, 2.001, math.nan, 1200, 1050, 0)
    samples = [Sample(float(n), 10.0 * n, 0.001, 1050, HOT if n == 3 else 0) for n in range(4)]
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
        "latency_by_clock": {"900": [100, pytest.approx(0.0505), pytest.approx(0.095)]},
    }


def test_latencies_are_told_by_target_clock():
    statistics = ClockStatistics()
    slow = [Switch(0.0, 1.0, 1.0 + 0.1 * n, 900, 900, 0) for n in (1, 2, 9)]
    quick = [Switch(0.0, 1.0, 1.005, 1400, 1400, 0)]
    statistics.add(KeeperUpdate((), (*slow, *quick), ()))
    by_clock = statistics.to_json()["latency_by_clock"]
    assert list(by_clock) == ["1400", "900"]
    assert by_clock["1400"] == [1, pytest.approx(0.005), pytest.approx(0.005)]
    assert by_clock["900"] == [3, pytest.approx(0.2), pytest.approx(0.2)]


def test_a_clock_s_latency_is_the_median_of_those_seen_and_of_two_the_one_nearer_to_what_was_expected():
    statistics = ClockStatistics()
    for latency_s, known_s in ((0.2, 0.05), (0.01, 0.2), (0.02, 0.05)):
        assert statistics.latency_s(900, otherwise_s=0.05) == pytest.approx(known_s)
        statistics.add(KeeperUpdate((), (Switch(0.0, 1.0, 1.0 + latency_s, 900, 900, 0),), ()))
    assert statistics.latency_s(900, otherwise_s=0.05) == pytest.approx(0.02)
    assert statistics.latency_s(1400, otherwise_s=0.05) == 0.05


def test_what_all_ranks_have_told_of_a_clock_counts_until_much_else_was_seen():
    statistics = ClockStatistics()
    statistics.expect({900: 0.05})
    for seen in range(12):
        assert statistics.latency_s(900, otherwise_s=0.2) == pytest.approx(0.05 if seen <= 4 else 0.09)
        statistics.add(KeeperUpdate((), (Switch(0.0, 1.0, 1.09, 900, 900, 0),), ()))
    assert statistics.latency_s(1400, otherwise_s=0.2) == 0.2
    statistics.expect({900: 0.07, 1400: 0.03})
    assert statistics.latency_s(1400, otherwise_s=0.2) == 0.03


def test_readings_bound_a_latency_as_closely_as_they_follow_each_other():
    statistics = ClockStatistics()
    seen = Switch(0.0, 1.0, 1.06, 900, 900, 0, uncertainty_s=0.05)
    statistics.add(KeeperUpdate((), (seen,), ()))
    assert list(statistics.latencies_s[900]) == [pytest.approx((0.01, 0.11))]
    assert statistics.latency_s(900, otherwise_s=0.02) == pytest.approx(0.02)
    assert statistics.latency_s(1400, otherwise_s=0.02) == pytest.approx(0.02)


def test_latencies_while_a_limit_holds_the_gpu_are_kept_apart():
    statistics = ClockStatistics()
    for number, reasons in enumerate((0, HOT, 0)):
        switch = Switch(0.0, 1.0, 1.01 + 0.1 * number, 900, 900, 0)
        samples = (Sample(2.0 * number, 1.0, 0.001, 1050, 0), Sample(2.0 * number + 1.0, 1.0, 0.001, 1050, reasons))
        statistics.add(KeeperUpdate(samples, (switch,), ()))
    statistics.add(KeeperUpdate((), (Switch(0.0, 1.0, 1.5, 900, 900, 0),), ()))
    assert [most_s for _, most_s in statistics.latencies_s[900]] == pytest.approx([0.01, 0.11, 0.21, 0.5])
    assert [most_s for _, most_s in statistics.unheld_s[900]] == pytest.approx([0.01, 0.21, 0.5])


def test_a_clock_that_may_have_waited_for_one_asked_for_before_tells_no_least_latency():
    statistics = ClockStatistics()
    seen, unseen = Switch(0.0, 1.0, 1.01, 900, 900, 0), Switch(0.0, 1.0, math.nan, 1200, 0, 0)
    statistics.add(KeeperUpdate((), (seen, unseen), ()))
    statistics.add(KeeperUpdate((), (Switch(0.0, 1.1, 1.4, 900, 900, 0), seen), ()))
    least_s, most_s = zip(*statistics.latencies_s[900], strict=True)
    assert least_s == pytest.approx((0.01, 0.0, 0.01))
    assert most_s == pytest.approx((0.01, 0.3, 0.01))


def test_a_clock_that_a_newer_one_overtook_took_longer_than_it_was_missed():
    statistics = ClockStatistics()
    overtaken = Switch(0.0, 1.0, math.nan, 900, 0, 0, missing_s=1.1)
    statistics.add(KeeperUpdate((), (overtaken, Switch(0.0, 1.1, math.nan, 1200, 0, 0)), ()))
    assert list(statistics.unheld_s[900]) == [(pytest.approx(0.1), math.inf)]


def test_a_clock_that_another_request_may_have_brought_counts_as_reached_and_tells_no_latency():
    statistics = ClockStatistics()
    statistics.add(KeeperUpdate((), (Switch(0.0, 1.0, 1.3, 900, 900, 0, certain=False),), ()))
    assert (statistics.reached, dict(statistics.latencies_s)) == (1, {})


def test_nothing_seen_is_nothing_claimed():
    empty = ClockStatistics().to_json()
    assert (empty["switches"], empty["latency_median_s"], empty["throttle_reasons"]) == (0, None, "")
    assert empty["latency_by_clock"] == {}


def test_a_first_sample_that_is_throttled_says_nothing_of_the_time_before():
    statistics = ClockStatistics()
    statistics.add(KeeperUpdate((Sample(5.0, 1.0, 0.001, 1050, HOT), Sample(5.5, 2.0, 0.001, 1050, HOT)), (), ()))
    assert statistics.throttled_s == pytest.approx(0.5)


def test_a_gpu_at_its_power_limit_is_as_it_should_be():
    capped = Throttle.SOFTWARE_POWER_CAP
    statistics = ClockStatistics()
    statistics.add(KeeperUpdate((Sample(5.0, 1.0, 0.001, 1050, capped), Sample(5.5, 2.0, 0.001, 1050, capped)), (), ()))

    assert statistics.throttled_s == 0.0
    assert statistics.to_json()["throttled_share"] == 1.0


@pytest.mark.parametrize(
    ("clocks_mhz", "reason", "held_mhz"),
    [
        ([1200] * 9, HOT, 1200),
        ([1185, 1200, 1200, 1190], HOT, 1200),
        ([1200] * 18 + [700, 1410], HOT, 1200),  # on its way when it was read
        ([1080, 920, 700], HOT, 0),  # it follows the requests, at a distance
        ([1200] * 9, int(Throttle.SOFTWARE_POWER_CAP), 0),
        ([1200] * 9, 0, 0),
        ([0], HOT, 0),  # not readable
        ([], HOT, 0),
    ],
)
def test_a_throttled_gpu_is_held_at_the_clock_that_it_shows_whatever_is_requested(clocks_mhz, reason, held_mhz):
    samples = [Sample(float(n), 10.0 * n, 0.001, mhz, reason) for n, mhz in enumerate(clocks_mhz)]
    free = Sample(99.0, 990.0, 0.001, 600, 0)  # below the ceiling nothing holds it
    assert held_clock_mhz([*samples, free], before_mhz=0) == held_mhz


@pytest.mark.parametrize(
    ("readings", "held_mhz"),
    [
        ([], 1200),
        ([(1200, HOT)], 1200),
        ([(900, 0), (1200, 0)], 1200),  # below the ceiling nothing holds it
        ([(1410, HOT)], 1410),
        ([(900, 0), (1410, 0)], 0),  # it has cooled down
        ([(700, HOT), (1410, HOT)], 1200),
    ],
)
def test_a_ceiling_counts_until_the_gpu_shows_a_higher_clock(readings, held_mhz):
    samples = [Sample(float(n), 10.0 * n, 0.001, mhz, reason) for n, (mhz, reason) in enumerate(readings)]
    assert held_clock_mhz(samples, before_mhz=1200) == held_mhz


def test_the_power_limit_holds_a_gpu_at_clocks_that_hardly_go_below_one():
    capped = int(Throttle.SOFTWARE_POWER_CAP)
    clocks_mhz = [1700, *[1750, 1800] * 10]
    samples = [Sample(float(n), 10.0 * n, 0.001, mhz, capped) for n, mhz in enumerate(clocks_mhz)]
    assert capped_clock_mhz(samples) == 1750
    assert capped_clock_mhz([sample._replace(throttle_reasons=0) for sample in samples]) == 0
    assert capped_clock_mhz([sample._replace(throttle_reasons=HOT) for sample in samples]) == 0
    assert capped_clock_mhz([sample._replace(throttle_reasons=HOT | capped) for sample in samples]) == 0
    assert capped_clock_mhz([]) == 0
