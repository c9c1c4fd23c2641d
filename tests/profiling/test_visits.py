"""Which visits of a clock are believed: late clocks, steps of the curve, long visits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.visits import Settled, at_their_clocks, undisturbed_s

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
CLOCKS_MHZ = range(1410, 854, -15)


def true_s(mhz: int, key: CurveKey = FORWARD) -> float:
    return (0.015 + 50.0 / mhz) * (1.0 if key == FORWARD else 1.9)


def visits(*clocks_mhz: int, key: CurveKey = FORWARD, noise: float = 0.0, first: int = 0) -> list[Settled]:
    """Two instances of each visit."""
    rng = np.random.default_rng(first)
    return [
        Settled(key, mhz, true_s(mhz, key) * rng.normal(1.0, noise), first + number)
        for number, mhz in enumerate(clocks_mhz)
        for _ in range(2)
    ]


def late(mhz: int, before_mhz: int, visit: int, count: int = 2) -> list[Settled]:
    """A visit of which the GPU ran at the clock before."""
    return [Settled(FORWARD, mhz, true_s(before_mhz), visit)] * count


def left_out(instances: Iterable[Settled]) -> set[int]:
    """The clocks of which an instance was not believed."""
    instances = list(instances)
    believed = at_their_clocks(instances)
    assert set(believed) <= set(instances)
    return {one.mhz for one in instances if one not in believed}


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_every_visit_at_its_clock_is_believed(noise) -> None:
    both = visits(*CLOCKS_MHZ, noise=noise) + visits(*CLOCKS_MHZ, key=BACKWARD, noise=noise, first=100)

    assert sorted(at_their_clocks(both)) == sorted(both)


@pytest.mark.parametrize("mhz", [1395, 1200, 1005, 870, 855])
@pytest.mark.parametrize("before_mhz", [1300, 1080, 930])
def test_a_visit_that_ran_at_the_clock_before_is_left_out(mhz, before_mhz) -> None:
    others = visits(*(one for one in CLOCKS_MHZ if one != mhz), noise=0.002)

    assert left_out(others + late(mhz, before_mhz, visit=-1)) == {mhz}


def test_the_same_clock_s_other_visit_stays() -> None:
    others = visits(*CLOCKS_MHZ)

    assert sorted(at_their_clocks(others + late(1005, 1350, visit=-1))) == sorted(others)


def test_one_visit_in_ten_may_be_late() -> None:
    lates = {1365: 900, 1155: 1410, 1005: 1350, 870: 1300}
    others = visits(*(mhz for mhz in CLOCKS_MHZ if mhz not in lates), noise=0.002)
    instances = others + [one for n, (mhz, before) in enumerate(lates.items()) for one in late(mhz, before, -1 - n)]

    assert left_out(instances) == set(lates)


def test_what_two_visits_say_is_a_step_of_the_curve() -> None:
    slower = [one._replace(seconds=1.08 * one.seconds) if one.mhz <= 900 else one for one in visits(*CLOCKS_MHZ)]

    assert left_out(slower + [one._replace(visit=one.visit + 100) for one in slower]) == set()


def test_two_late_visits_of_one_clock_that_differ_are_both_left_out() -> None:
    others = visits(*(mhz for mhz in CLOCKS_MHZ if mhz != 1005))

    assert left_out(others + late(1005, 1350, -1) + late(1005, 1200, -2)) == {1005}


def test_a_clock_comes_within_a_long_visit() -> None:
    others = visits(*(mhz for mhz in CLOCKS_MHZ if mhz != 1410))

    assert left_out(others + late(1410, 1300, visit=-1, count=8)) == set()
    assert left_out(others + late(1410, 1300, visit=-1, count=7)) == {1410}


def test_no_clock_is_late_for_an_iteration() -> None:
    lower = visits(*(mhz for mhz in CLOCKS_MHZ if mhz != 1410))
    slow_host = [Settled(FORWARD, 1410, 1.7 * true_s(1410), -1)] * 2
    iteration = [Settled(BACKWARD, 1410, true_s(1410, BACKWARD), -1)] * 22

    assert left_out([*lower, *slow_host, *iteration]) == set()
    assert left_out([*lower, *slow_host, *iteration[1:]]) == {1410}


def test_a_few_clocks_make_no_curve() -> None:
    assert left_out(visits(1410, 1200, 1000, 900) + late(855, 1410, visit=-1)) == set()
    assert at_their_clocks([]) == []


def test_an_undisturbed_duration_is_the_median_or_where_many_are_delayed_the_lower_quartile() -> None:
    assert undisturbed_s([1.0, 1.01, 1.02, 1.9]) == 1.01
    assert undisturbed_s([1.0, 1.0, 1.3, 1.4, 1.5]) == 1.0
    assert undisturbed_s([0.7]) == 0.7
