"""Clocks that came late, and what the instructions would have taken otherwise."""

import math
from dataclasses import replace

import pytest

from perseus_ds.pipeline.clocks import IterationClocks
from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.recorder import RecordedIteration, Rest
from perseus_ds.runtime.late_clocks import late_switches, ran_at_earlier, share_at_clock, times_at_clock

FORWARD, BACKWARD = Operation(Kind.FORWARD, 0), Operation(Kind.BACKWARD, 0)
BEGIN_S, LATENCY_S = 10.0, 0.2
AT_S = {1400: 1.0, 1000: 1.5, 700: 2.0}  # any instruction's time by clock


def iteration(*rows: tuple[float, float, int], **requested_s: float) -> RecordedIteration:
    """An iteration of (begin, end, MHz), and requests by index and by seconds from its begin."""
    operations = tuple(TimedOperation(FORWARD, *row) for row in rows)
    requests = {int(index[1:]): BEGIN_S + at_s for index, at_s in requested_s.items()}
    return RecordedIteration(BEGIN_S, BEGIN_S + 9.0, operations, requested_s=requests)


def times_s(one: RecordedIteration) -> list[float]:
    return times_at_clock(one, lambda mhz: LATENCY_S, lambda operation, mhz: AT_S.get(mhz, 0.0))


@pytest.mark.parametrize(("came_s", "late"), [(0.0, 0), (0.0009, 0), (0.0011, 0), (0.0029, 0), (0.0031, 1)])
def test_a_clock_is_late_that_comes_after_three_hundredths_of_its_instruction(came_s, late):
    timed = TimedOperation(FORWARD, 2.0, 2.1, 900)
    one = RecordedIteration(10.0, 13.0, (timed,), requested_s={0: 12.0 + came_s - 0.02})
    assert late_switches(one, {900: 0.02}.__getitem__) == late


def test_a_clock_that_is_to_come_within_its_instruction_is_late_after_that():
    timed, asked = TimedOperation(FORWARD, 2.0, 2.1, 900), {0: 12.0 + 0.006 - 0.02}
    one = RecordedIteration(10.0, 13.0, (timed,), requested_s=asked, clocks=IterationClocks(1400, (900,)))
    assert late_switches(one, {900: 0.02}.__getitem__) == 1
    aimed = replace(one, clocks=IterationClocks(1400, (900,), aims_s=(0.005,)))
    assert late_switches(aimed, {900: 0.02}.__getitem__) == 0


def test_clocks_in_time_change_no_duration():
    assert times_s(iteration((0.0, 1.0, 1400), (1.0, 3.0, 700), r1=0.8)) == pytest.approx([1.0, 2.0])


def test_a_clock_that_is_late_makes_the_next_instruction_shorter_or_longer():
    # The lower clock is there 0.2 s after its instruction's begin: by then a fifth is done, the rest takes 1.6 s.
    down = iteration((0.0, 1.0, 1400), (1.0, 2.8, 700), r1=1.0)
    assert times_s(down) == pytest.approx([1.0, 2.0])
    # The higher one: a tenth is done, the rest takes 0.9 s.
    up = iteration((0.0, 2.0, 700), (2.0, 3.1, 1400), r1=2.0)
    assert times_s(up) == pytest.approx([2.0, 1.0])


def test_a_slow_gpu_is_slow_with_late_clocks_too():
    one = iteration((0.0, 1.3, 1400), (1.3, 1.3 + 1.3 * 1.8, 700), r1=1.3)
    assert times_s(one) == pytest.approx([1.3, 2.6], rel=0.01)


def test_a_clock_that_is_early_counts_for_the_instruction_before():
    # Half of the first instruction runs at the lower clock.
    one = iteration((0.0, 1.5, 1400), (1.5, 3.5, 700), r1=0.3)
    assert times_s(one) == pytest.approx([1.0, 2.0])


def test_clocks_come_in_the_order_of_their_requests():
    latencies_s = {1400: 0.1, 700: 0.9}
    one = iteration((0.0, 1.0, 1400), (1.0, 1.5, 700), (1.5, 2.5, 1400), r1=0.8, r2=0.9)
    found = times_at_clock(one, latencies_s.__getitem__, lambda operation, mhz: AT_S[mhz])
    # The lower clock is there at 1.7 s and gone at once: nothing ran at it.
    assert found == pytest.approx([1.0, 1.0, 1.0])


def at_earlier(*iterations: RecordedIteration) -> list[list[int]]:
    found = ran_at_earlier(iterations, lambda operation, mhz: AT_S.get(mhz, 0.0))
    return [sorted(one) for one in found]


def test_instructions_that_take_as_long_as_at_the_clock_before_ran_at_it():
    one = iteration((0.0, 2.0, 700), (2.0, 4.0, 1400), (4.0, 5.4, 1400), (5.4, 6.4, 1400), (6.4, 8.4, 1400))
    # The clock came in the midst of the third one; what is slow after that is slow.
    assert at_earlier(one) == [[1, 2]]


def test_a_clock_stays_until_an_instruction_tells_of_another_into_the_next_iteration():
    before = iteration((0.0, 2.0, 700), (2.0, 4.0, 1400))
    after = iteration((0.0, 2.0, 1400), (2.0, 3.0, 1400), (3.0, 4.5, 1400))
    assert at_earlier(before, after) == [[1], [0]]
    assert at_earlier(after) == [[]], "the first clock of all is taken to be there"


def test_a_clock_after_one_that_never_came_does_not_excuse_what_is_slower():
    one = iteration((0.0, 1.0, 1400), (1.0, 2.0, 700), (2.0, 3.0, 1400), (3.0, 5.6, 700))
    assert at_earlier(one) == [[1]]


def test_what_was_held_up_does_not_tell_that_a_clock_has_come():
    one = iteration((0.0, 2.0, 700), (2.0, 4.2, 1400), (4.2, 6.2, 1400), (6.2, 7.2, 1400), (7.2, 9.4, 1400))
    assert at_earlier(one) == [[2]]


def test_of_several_clocks_on_their_way_the_next_one_comes_first():
    one = iteration((0.0, 1.0, 1400), (1.0, 2.0, 700), (2.0, 3.7, 1000), (3.7, 5.7, 1000), (5.7, 7.2, 1000))
    assert at_earlier(one) == [[1, 2, 3]]


def test_a_clock_may_not_come_back_from_a_rest():
    one = replace(iteration((0.0, 2.0, 1400), (2.0, 3.0, 1400)), rest=Rest(BEGIN_S, 700))
    assert at_earlier(iteration((0.0, 1.0, 1400)), one) == [[], [0]]


def test_a_clock_of_unknown_time_excuses_nothing():
    assert at_earlier(iteration((0.0, 1.0, 900), (1.0, 2.5, 1400))) == [[]]


def at_clock(one: RecordedIteration) -> float:
    return share_at_clock(one, lambda mhz: LATENCY_S)


def test_a_late_clock_takes_from_its_instruction_and_an_early_one_from_the_one_before():
    late = iteration((0.0, 1.0, 1400), (1.0, 3.0, 700), (3.0, 5.0, 700), r1=1.3)
    assert at_clock(late) == 1.0  # the median of 1, 0.75 and 1
    assert at_clock(iteration((0.0, 2.0, 1400), r1=9.0)) == 1.0
    assert at_clock(iteration((0.0, 2.0, 1400), (2.0, 4.0, 700), r1=2.3)) == pytest.approx((1.0 + 0.75) / 2)
    assert at_clock(iteration((0.0, 2.0, 1400), (2.0, 4.0, 700), r1=1.3)) == pytest.approx((0.75 + 1.0) / 2)


def test_instructions_as_short_as_a_switch_do_not_count():
    assert at_clock(iteration((0.0, 0.02, 1400), (0.02, 2.02, 700), r1=-0.18)) == pytest.approx(1.0)
    assert math.isnan(at_clock(iteration((0.0, 0.02, 1400))))
    assert math.isnan(at_clock(iteration()))


def test_what_is_not_known_changes_nothing():
    assert times_s(iteration((0.0, 1.0, 1400), (1.0, 4.0, 900), r1=1.0)) == [1.0, 3.0]
    assert times_s(iteration((0.0, 3.0, 900), (3.0, 4.0, 1400), r1=3.0)) == [3.0, 1.0]
    assert times_at_clock(iteration(), lambda mhz: 0.0, lambda operation, mhz: 1.0) == []


@pytest.mark.parametrize("asked_s", [1.0, 1.8])
def test_a_clock_that_comes_back_late_from_a_rest_makes_the_first_instruction_longer(asked_s):
    # At 1.8 s it comes when the first instruction has begun: 0.3 s at half the speed.
    late_s = max(0.0, asked_s + LATENCY_S - 1.7)
    one = iteration((1.7, 2.7 + late_s / 2, 1400), (2.7 + late_s / 2, 4.7, 700), r0=asked_s, r1=2.5 + late_s / 2)
    rested = replace(one, rest=Rest(BEGIN_S, 700))
    assert times_s(rested)[0] == pytest.approx(1.0)
    assert share_at_clock(rested, lambda mhz: LATENCY_S) == pytest.approx(1.0 - late_s / (1.0 + late_s / 2) / 2)
