"""A real keeper process whose clock is a number in memory."""

import time

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, LATENCIES_S, ClockWords, work_s
from perseus_ds.silicon.word_keeper import WordKeeper


@pytest.mark.against_the_clock("a keeper that a busy host lets wait sets its clocks late")
def test_a_clock_is_there_one_latency_after_its_request(tmp_path):
    words = ClockWords(tmp_path / "clock")
    words.set_mhz(CLOCKS_MHZ[0])
    keeper = WordKeeper(tmp_path / "clock")
    begin_s = time.monotonic()
    keeper.set_mhz(1500)
    keeper.set_mhz(1740, begin_s + 0.2)
    assert words.unit_s(Kind.FORWARD) == pytest.approx(work_s(Kind.FORWARD, CLOCKS_MHZ[0]))
    time.sleep(0.15)
    assert words.unit_s(Kind.FORWARD) == pytest.approx(work_s(Kind.FORWARD, 1500))
    time.sleep(0.3)
    assert words.unit_s(Kind.FORWARD) == pytest.approx(work_s(Kind.FORWARD, 1740))
    log = keeper.close()
    assert [asked.mhz for asked in log] == [1500, 1740]
    for asked, due_s in zip(log, (0.0, 0.2), strict=True):
        assert asked.at_s - begin_s - due_s == pytest.approx(LATENCIES_S[asked.mhz], abs=0.02)
