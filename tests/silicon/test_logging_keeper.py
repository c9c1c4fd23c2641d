"""The logging keeper: a process with the real setter, which logs each clock at its due time."""

import time

import pytest

from perseus_ds.silicon.logging_keeper import LoggingKeeper


@pytest.mark.against_the_clock("a keeper that a busy host lets wait gets its requests after their due times")
def test_clocks_are_logged_no_earlier_than_due_and_in_order():
    keeper = LoggingKeeper()
    begin_s = time.monotonic()
    keeper.set_mhz(1400)
    keeper.set_mhz(1000, begin_s + 0.3)
    keeper.set_mhz(1200, begin_s + 0.2)  # better informed: replaces what is due later
    keeper.set_mhz(900, begin_s + 0.4)
    time.sleep(0.8)
    log = keeper.close()
    assert [asked.mhz for asked in log] == [1400, 1200, 900]
    assert [asked.at_s >= begin_s + due_s for asked, due_s in zip(log, (0.0, 0.2, 0.4), strict=True)] == [True] * 3
