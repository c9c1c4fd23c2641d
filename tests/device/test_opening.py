"""Through what a rank's clocks are set, and why."""

import pytest

from perseus_ds.device.driver import DriverError
from perseus_ds.device.opening import open_gpu


def test_auto_takes_nvml_where_it_may_and_clears_stale_locks(gpu):
    gpu.lock_clock(900)
    opened = open_gpu(0)
    assert (opened.backend, opened.gpu.sets_clocks) == ("nvml", True)
    assert not gpu.is_locked()


def test_observing_asks_nobody_and_clears_nothing(gpu):
    gpu.lock_clock(900)
    opened = open_gpu(0, "observe", exclusive=True)
    assert (opened.backend, opened.gpu.sets_clocks) == ("observe", False)
    assert gpu.is_locked()
    open_gpu(0, exclusive=True)  # an observer claims nothing
    assert not gpu.is_locked()


def test_who_ends_as_an_observer_gives_the_gpu_up(gpu, monkeypatch):
    closed = []
    monkeypatch.setattr("perseus_ds.device.opening.os.close", closed.append)
    monkeypatch.setattr("perseus_ds.device.opening.claim", lambda uuid: uuid)
    gpu.set_fault("no_permission")
    assert open_gpu(0, zeusd_address="/nowhere", exclusive=True).backend == "observe"
    assert closed == [gpu.uuid]


def test_zeus_s_own_variable_gives_way_to_our_configuration(gpu, monkeypatch):
    monkeypatch.setenv("ZEUSD_SOCK_PATH", "/by/variable.sock")
    for arguments, address in [({}, "/by/variable.sock"), ({"zeusd_address": "/ours.sock"}, "/ours.sock")]:
        with pytest.raises(DriverError, match=f"{address}: zeusd does not answer"):
            open_gpu(0, "zeusd", **arguments)
