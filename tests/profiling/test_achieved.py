"""Clocks that a GPU could not hold."""

from dataclasses import replace
from math import nan

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.achieved import (
    Reading,
    at_achieved_clocks,
    at_read_clocks,
    at_the_limit,
    held_alone,
    is_limited,
    limited,
    sustained_clocks,
)
from perseus_ds.profiling.spans import Between, Change, Segment, Span, segments
from perseus_ds.profiling.stalls import without_stalls
from perseus_ds.profiling.table import CurveKey, ProfilePoint

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)


def iteration(begin_s: float, clock_mhz: int, count: int = 8) -> list[Segment]:
    """Forwards and backwards in turn, 0.1 s each, a wait after each pair."""
    did = []
    for pair in range(count):
        at_s = begin_s + 0.3 * pair
        did += [
            Segment(at_s, at_s + 0.1, FORWARD, clock_mhz, True),
            Segment(at_s + 0.1, at_s + 0.2, BACKWARD, clock_mhz, True),
        ]
        did.append(Segment(at_s + 0.2, at_s + 0.3, Between.WAITING, clock_mhz, True))
    return did


def read(did: list[Segment], **held_mhz: int) -> list[Reading]:
    """Readings in the middle of everything, lower where the kind holds only ``held_mhz``."""
    readings = []
    for one in did:
        limit = held_mhz.get(one.what.kind.value, 9999) if isinstance(one.what, CurveKey) else 9999
        readings.append(Reading((one.begin_s + one.end_s) / 2, min(one.clock_mhz, limit), limit < one.clock_mhz))
    return readings


def test_what_ran_lower_than_asked_counts_for_the_clock_it_ran_at() -> None:
    did = iteration(0.0, 1980) + iteration(10.0, 1755) + iteration(20.0, 1500)

    achieved = at_achieved_clocks(did, read(did, backward=1760))

    clocks = {(asked.clock_mhz, one.what): one.clock_mhz for asked, one in zip(did, achieved, strict=True)}
    assert clocks[1980, BACKWARD] == 1755, "the nearest clock that was tried"
    assert clocks[1980, FORWARD] == 1980
    assert clocks[1980, Between.WAITING] == 1980
    assert clocks[1500, BACKWARD] == 1500
    assert sustained_clocks(did, achieved) == {BACKWARD: 1755}


def test_a_switch_that_comes_late_is_no_limit() -> None:
    did = iteration(0.0, 1980, count=20) + iteration(10.0, 1500)
    readings = [one._replace(mhz=1500) if number == 7 else one for number, one in enumerate(read(did))]

    achieved = at_achieved_clocks(did, readings)

    assert achieved == did
    assert sustained_clocks(did, achieved) == {}


def test_a_lower_clock_that_nothing_limits_is_the_next_one_on_its_way() -> None:
    did = [one for number in range(12) for one in iteration(10.0 * number, 1980 - 15 * number, count=1)] * 3
    readings = [one._replace(mhz=one.mhz - 15 * (number % 2)) for number, one in enumerate(read(did))]

    assert at_achieved_clocks(did, readings) == did


def test_an_instruction_that_no_reading_fell_into_ran_as_most_of_its_kind() -> None:
    did = iteration(0.0, 1980) + iteration(10.0, 1755)
    readings = read(did, forward=1750)[:12] + read(did)[24:]

    achieved = at_achieved_clocks(did, readings)

    assert {one.clock_mhz for one in achieved[:24] if one.what == FORWARD} == {1755}


def test_a_short_block_may_hold_a_clock_that_whole_iterations_cannot() -> None:
    did = iteration(0.0, 1980) + iteration(10.0, 1500) + iteration(20.0, 1980, count=3) + iteration(30.0, 1755)
    cool = [one for one in read(did) if one.time_s > 5.0]

    achieved = at_achieved_clocks(did, read(did[:24], forward=1755, backward=1755) + cool)

    assert sustained_clocks(did, achieved) == {FORWARD: 1755, BACKWARD: 1755}


def test_times_count_only_where_the_clock_was_held() -> None:
    did = iteration(0.0, 1980) + iteration(10.0, 1755) + iteration(20.0, 1500)

    held = held_alone(did, at_achieved_clocks(did, read(did, backward=1760)))

    assert {(one.what, one.clock_mhz) for one in did} - {(one.what, one.clock_mhz) for one in held if one.whole} == {
        (BACKWARD, 1980)
    }
    assert [replace(one, whole=True) for one in held] == did


def test_what_the_limit_makes_of_the_highest_clock_is_told_by_whole_iterations_at_it_when_warm() -> None:
    cold, block, warm = iteration(0.0, 1980), iteration(20.0, 1980, count=3), iteration(40.0, 1980)
    did = [*cold, *iteration(10.0, 1500), *block, *iteration(30.0, 1755)]

    assert at_the_limit(did, {BACKWARD}) == [one for one in cold if one.what is BACKWARD]
    assert at_the_limit([*did, *warm], {BACKWARD}) == [one for one in reversed(warm) if one.what is BACKWARD]
    held = [replace(one, clock_mhz=1755 if one in cold else 1500) for one in (*did, *warm)]
    assert sustained_clocks(did, held[: len(did)]) == dict.fromkeys((FORWARD, BACKWARD), 1755)
    assert sustained_clocks([*did, *warm], held) == dict.fromkeys((FORWARD, BACKWARD), 1500)
    assert at_the_limit(did, set()) == []


def test_at_the_limit_an_instruction_s_time_tells_how_high_its_clock_was() -> None:
    begins_s, lasted_s = (0.0, 0.1, 0.2, 1.0, 1.1, 1.3), (0.1, 0.08, 0.4, 0.1, 0.125, 0.08)
    keys, sizes = (FORWARD, *[BACKWARD] * 5), (1.0, 1.0, 1.0, 1.0, 1.25, nan)
    spans = [
        Span(begin_s, begin_s + seconds, key, 1980, size=size)
        for begin_s, seconds, key, size in zip(begins_s, lasted_s, keys, sizes, strict=True)
    ]
    to_another, lower = Change(0.14, 0.14, 1900), Change(1.05, 1.05, 1500)
    did = segments(spans, [to_another, lower, Change(1.1, 1.1, 1980)])

    faster = limited(did, [], {BACKWARD: 1755}, {BACKWARD: 0.1}, spans).faster

    told = {(one.begin_s, one.what): share for one, share in zip(did, faster, strict=True) if share}
    assert told == {(0.1, BACKWARD): pytest.approx(0.25), (0.14, BACKWARD): pytest.approx(0.25)}, (
        "not what is not held, what a late host delayed, what ran at a lower clock, too, and what is of unknown size"
    )


def test_at_the_limit_what_a_late_host_delayed_tells_no_clock() -> None:
    spans = [Span(0.0, 0.1, BACKWARD, 1980), Span(0.1, 0.5, BACKWARD, 1980)]
    did = segments(without_stalls(spans, {}, {BACKWARD: 0.15}), [])
    assert did[-1].end_s - did[-1].begin_s == pytest.approx(0.15), "of the rest it waited"

    assert limited(did, [], {BACKWARD: 1755}, {BACKWARD: 0.1}, spans).faster == [0.0, 0.0, 0.0]


def test_how_fast_the_limit_lets_instructions_be_is_told_of_the_iterations_that_end_the_sweep() -> None:
    did = iteration(0.0, 1980) + iteration(10.0, 1755) + iteration(20.0, 1980)
    work = [one for one in did if isinstance(one.what, CurveKey)]
    spans = [Span(one.begin_s, one.end_s, one.what, one.clock_mhz) for one in work]
    points = {BACKWARD: [ProfilePoint(mhz, 0.1 * 1755 / mhz, 0.0) for mhz in range(1755, 1500, -15)]}

    found = limited(did, [], {BACKWARD: 1755}, {BACKWARD: 0.098}, spans, points)

    assert found.squares == {BACKWARD: pytest.approx(0.02**2)}
    shares = found.held[BACKWARD]
    assert list(shares) == [1755, 1740, 1725, 1710]
    assert shares[1755] == pytest.approx(-0.02)
    assert shares[1740] == pytest.approx(0.98 * 1740 / 1755 - 1.0)


def test_without_readings_all_is_as_asked() -> None:
    did = iteration(0.0, 1980)

    assert at_achieved_clocks(did, []) == did


def test_few_readings_tell_the_clocks_of_iterations_that_a_limit_holds_and_of_those_that_it_does_not() -> None:
    held, planned = iteration(0.0, 1980), iteration(10.0, 1980)
    readings = read(held, forward=1700, backward=1600)[::5] + read(planned)[::5]

    clocks_mhz = [one.clock_mhz for one in at_read_clocks([*held, *planned], readings)]

    assert clocks_mhz[: len(held)] == [1700, 1600, 1980] * 8, "a wait is at the clock asked for"
    assert clocks_mhz[len(held) :] == [1980] * len(planned)
    assert at_read_clocks(held, []) == held


def test_the_nearest_reading_tells_whether_something_holds_the_clock_down() -> None:
    readings = [Reading(1.0, 1400, False), Reading(2.0, 1200, True)]

    assert [is_limited(readings, at_s) for at_s in (0.0, 1.4, 1.6, 9.0)] == [False, False, True, True]
    assert not is_limited([], 1.0)
