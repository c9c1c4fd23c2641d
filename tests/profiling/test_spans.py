"""What a GPU did and at which clock, cut where the clock changed."""

from math import inf

from perseus_ds.pipeline.events import Operation
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.pipeline.trace import TimedOperation
from perseus_ds.profiling.recorder import RecordedIteration, Rest
from perseus_ds.profiling.spans import (
    Between,
    Change,
    Segment,
    Span,
    changes,
    segments,
    settled_durations,
    spans_of,
    with_requests,
)
from perseus_ds.profiling.table import CurveKey
from perseus_ds.profiling.visits import Settled

FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)


def test_a_wait_is_cut_where_the_next_instruction_s_clock_arrives() -> None:
    # Asked for at 1.0, when the forward ends; the backward waits until 1.5.
    spans = [Span(0.0, 1.0, FORWARD, 1410, 0.0), Span(1.5, 2.0, BACKWARD, 900)]

    did = segments(spans, changes(spans, latency_s=0.2))

    assert did == [
        Segment(0.0, 0.2, FORWARD, 1410),
        Segment(0.2, 1.0, FORWARD, 1410),
        Segment(1.0, 1.2, Between.WAITING, 1410),
        Segment(1.2, 1.5, Between.WAITING, 900),
        Segment(1.5, 2.0, BACKWARD, 900, whole=True),
    ]
    assert settled_durations(did) == [Settled(BACKWARD, 900, 0.5, 2)]


def test_an_instruction_under_which_the_clock_changes_is_in_two_parts_and_tells_no_time() -> None:
    spans = [Span(0.0, 1.0, FORWARD, 1410), Span(1.0, 2.0, BACKWARD, 900), Span(2.0, 3.0, FORWARD, 900)]

    did = segments(spans, changes(spans, latency_s=0.25))

    assert [(one.begin_s, one.end_s, one.what, one.clock_mhz) for one in did] == [
        (0.0, 1.0, FORWARD, 1410),
        (1.0, 1.25, BACKWARD, 1410),
        (1.25, 2.0, BACKWARD, 900),
        (2.0, 3.0, FORWARD, 900),
    ]
    assert settled_durations(did) == [Settled(FORWARD, 1410, 1.0, 1), Settled(FORWARD, 900, 1.0, 2)]


def test_other_work_runs_at_the_clock_in_force() -> None:
    spans = [Span(0.0, 1.0, FORWARD, 1410), Span(1.0, 1.5, None), Span(2.0, 3.0, FORWARD, 1410)]

    did = segments(spans, changes(spans, 0.1))

    assert [(one.what, one.clock_mhz) for one in did] == [
        (FORWARD, 1410),
        (Between.OTHER, 1410),
        (Between.WAITING, 1410),
        (FORWARD, 1410),
    ]


def test_a_clock_is_asked_for_when_the_driver_takes_the_request() -> None:
    ahead = Span(2.0, 3.0, FORWARD, 1410, 1.9)
    spans = [Span(0.0, 1.0, FORWARD, 1410), Span(1.0, 2.0, BACKWARD, 900), Span(2.0, 2.0, None), ahead]

    found = with_requests(spans, [(0.5, 900), (1.001, 900), (1.95, 1200), (1.96, 1410), (7.0, 900)])

    assert [one.asked_s for one in found] == [-inf, 1.001, -inf, 1.96]
    assert [one.asked_s for one in changes(found, 0.1)[1:]] == [1.001, 1.96]


def test_a_request_of_which_nothing_is_known_was_made_when_it_was_due() -> None:
    spans = [Span(0.0, 1.0, FORWARD, 1410, 0.0), Span(1.0, 2.0, BACKWARD, 900), Span(2.0, 3.0, FORWARD, 1410, 1.9)]

    assert with_requests(spans, [(1.2, 900), (1.95, 1200)]) == spans  # later than any request takes
    assert with_requests(spans, []) == spans


def test_nothing_ran() -> None:
    assert segments([], changes([], 0.01)) == []


def test_a_clock_is_asked_for_when_the_record_says_so() -> None:
    timed = [TimedOperation(Operation(Kind.FORWARD, at), at, at + 0.8, mhz) for at, mhz in enumerate((1410, 900, 900))]
    record = RecordedIteration(10.0, 13.0, tuple(timed), requested_s={1: 10.85})

    spans = spans_of(record, stage=0)

    assert [span.asked_s for span in spans] == [-inf, 10.85, -inf]
    assert changes(spans, 0.1)[1:] == [Change(10.85, 10.95, 900)]


def test_after_the_last_instruction_the_first_one_s_clock_is_asked_for_again() -> None:
    """A sweep's next iteration has another one: until that comes, the GPU runs at this one."""
    did = ((Kind.FORWARD, 1410), (Kind.BACKWARD, 900), (Kind.OPTIMIZER, 0))
    timed = [TimedOperation(Operation(kind, 0), at, at + 0.8, mhz) for at, (kind, mhz) in enumerate(did)]
    record = RecordedIteration(10.0, 13.0, tuple(timed), requested_s={1: 10.8, 2: 11.8})

    again = spans_of(record, stage=0)[2]

    assert again == Span(11.8, 11.8, None, 1410, 11.8)
    after = Span(13.1, 14.0, FORWARD, 1200, 13.1)
    assert changes([*spans_of(record, stage=0), after], 0.1)[1:] == [
        Change(10.8, 10.9, 900),
        Change(11.8, 11.9, 1410),
        Change(13.1, 13.2, 1200),
    ]


def test_a_gpu_waits_at_the_clock_that_it_rests_at() -> None:
    forward = Operation(Kind.FORWARD, 0)
    rested = [
        RecordedIteration(
            begin_s,
            begin_s + 3.0,
            (TimedOperation(forward, 1.0, 2.0, 1410),),
            iteration=number,
            requested_s={0: begin_s + 0.7},
            rest=Rest(begin_s + 0.1, 900),
        )
        for number, begin_s in enumerate((0.0, 3.0))
    ]
    spans = [span for one in rested for span in spans_of(one, 0)]

    did = segments(spans, changes(spans, latency_s=0.2))

    assert [(round(one.begin_s, 9), one.what, one.clock_mhz) for one in did[1:]] == [
        (0.3, Between.WAITING, 900),
        (0.9, Between.WAITING, 1410),
        (1.0, FORWARD, 1410),
        (2.0, Between.WAITING, 1410),
        (3.1, Between.WAITING, 1410),
        (3.3, Between.WAITING, 900),
        (3.9, Between.WAITING, 1410),
        (4.0, FORWARD, 1410),
    ]
