"""When clocks came, told by the instructions under which they did; and instructions that stood still for a while."""

from math import inf

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.arrivals import arrivals
from perseus_ds.profiling.spans import Change, Span, changes
from perseus_ds.profiling.table import CurveKey, ProfilePoint

FORWARD = CurveKey(0, Kind.FORWARD)
POINTS = {FORWARD: (ProfilePoint(1400, 1.0, 0.0), ProfilePoint(1390, 1.005, 0.0), ProfilePoint(700, 2.0, 0.0))}


def work(*rows: tuple[float, int], begin_s: float = 0.0) -> list[Span]:
    """Instructions one after the other: seconds and MHz of each."""
    spans: list[Span] = []
    for seconds, mhz in rows:
        spans.append(Span(begin_s, begin_s + seconds, FORWARD, mhz))
        begin_s += seconds
    return spans


def arrived(spans: list[Span], latency_s: float = 0.9) -> list[float]:
    asked = changes(spans, latency_s)
    return [one.arrives_s for one in arrivals(spans, asked, POINTS).changes[1:]]


@pytest.mark.parametrize(("second_s", "arrives_s"), [(1.5, 1.5), (1.8, 1.2), (1.25, 1.75)])
def test_an_instruction_under_which_the_clock_changed_tells_when(second_s: float, arrives_s: float) -> None:
    spans = work((1.0, 1400), (second_s, 700), (2.0, 700))

    assert arrived(spans) == [pytest.approx(arrives_s)]


def test_an_instruction_at_the_old_clock_from_begin_to_end_says_that_the_new_one_came_later() -> None:
    spans = work((1.0, 1400), (1.0, 700), (1.5, 700), (2.0, 700))

    assert arrived(spans) == [pytest.approx(2.5)]


def test_a_clock_that_came_in_a_wait_came_as_it_mostly_does_and_not_after_the_wait() -> None:
    told = work((1.0, 1400), (1.8, 700), (2.0, 700), (1.0, 1400), (1.0, 1400))
    waits = [*work((1.0, 1400), begin_s=9.0), *work((2.0, 700), begin_s=10.1)]

    found = arrived([*told, *waits])

    assert found[0] == pytest.approx(1.2)
    assert found[-1] == pytest.approx(10.1, abs=0.02), "0.2 s were usual, but all the instruction ran at the new clock"


def test_instructions_tell_latencies_as_well_as_clocks_change_their_time_and_waits_bound_them() -> None:
    told = work((1.0, 1400), (1.8, 700), (2.0, 700), (1.3, 1400), (1.0, 1400))
    waits = [*work((1.0, 1400), begin_s=9.0), *work((2.0, 700), begin_s=10.1)]
    spans = [*told, *waits]

    found = arrivals(spans, changes(spans, 0.0), POINTS).latencies_s

    off_s = 0.01 * 1.0 * 2.0 / (2.0 - 1.0)  # one percent of the time
    assert found == {
        700: [pytest.approx((0.2 - off_s, 0.2 + off_s)), pytest.approx((0.0, 0.1 + off_s))],
        1400: [pytest.approx((0.6 - off_s, 0.6 + off_s))],
    }


def test_a_clock_that_never_came_takes_longer_than_instructions_waited_for_it() -> None:
    spans = [*work((2.0, 700), (2.0, 1400), (2.0, 1050)), *work((1.5, 1050), (1.5, 1050), begin_s=7.0)]

    found = arrivals(spans, changes(spans, 0.0), POINTS).latencies_s

    assert found[1400] == [(2.0, inf)]


def test_the_time_that_a_request_costs_is_no_part_of_the_way_to_a_clock() -> None:
    spans = work((1.0, 1400), (1.81, 700), (2.0, 700))

    (told,) = arrivals(spans, changes(spans, 0.0)[1:], POINTS, stall_s=0.01).latencies_s.values()
    found = arrivals(spans, changes(spans, 0.0), POINTS, stall_s=0.01).changes

    assert sum(told[0]) / 2 == pytest.approx(0.2)
    assert found[-1].arrives_s == pytest.approx(1.2)


def test_an_instruction_that_seems_to_have_had_its_clock_before_the_request_tells_no_latency() -> None:
    began_before = [Span(0.0, 1.0, FORWARD, 1400), Span(0.9, 2.4, FORWARD, 700)]

    found = arrivals(began_before, [Change(-1.0, -1.0, 1400), Change(1.6, 1.6, 700)], POINTS)

    assert found.latencies_s == {}


def test_a_clock_that_had_not_come_when_the_next_was_asked_for_never_came() -> None:
    """Seen on a simulated GH200: a GPU ran at 1306 MHz for 0.7 s, and 1917 and 1664 MHz were asked for meanwhile."""
    spans = work((2.0, 700), (2.0, 1400), (2.0, 1400), (2.0, 1050), (1.75, 1050), (1.5, 1050))

    found = arrivals(spans, changes(spans, 0.3), POINTS).changes

    assert [one.mhz for one in found[1:]] == [1050]
    assert found[-1].arrives_s == pytest.approx(9.0, abs=0.02)


def test_a_clock_has_not_come_in_the_midst_of_an_instruction_if_the_next_one_does_not_run_at_it() -> None:
    """Seen on a simulated GH200: a clock asked for in between was thought to be there, and had not come either."""
    spans = work((0.2, 700), (0.2, 1400), (0.2, 1400), (0.1, 1400))
    asked = [Change(0.0, 0.0, 700), Change(0.195, 0.25, 660), Change(0.2, 0.29, 1400)]
    points = {FORWARD: (ProfilePoint(1400, 0.1, 0.0), ProfilePoint(700, 0.2, 0.0), ProfilePoint(660, 0.21, 0.0))}

    found, told = arrivals(spans, asked, points)

    assert found[-1].arrives_s == pytest.approx(0.6, abs=0.002), "as the third instruction ended"
    assert told[1400] == [pytest.approx((0.0, 0.4), abs=0.003)], "it may have waited for the one in between"


def test_a_clock_may_come_long_after_the_next_one_was_asked_for() -> None:
    """Seen on a simulated GH200: 0.34 s after its request, and 0.07 s after the next one."""
    spans = work((2.0, 700), (2.0, 1400), (2.0, 1400), (1.5, 1050), (1.0, 1050), (1.25, 1050), (1.5, 1050))

    found = arrivals(spans, [Change(0.0, 0.0, 700), Change(2.0, 2.0, 1400), Change(6.0, 6.0, 1050)], POINTS).changes

    assert [one.mhz for one in found] == [700, 1400, 1050]
    assert [one.arrives_s for one in found[1:]] == pytest.approx([7.0, 9.0], abs=0.05)


def test_a_clock_of_which_no_time_is_known_takes_as_long_as_its_neighbours_say() -> None:
    assert arrived(work((1.0, 1400), (1.25, 1045), (1.5, 1045))) == [pytest.approx(1.5, abs=0.05)]


def test_a_clock_that_the_next_one_overtook_never_came() -> None:
    spans = work((1.0, 1400), (1.0, 1400), (2.0, 700))
    asked = [Change(0.0, 0.0, 1400), Change(1.2, 2.2, 1050), Change(1.9, 2.8, 700)]

    assert [one.mhz for one in arrivals(spans, asked, POINTS).changes] == [1400, 700]


def test_clocks_of_nearly_equal_time_tell_nothing() -> None:
    assert arrived(work((1.0, 1400), (1.004, 1390), (1.005, 1390)), latency_s=0.3) == [pytest.approx(1.3)]


def test_clocks_come_in_the_order_asked_for() -> None:
    spans = work((1.0, 1400), (1.0, 700), (1.0, 1400), (1.0, 1400))

    found = arrivals(spans, [Change(1.0, 3.5, 700), Change(2.0, 2.5, 1400)], {}).changes

    assert [one.arrives_s for one in found] == [3.5, 3.5]
