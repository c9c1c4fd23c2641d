"""Which requests may have been in force as instructions began and ended."""

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.in_force import Takes, borders
from perseus_ds.profiling.spans import Change, Span
from perseus_ds.profiling.table import CurveKey

FORWARD = CurveKey(0, Kind.FORWARD)


def possible(
    asked: list[tuple[float, int]], *ran: tuple[float, float], off: float = 0.01, usual_s: float = 1.0
) -> list[tuple[int, int]]:
    """What may be in force at each border, by begin and duration of each instruction, and how long at 1,400 MHz."""
    work = [Span(begin_s, begin_s + seconds, FORWARD, asked[0][1]) for begin_s, seconds in ran]
    found = borders(
        work,
        [seconds for _, seconds in ran],
        [Change(asked_s, asked_s, mhz) for asked_s, mhz in asked],
        lambda span, request: Takes(usual_s * 1400.0 / asked[max(request, 0)][1], off),
    )
    assert [one.at_s for one in found] == [at for begin_s, seconds in ran for at in (begin_s, begin_s + seconds)]
    return [(one.least, one.most) for one in found]


def test_times_tell_which_request_is_in_force():
    found = possible([(0.0, 1400), (1.0, 700)], (0.0, 1.0), (1.0, 1.5), (2.5, 2.0))

    assert found == [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1)]


def test_a_clock_comes_late_and_the_next_one_was_asked_for_before():
    asked = [(0.0, 700), (2.0, 1400), (4.0, 1050)]
    found = possible(asked, (0.0, 2.0), (2.0, 2.0), (4.0, 1.5), (5.5, 1.0), (6.5, 1.2), (7.7, 4 / 3))

    assert found[4:] == [(0, 0), (1, 1), (1, 1), (1, 1), (1, 1), (2, 2), (2, 2), (2, 2)]


def test_a_clock_that_comes_as_instructions_change_may_come_at_the_end_of_one_or_at_the_begin_of_the_other():
    found = possible([(0.0, 1400), (0.5, 700)], (0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (4.0, 2.0))

    assert found[2:6] == [(0, 0), (0, 1), (0, 1), (1, 1)]


@pytest.mark.parametrize(("wait_s", "in_it"), [(3.0, True), (0.0, False)])
def test_in_a_long_wait_a_clock_comes_rather_than_just_as_an_instruction_begins(wait_s: float, in_it: bool):
    found = possible([(0.0, 1400), (0.5, 700)], (0.0, 1.0), (1.0 + wait_s, 2.0))

    assert (found[1:3] == [(0, 0), (1, 1)]) == in_it


def test_clocks_of_equal_time_and_disturbed_instructions_tell_nothing():
    alike = possible([(0.0, 1400), (0.5, 1399), (2.5, 700)], (0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 2.0))
    disturbed = possible([(0.0, 1400), (0.5, 700)], (0.0, 1.0), (1.0, 9.0))

    assert alike[3] == (0, 1)
    assert disturbed[3] == (0, 1)


def test_where_the_power_limit_decides_times_only_much_longer_ones_tell():
    """Seen on a simulated H200: times at the limit differ by 6 %, and clocks seemed to come 0.3 s late."""
    asked, ran = [(0.0, 1400), (0.5, 1330)], [(0.0, 1.0), (1.0, 1.0), (2.0, 1.05), (3.05, 1.05)]

    assert possible(asked, *ran)[-1] == (1, 1)
    assert possible(asked, *ran, off=0.05)[-1] == (0, 1)
    assert possible([(0.0, 1400), (0.5, 700)], (0.0, 1.0), (3.0, 2.0), off=0.05)[-1] == (1, 1)


def test_where_times_tell_nothing_the_latest_requests_are_possible():
    asked = [(float(number), (1400, 700, 1050)[number % 3]) for number in range(100)]

    found = possible(asked, *((float(number), 0.1) for number in range(100)))

    assert found[-1] == (99 - 16, 99)


def test_a_clock_is_not_an_iteration_late_because_all_iterations_are_alike():
    """Seen on a simulated A100: once a clock came late, after its instruction, and all others an iteration late."""
    asked, ran = [(0.0, 1400)], []
    for begin_s in range(20):
        asked += [(begin_s + 0.4, 700), (begin_s + 0.65, 1400)]
        slow_s = 0.1 if begin_s == 3 else 0.2
        ran += [(begin_s, 0.1), (begin_s + 0.2, 0.1), (begin_s + 0.45, slow_s), (begin_s + 0.8, 0.1)]

    found = possible(asked, *ran, usual_s=0.1)

    assert found[4::8] == [(2 * iteration + (iteration != 3),) * 2 for iteration in range(20)]


def test_nothing_ran_and_nothing_was_asked_for():
    assert borders([], [], [], lambda span, request: None) == []
    span = Span(0.0, 1.0, FORWARD, 1400)
    assert [one[1:] for one in borders([span], [1.0], [], lambda span, request: None)] == [(-1, -1)] * 2
