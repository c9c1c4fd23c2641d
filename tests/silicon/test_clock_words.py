"""Numbers that two processes share."""

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, LATENCIES_S, ClockWords, work_s


def test_a_forward_follows_the_clock_and_half_of_a_backward_does_not():
    highest, lowest = CLOCKS_MHZ[0], CLOCKS_MHZ[-1]
    assert work_s(Kind.FORWARD, lowest) == pytest.approx(work_s(Kind.FORWARD, highest) * highest / lowest)
    added_s = work_s(Kind.FORWARD, lowest) - work_s(Kind.FORWARD, highest)
    assert work_s(Kind.BACKWARD, lowest) == pytest.approx(2 * work_s(Kind.FORWARD, highest) + added_s)


def test_latencies_differ_by_clock():
    assert set(LATENCIES_S) == set(CLOCKS_MHZ)
    assert all(0.010 <= latency_s <= 0.050 for latency_s in LATENCIES_S.values())
    assert len(set(LATENCIES_S.values())) == len(CLOCKS_MHZ)


def test_who_else_maps_the_file_sees_the_clock(tmp_path):
    written, read = ClockWords(tmp_path / "clock"), ClockWords(tmp_path / "clock")
    written.set_mhz(1500)
    assert read.unit_s(Kind.FORWARD) == pytest.approx(work_s(Kind.FORWARD, 1500))
    assert read.unit_s(Kind.BACKWARD) == pytest.approx(work_s(Kind.BACKWARD, 1500))
    assert written.address != read.address
