"""A keeper that dies is started again off the trainer thread, and not for ever."""

import threading
import time
from types import SimpleNamespace

import pytest

from perseus_ds.coordination.failure_limit import FailureLimit
from perseus_ds.device.clock_keeper import KeeperUpdate
from perseus_ds.messages import PerseusError
from perseus_ds.runtime.lasting_keeper import LastingKeeper


class Keepers:
    """Starts keepers that are no processes."""

    def __init__(self) -> None:
        self.made, self.calibrated, self.may_start = [], [], threading.Event()
        self.error: Exception | None = None
        self.may_start.set()

    def start(self, calibrate: bool) -> SimpleNamespace:
        assert self.may_start.wait(10.0)
        self.calibrated.append(calibrate)
        if self.error:
            raise self.error
        keeper = SimpleNamespace(info=SimpleNamespace(pid=len(self.made)), alive=True, asked=[], paces=[])
        keeper.set_mhz = lambda *request: keeper.asked.append(request)
        keeper.reset_clocks = lambda: keeper.asked.append("reset")
        keeper.set_pace = keeper.paces.append
        keeper.drain = lambda: KeeperUpdate((), (), ())
        keeper.close = lambda: keeper.asked.append("close")
        keeper.await_reset = lambda timeout_s: keeper.asked.append("reset awaited")
        self.made.append(keeper)
        return keeper


@pytest.fixture
def keepers() -> Keepers:
    return Keepers()


def told(keeper: LastingKeeper, code: str) -> str:
    """Drain until a message comes."""
    deadline_s = time.monotonic() + 10.0
    while time.monotonic() < deadline_s:
        for notice in keeper.drain().notices:
            assert f"[{code}]" in notice
            return notice
        time.sleep(0.005)
    raise AssertionError(f"no {code}")


def test_while_the_next_one_starts_nobody_waits_and_then_it_takes_over(keepers):
    keeper = LastingKeeper(keepers.start, FailureLimit(3, 3600.0))
    keeper.set_pace(0.5)
    keepers.may_start.clear()
    keepers.made[0].alive = False
    assert [keeper.drain().notices for _ in range(3)] == [()] * 3
    assert not keeper.alive
    keepers.may_start.set()
    assert "process 1" in told(keeper, "keeper-back")
    keeper.set_mhz(900, 1.5)
    keeper.reset_clocks()
    assert keeper.alive
    assert keepers.made[0].asked == ["reset awaited"]
    assert (keepers.made[1].asked, keepers.made[1].paces) == ([(900, 1.5), "reset"], [0.5])
    assert (keepers.calibrated, keeper.info.pid) == ([True, False], 0)
    keeper.close()
    assert keepers.made[1].asked[-1] == "close"


def test_one_that_dies_too_often_is_not_started_any_more(keepers):
    keeper = LastingKeeper(keepers.start, FailureLimit(1, 3600.0))
    keepers.made[-1].alive = False
    told(keeper, "keeper-back")
    keepers.made[-1].alive = False
    told(keeper, "keepers-die")
    assert keeper.drain().notices == ()
    assert len(keepers.made) == 2


def test_one_that_does_not_start_is_told_and_tried_again(keepers):
    keeper = LastingKeeper(keepers.start, FailureLimit(2, 3600.0))
    keepers.error = PerseusError("keeper-start", detail="no memory")
    keepers.made[0].alive = False
    assert "no memory" in told(keeper, "keeper-start")
    keepers.error = None
    told(keeper, "keeper-back")
