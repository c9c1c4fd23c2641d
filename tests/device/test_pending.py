"""Requests that are not due yet: in order, and cancelled by those that know more."""

import math

from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.pending import PendingRequests
from perseus_ds.device.protocol import Request


def test_requests_fall_due_in_order_each_at_its_time():
    pending = PendingRequests()
    for mhz, not_before_s in [(900, 1.0), (1200, 2.0), (1400, 3.0)]:
        pending.add(Request(mhz, 0.0, not_before_s))
    assert pending.due(0.9) is None
    for now_s, mhz in [(1.0, 900), (2.0, 1200), (3.5, 1400)]:
        assert pending.due_s <= now_s
        assert pending.due(now_s).mhz == mhz
        pending.settle()
    assert (pending.due(9.0), pending.due_s, pending.superseded) == (None, math.inf, 0)


def test_a_newer_request_cancels_what_falls_due_when_it_does_or_later():
    pending = PendingRequests()
    for mhz, not_before_s in [(900, 1.0), (1200, 2.0), (1400, 3.0)]:
        pending.add(Request(mhz, 0.0, not_before_s))
    pending.add(Request(1000, 0.5, 2.0))
    assert pending.superseded == 2
    assert [pending.due(1.5).mhz, pending.due(9.0).mhz] == [900, 1000]
    pending.add(Request(1100, 0.6))
    assert (pending.due(0.7).mhz, pending.superseded) == (1100, 4)


def test_a_request_that_waits_for_the_driver_is_overtaken_by_the_next_one():
    pending = PendingRequests()
    pending.add(Request(900, 0.0, 1.0))
    pending.add(Request(1200, 0.0, 2.0))
    assert pending.due(1.5).mhz == 900
    assert (pending.due(2.5).mhz, pending.superseded) == (1200, 1)


times = st.integers(0, 8).map(float)


@given(st.lists(st.tuples(times, times), max_size=30))
def test_random_requests_come_out_like_those_of_a_list_that_is_filtered(history):
    pending, waiting, now_s, settled = PendingRequests(), [], 0.0, 0
    for number, (wait_s, ahead_s) in enumerate(history):
        now_s += wait_s
        due = [one for one in waiting if one.not_before_s <= now_s]
        assert pending.due(now_s) == (due[-1] if due else None)
        if due:
            waiting = [one for one in waiting if one not in due]
            pending.settle()
            settled += 1
        request = Request(number, now_s, now_s + ahead_s)
        waiting = [one for one in waiting if one.not_before_s < request.not_before_s] + [request]
        pending.add(request)
    assert settled + pending.superseded + len(waiting) == len(history)
