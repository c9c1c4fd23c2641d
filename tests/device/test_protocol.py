"""Records survive the pipe, alone and joined."""

import math

from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.protocol import Pace, PowerReading, Request, Sample, Switch, decode, decode_order, encode

numbers = st.floats(allow_nan=False)
clocks = st.integers(0, 3000)
samples = st.builds(Sample, numbers, numbers, numbers, clocks, st.integers(0, 2**40))
powers = st.builds(PowerReading, numbers, numbers)
counts = st.integers(0, 1000)
switches = st.builds(Switch, numbers, numbers, numbers, clocks, clocks, counts, st.booleans(), numbers, numbers)
texts = st.dictionaries(st.text(), st.text() | st.integers() | st.lists(numbers))


@given(st.lists(samples | powers | switches | texts))
def test_joined_records_come_apart_again(records):
    assert list(decode(b"".join(encode(record) for record in records))) == records


def test_a_clock_that_was_not_reached_travels_as_nan():
    (switch,) = decode(encode(Switch(1.0, 2.0, math.nan, 900, 0, 0)))
    assert math.isnan(switch.reached_s)


@given(clocks, numbers)
def test_requests_survive(mhz, requested_s):
    request = Request(mhz, requested_s)
    assert decode_order(request.pack()) == request


@given(numbers)
def test_paces_survive(poll_s):
    assert decode_order(Pace(poll_s).pack()) == Pace(poll_s)
