"""The driver's faults, before and during training: training goes on, one message names the cause."""

import resource
import time

import pytest
from waiting import wait_for

from perseus_ds.config import DeviceConfig
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.messages import PerseusError

pytestmark = pytest.mark.against_the_clock("a host that stalls makes faults and their messages late")


def train_for_s(keeper, seconds):
    """Ask for changing clocks like a training does, and return every message and sample."""
    notices, samples = [], []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for mhz in (900, 1200):
            keeper.set_mhz(mhz)
            time.sleep(0.03)
        update = keeper.drain()
        notices += update.notices
        samples += update.samples
    return notices, samples


@pytest.mark.parametrize(
    ("fault", "code"), [("no_permission", "gpu-not-permitted"), ("not_supported", "gpu-not-supported")]
)
def test_from_the_start_auto_only_observes_and_says_why(gpu, fault, code):
    gpu.set_fault(fault)
    keeper = ClockKeeper.start(device=DeviceConfig(zeusd_address="/nonexistent/zeusd.sock"))
    notices, samples = train_for_s(keeper, 0.3)
    assert keeper.info.backend == "observe"
    assert f"[{code}]" in keeper.info.reason
    assert "[zeusd-unreachable]" in keeper.info.reason
    assert samples
    assert not notices
    assert not keeper.close().notices


def test_no_permission_names_capability_and_daemon(gpu):
    gpu.set_fault("no_permission")
    with pytest.raises(PerseusError) as raised:
        ClockKeeper.start(device=DeviceConfig(backend="nvml"))
    assert "CAP_SYS_ADMIN" in str(raised.value)
    assert "zeusd" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_lost_gpu_at_the_start_is_an_error(gpu):
    gpu.set_fault("gpu_is_lost")
    with pytest.raises(PerseusError, match="gpu-lost"):
        ClockKeeper.start()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("no_permission", "gpu-not-permitted"),
        ("not_supported", "gpu-not-supported"),
        ("timeout", "driver-timeout"),
        ("unknown", "driver-failed"),
    ],
)
def test_in_mid_run_it_is_told_once_and_energy_is_read_on(gpu, fault, code):
    keeper = ClockKeeper.start()
    train_for_s(keeper, 0.1)
    gpu.set_fault(fault)
    notices, samples = train_for_s(keeper, 0.5)
    assert [notice.rpartition("[")[2] for notice in notices] == [f"{code}]"]
    assert len(samples) > 5
    assert keeper.alive
    gpu.set_fault(None)
    keeper.close()
    assert not gpu.is_locked()


def test_a_passing_error_is_tried_again_until_the_clock_is_set(gpu):
    keeper = ClockKeeper.start()
    gpu.set_fault("timeout", calls=3)
    keeper.set_mhz(900)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    wait_for(lambda: keeper.drain().switches)
    keeper.close()


def test_a_passing_error_at_the_end_does_not_leave_the_clocks_locked(gpu):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    gpu.set_fault("unknown", calls=5)
    assert not keeper.close().notices
    assert not gpu.is_locked()


def test_a_reset_that_stays_refused_is_told_with_the_last_resort(gpu):
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    gpu.set_fault("timeout")
    (notice,) = keeper.close().notices
    assert "perseus-ds reset-clocks" in notice
    assert "[driver-timeout]" in notice


def test_a_gpu_lost_in_mid_run_is_told_once_and_ends_nothing(gpu):
    keeper = ClockKeeper.start()
    gpu.set_fault("gpu_is_lost")
    notices, _ = train_for_s(keeper, 0.5)
    assert len(notices) == 1
    assert "[gpu-lost]" in notices[0]
    assert keeper.alive
    begin_s = time.monotonic()
    keeper.close()
    assert time.monotonic() - begin_s < 2.0


def test_a_frozen_counter_is_told_once(gpu):
    keeper = ClockKeeper.start()
    gpu.set_fault("frozen_counter")
    notices, samples = train_for_s(keeper, 4.0)
    assert len(notices) == 1
    assert "has not moved for" in notices[0]
    assert len(samples) <= 2
    keeper.close()
    assert not gpu.is_locked()


def test_a_counter_that_starts_again_goes_on_where_it_was(gpu):
    begin_s = time.monotonic()
    keeper = ClockKeeper.start()
    time.sleep(0.5)
    _, before = train_for_s(keeper, 0.3)
    gpu.set_fault("counter_wrap")
    notices, after = train_for_s(keeper, 0.5)
    assert len(notices) == 1
    assert "[counter-restarted]" in notices[0]
    energies_j = [sample.energy_j for sample in (*before, *after)]
    assert energies_j == sorted(energies_j)
    assert energies_j[-1] - energies_j[0] < 83.64 * (time.monotonic() - begin_s)
    keeper.close()


def test_a_clock_that_is_not_reached_is_told_once_with_the_reason(gpu):
    keeper = ClockKeeper.start()
    gpu.throttle(1.5)
    keeper.set_mhz(1200)
    notices = []
    end_s = time.monotonic() + 1.5
    while time.monotonic() < end_s:
        update = keeper.drain()
        notices += update.notices
        time.sleep(0.05)
    assert len(notices) == 1
    assert "requested 1200 MHz, runs at 900 MHz: hardware thermal slowdown" in notices[0]
    keeper.close()


def test_a_full_disk_at_the_calibration_cache_costs_one_message(gpu, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # The kernel lets the keeper write no file beyond 16 bytes, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
        keeper = ClockKeeper.start(calibrate=True, cache_dir=tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert keeper.info.calibration.counter_period_s > 0.0
    (notice,) = keeper.drain().notices
    assert "[calibration-cache]" in notice
    assert list((tmp_path / "cache").iterdir()) == []
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    keeper.close()
