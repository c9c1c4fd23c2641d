"""Instructions that stood still for a while, and those that something slows down at their position."""

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.stalls import slowed, time_of, without_stalls
from perseus_ds.profiling.table import CurveKey, ProfilePoint

FORWARD = CurveKey(0, Kind.FORWARD)
POINTS = {FORWARD: (ProfilePoint(1400, 1.0, 0.0), ProfilePoint(700, 2.0, 0.0))}


def work(*rows: tuple[float, int], iteration: int = 0) -> list[Span]:
    """Instructions of an iteration, one after the other: seconds and MHz of each."""
    spans: list[Span] = []
    begin_s = 20.0 * iteration
    for microbatch, (seconds, mhz) in enumerate(rows):
        spans.append(Span(begin_s, begin_s + seconds, FORWARD, mhz, batch=(iteration, microbatch)))
        begin_s += seconds
    return spans


def lasted(spans: list[Span]) -> list[float]:
    return [round(one.end_s - one.begin_s, 6) for one in spans]


def test_a_clock_of_which_no_time_is_known_has_that_between_its_neighbours() -> None:
    time_s = time_of(POINTS)

    assert [time_s(FORWARD, mhz) for mhz in (700, 1050, 1400, 1410)] == [2.0, 1.5, 1.0, None]
    assert time_s(CurveKey(1, Kind.FORWARD), 700) is None


def test_an_instruction_that_took_far_too_long_waited_for_its_host_first() -> None:
    spans = work((1.0, 1400), (1.7, 1400), (2.0, 700), (1.9, 700), (3.0, 700))

    ran = without_stalls([*spans, Span(20.0, 29.0, None)], POINTS, {})

    assert lasted(ran) == [1.0, 1.0, 2.0, 1.9, 2.0, 9.0]
    assert [one.end_s for one in ran[:-1]] == [one.end_s for one in spans]


def test_a_clock_may_stay_for_several_instructions_after_the_next_was_asked_for() -> None:
    spans = work((2.0, 700), (2.0, 1400), (2.0, 1400), (1.0, 1400), (1.9, 1400))

    ran = without_stalls(spans, POINTS, {})

    assert lasted(ran) == [2.0, 2.0, 2.0, 1.0, 1.0]


def test_at_the_power_limit_only_an_instruction_that_took_very_long_waited_for_its_host() -> None:
    spans = work((1.0, 1400), (1.3, 1500), (1.3, 1500), (1.8, 1500), (2.3, 700))

    ran = without_stalls(spans, POINTS, {FORWARD: 1.5})

    assert lasted(ran) == [1.0, 1.3, 1.3, 1.5, 2.0]


def test_what_takes_longer_in_every_iteration_is_no_late_host_but_slowed_down_by_something_beside_it() -> None:
    """Seen on a simulated A100: beside the reduction last backwards took 8 % longer, and seemed to wait for that."""
    usual = [work((1.0, 1400), (1.0, 1400), (1.2, 1400), iteration=number) for number in range(3)]
    late = work((1.0, 1400), (1.4, 1400), (1.7, 1400), iteration=3)
    spans = slowed([span for iteration in (*usual, late) for span in iteration], POINTS)

    assert [span.slowed for span in spans] == [1.0, 1.0, pytest.approx(1.2)] * 4
    assert lasted(without_stalls(spans, POINTS, {})) == [1.0, 1.0, 1.2] * 4


def test_a_clock_that_may_not_have_come_slows_nothing_down() -> None:
    spans = [span for number in range(3) for span in work((2.0, 700), (1.4, 1400), (1.0, 1400), iteration=number)]

    assert {span.slowed for span in slowed(spans, POINTS)} == {1.0}


def test_a_clock_has_gone_that_was_asked_for_long_ago_even_if_times_do_not_say_so() -> None:
    """Seen on a simulated A100: instructions that took 8 % longer never told that a clock was gone that takes 3 %."""
    points = {FORWARD: (ProfilePoint(1400, 1.0, 0.0), ProfilePoint(1350, 1.03, 0.0))}
    before = [Span(-2.0, -1.0, FORWARD, 1350)]
    spans = [span for number in range(7) for span in work(*[(1.08, 1400)] * 7, iteration=number)]

    assert slowed([*before, *spans], points)[-1].slowed == pytest.approx(1.08)


def test_a_gpu_that_was_slow_for_a_while_is_not_slowed_down_by_something_beside_it() -> None:
    """Seen on a simulated A100: a straggler of ten iterations among seventeen."""
    rows = [work((seconds, 1400), (seconds, 1400), iteration=number) for number, seconds in enumerate((1.3, 1.3, 1.0))]

    assert {span.slowed for span in slowed([span for row in rows for span in row], POINTS)} == {1.0}


def test_few_iterations_do_not_tell_what_slows_instructions_down() -> None:
    spans = [span for number in range(2) for span in work((1.0, 1400), (1.2, 1400), iteration=number)]

    assert {span.slowed for span in slowed(spans, POINTS)} == {1.0}
