"""Which visits of a clock are believed: late clocks, steps of the curve, long visits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.visits import Settled, at_their_clocks, far_apart, undisturbed_s

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


def wrong_s(instances: Iterable[Settled], mhz: int) -> list[float]:
    """How far the believed instances of a clock are off, as shares."""
    return [abs(one.seconds / true_s(mhz) - 1.0) for one in at_their_clocks(instances) if one.mhz == mhz]


@pytest.mark.parametrize("mhz", [1395, 1200, 870, 855])
def test_of_a_visit_in_which_its_clock_came_only_the_last_instances_count(mhz) -> None:
    others = visits(*(one for one in CLOCKS_MHZ if one != mhz))
    came = [*late(mhz, mhz + 45, visit=-1), *late(mhz, mhz + 30, visit=-1, count=1), *late(mhz, mhz, -1, count=1)]

    assert wrong_s(others + came, mhz) == pytest.approx([0.0])


@pytest.mark.parametrize("mhz", [1395, 1200, 855])
def test_two_visits_that_a_clock_was_late_for_do_not_outvote_an_instance_that_had_it(mhz) -> None:
    """Both followed visits of the same higher clock, so they agree: by 2 to 3 % too fast."""
    others = visits(*(one for one in CLOCKS_MHZ if one != mhz))
    lates = [one for visit in (-1, -2) for one in late(mhz, mhz + 45, visit, count=3)]

    assert wrong_s([*others, *lates, *late(mhz, mhz, -1, count=1)], mhz) == pytest.approx([0.0])


def test_beside_a_step_of_the_curve_most_instances_are_right() -> None:
    def stepped_s(mhz: int) -> float:
        return true_s(mhz) * (1.025 if mhz <= 900 else 1.0)

    stepped = [one._replace(seconds=stepped_s(one.mhz)) for one in visits(*CLOCKS_MHZ) + visits(*CLOCKS_MHZ, first=50)]
    early = Settled(FORWARD, 855, stepped_s(900), 99)

    assert set(stepped) <= set(at_their_clocks([*stepped, early]))


def test_an_undisturbed_duration_is_the_median_or_where_many_are_delayed_the_lower_quartile() -> None:
    assert undisturbed_s([1.0, 1.01, 1.02, 1.9]) == 1.01
    assert undisturbed_s([1.0, 1.0, 1.3, 1.4, 1.5]) == 1.0
    assert undisturbed_s([0.7]) == 0.7


def test_how_far_apart_instances_may_be_follows_from_their_spread() -> None:
    rng = np.random.default_rng(3)
    spread = [list(rng.normal(mhz, 0.01 * mhz, size=6)) for mhz in range(100, 140)]
    assert far_apart(spread) == pytest.approx(0.04, rel=0.2)
    assert far_apart([[1.0, 1.0, 1.0], [2.0]]) == far_apart([[1.0]]) == 0.01
