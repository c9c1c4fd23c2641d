"""Instruction times from a few instances per clock."""

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.times import instruction_times
from perseus_ds.profiling.visits import Settled

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
CLOCKS = range(1410, 854, -15)


def true_time_s(key: CurveKey, mhz: int) -> float:
    return (0.015 + 50.0 / mhz) * (1 if key == FORWARD else 1.9)


def test_points_come_by_falling_clock_with_honest_intervals() -> None:
    rng = np.random.default_rng(0)
    durations = [
        Settled(key, mhz, true_time_s(key, mhz) * rng.normal(1.0, 0.02), mhz)
        for key in (FORWARD, BACKWARD)
        for mhz in CLOCKS
        for _ in range(4)
    ]

    points, counts = instruction_times(durations)

    assert [point.frequency_mhz for point in points[FORWARD]] == list(CLOCKS)
    assert set(counts.values()) <= {3, 4}
    errors = [p.time_s / true_time_s(key, p.frequency_mhz) - 1 for key, row in points.items() for p in row]
    inside = [
        abs(p.time_s - true_time_s(key, p.frequency_mhz)) <= p.time_ci_s for key, row in points.items() for p in row
    ]
    assert np.std(errors) < 0.5 * 0.02 / 4**0.5, "sharper than the mean of four"
    assert np.mean(inside) >= 0.85
    widths = [point.time_ci_s / point.time_s for row in points.values() for point in row]
    assert np.mean(widths) < 1.96 * 0.02 / 4**0.5, "and no wider than that of the mean"


def test_an_instance_that_was_held_up_does_not_count() -> None:
    durations = [
        Settled(FORWARD, mhz, true_time_s(FORWARD, mhz) * (1 + 0.001 * i), mhz) for mhz in CLOCKS for i in range(3)
    ]
    held_up = [Settled(FORWARD, 1200, 0.5, 1200)]

    points, counts = instruction_times(durations + held_up)

    at_1200 = next(point for point in points[FORWARD] if point.frequency_mhz == 1200)
    assert at_1200.time_s == pytest.approx(true_time_s(FORWARD, 1200), rel=0.01)
    assert counts[FORWARD, 1200] == 3


def test_a_host_that_is_late_for_most_instances_of_a_clock_delays_no_point() -> None:
    durations = [Settled(FORWARD, mhz, true_time_s(FORWARD, mhz), mhz) for mhz in CLOCKS for _ in range(3)]
    late = [Settled(FORWARD, 1200, seconds, 1200) for seconds in (0.2, 0.09, 0.31, 0.12)]

    points, counts = instruction_times(durations + late)

    at_1200 = next(point for point in points[FORWARD] if point.frequency_mhz == 1200)
    assert at_1200.time_s == pytest.approx(true_time_s(FORWARD, 1200), rel=0.001)
    assert counts[FORWARD, 1200] == 3


def test_two_instances_that_differ_by_the_usual_noise_both_count() -> None:
    rng = np.random.default_rng(2)
    durations = [
        Settled(FORWARD, mhz, true_time_s(FORWARD, mhz) * rng.normal(1.0, 0.02), mhz)
        for mhz in CLOCKS
        for _ in range(2)
    ]

    _, counts = instruction_times(durations)

    assert set(counts.values()) == {2}


def test_a_step_in_the_curve_is_kept() -> None:
    def stepped_s(mhz: int) -> float:
        return true_time_s(FORWARD, mhz) * (0.94 if mhz <= 960 else 1.0)

    rng = np.random.default_rng(1)
    durations = [
        Settled(FORWARD, mhz, stepped_s(mhz) * rng.normal(1, 0.003), mhz + visit // 2)
        for mhz in CLOCKS
        for visit in range(4)
    ]

    points, _ = instruction_times(durations)

    for point in points[FORWARD]:
        assert point.time_s == pytest.approx(stepped_s(point.frequency_mhz), rel=0.015)


def test_one_instance_at_one_clock_is_enough_for_a_point() -> None:
    points, counts = instruction_times([Settled(FORWARD, 1410, 0.05, 1)])

    assert points[FORWARD][0].time_s == pytest.approx(0.05)
    assert counts == {(FORWARD, 1410): 1}
    assert instruction_times([]) == ({}, {})


def test_a_clock_that_came_too_late_makes_no_point() -> None:
    durations = [
        Settled(FORWARD, mhz, true_time_s(FORWARD, mhz), mhz) for mhz in CLOCKS if mhz != 870 for _ in range(3)
    ]
    at_the_clock_before = [Settled(FORWARD, 870, true_time_s(FORWARD, 1350), 0)] * 2

    points, counts = instruction_times(durations + at_the_clock_before)

    assert (FORWARD, 870) not in counts
    for point in points[FORWARD]:
        assert point.time_s == pytest.approx(true_time_s(FORWARD, point.frequency_mhz), rel=0.002)
