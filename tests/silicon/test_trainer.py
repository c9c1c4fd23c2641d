"""Trainers beside others: real processes, busy in Python, each with a keeper."""

import time

import pytest

from perseus_ds.silicon import trainer
from perseus_ds.silicon.reader import beside


@pytest.mark.against_the_clock("two processes end within ten seconds")
def test_one_trains_until_its_input_ends():
    begin_s = time.monotonic()
    with beside("perseus_ds.silicon.trainer", count=2):
        ready_s = time.monotonic() - begin_s
    assert time.monotonic() - begin_s - ready_s < 10.0, "it ends with its iterations"


def test_it_asks_for_clocks_again_and_again(monkeypatch):
    kept = []

    class Keeper:
        def __init__(self):
            self.asked, self.closed = [], False
            kept.append(self)

        def set_mhz(self, mhz, not_before_s=0.0):
            self.asked.append(mhz)

        def close(self):
            self.closed = True

    looks = iter([[], [], [True]])
    monkeypatch.setattr(trainer, "LoggingKeeper", Keeper)
    monkeypatch.setattr(trainer, "_TOGETHER", 2)
    monkeypatch.setattr(trainer.select, "select", lambda *_: (next(looks), [], []))
    assert trainer.main() == 0
    assert [one.closed for one in kept] == [True, True]
    assert all(one.asked.count(1500) >= 14 for one in kept)
