"""A keeper in virtual time."""

import pytest

from perseus_ds.silicon.lab import Asked
from perseus_ds.silicon.virtual_keeper import VirtualKeeper


def test_a_keeper_asks_at_the_due_time_and_newer_requests_cancel_later_ones(make_lab):
    lab, applied = make_lab(), []
    keeper, begin_s = VirtualKeeper(lab, applied.append), lab.now_s()
    keeper.set_mhz(1980, 0.0)
    keeper.set_mhz(1500, begin_s + 0.2)
    keeper.set_mhz(1200, begin_s + 0.1)
    lab.sleep(0.5)
    log = keeper.close()
    assert applied == [asked.mhz for asked in log] == [1980, 1200]
    assert isinstance(log[1], Asked)
    assert log[1].at_s - begin_s == pytest.approx(0.1 + lab.keeper_lag_s)
