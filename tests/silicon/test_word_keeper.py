"""A real keeper process whose clock is a number in memory."""

import time

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.silicon.clock_words import CLOCKS_MHZ, LATENCIES_S, ClockWords, work_s
from perseus_ds.silicon.word_keeper import WordKeeper

JITTER_S = 0.001


def await_mhz(words: ClockWords, mhz: int, patience_s: float = 5.0) -> None:
    """Wait until instructions run at a clock."""
    end_s = time.monotonic() + patience_s
    while words.unit_s(Kind.FORWARD) != pytest.approx(work_s(Kind.FORWARD, mhz)):
        assert time.monotonic() < end_s, f"{mhz} MHz never came"
        time.sleep(0.002)


@pytest.mark.against_the_clock("a keeper that a busy host lets wait sets its clocks late")
def test_a_clock_is_there_one_latency_after_its_request_or_its_due_time(tmp_path):
    words = ClockWords(tmp_path / "clock")
    words.set_mhz(CLOCKS_MHZ[0])
    keeper = WordKeeper(tmp_path / "clock")
    due_s = [time.monotonic()]
    keeper.set_mhz(1500)
    await_mhz(words, 1500)
    due_s.append(time.monotonic() + 0.1)
    keeper.set_mhz(1740, due_s[1])
    await_mhz(words, 1740)
    log = keeper.close()
    assert [asked.mhz for asked in log] == [1500, 1740]
    for asked, at_s in zip(log, due_s, strict=True):
        late_s = asked.at_s - at_s - LATENCIES_S[asked.mhz]
        assert -JITTER_S - 1e-6 <= late_s < 0.25
