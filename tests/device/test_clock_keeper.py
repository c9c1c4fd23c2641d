"""The clock keeper on a virtual GPU: what it does for a trainer that behaves."""

import atexit
import itertools
import os
import resource
import signal
import statistics
import sys
import time

import pytest
from waiting import wait_for

from perseus_ds import isolated
from perseus_ds.config import DeviceConfig
from perseus_ds.device import clock_keeper
from perseus_ds.device.clock_keeper import ClockKeeper
from perseus_ds.messages import PerseusError

pytestmark = pytest.mark.against_the_clock("a host that stalls makes requests, samples and resets late")


@pytest.fixture
def start(gpu):
    """Starts keepers of the virtual GPU, and closes them."""
    keepers = []

    def start(**options):
        keepers.append(ClockKeeper.start(**options))
        return keepers[-1]

    yield start
    for keeper in keepers:
        keeper.close()


def test_it_tells_what_the_gpu_is(start, gpu):
    info = start().info
    assert (info.uuid, info.name, info.driver_version) == (gpu.uuid, "Test GPU", "1.2.3")
    assert info.supported_clocks_mhz == (1410, 1200, 900)
    assert (info.backend, info.sets_clocks, info.power_limit_w) == ("nvml", True, 400.0)
    assert info.pid != os.getpid()


def test_a_lock_that_a_crash_has_left_is_cleared_at_start(start, gpu):
    gpu.lock_clock(900)
    start()
    assert not gpu.is_locked()


@pytest.fixture
def many_open_files():
    """This process has more files open than ``select`` can tell apart, as trainers with memory-mapped shards have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    with open(os.devnull) as file:
        numbers = [os.dup(file.fileno()) for _ in range(1100)]
        yield
    for number in numbers:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_trainer_may_have_many_files_open(many_open_files, start, gpu):
    keeper = start()
    keeper.set_mhz(900)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    assert keeper.alive


def test_clocks_are_set_and_read_back(start, gpu):
    keeper = start()
    keeper.set_mhz(900)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    time.sleep(0.05)
    keeper.set_mhz(1200)
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
    time.sleep(0.05)
    switches = keeper.drain().switches
    assert [(switch.mhz, switch.actual_mhz) for switch in switches] == [(900, 900), (1200, 1200)]
    for switch in switches:
        assert switch.requested_s <= switch.applied_s < switch.reached_s
        assert 0.005 < switch.reached_s - switch.applied_s < 0.1  # 10 ms; the middle between two looks


def test_a_request_costs_the_trainer_microseconds(start):
    keeper = start()
    costs_s = []
    for number in range(200):
        begin_s = time.perf_counter()
        keeper.set_mhz(900 if number % 2 else 1200)
        costs_s.append(time.perf_counter() - begin_s)
        time.sleep(0.002)
    assert statistics.median(costs_s) < 500e-6  # 55 us on a quiet machine


def test_equal_requests_are_not_passed_on(start, gpu):
    keeper = start()
    before, _ = gpu.requests()
    for _ in range(5):
        keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    time.sleep(0.1)
    assert gpu.requests()[0] - before == 1


def test_a_request_ahead_of_its_time_is_carried_out_then_unless_a_newer_one_cancels_it(start, gpu):
    keeper = start()
    due_s = time.monotonic() + 0.3
    keeper.set_mhz(900)
    keeper.set_mhz(1200, not_before_s=due_s)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
    keeper.set_mhz(900, not_before_s=time.monotonic() + 0.2)
    keeper.set_mhz(1410)
    time.sleep(0.4)
    now, ahead, instead = keeper.drain().switches
    assert [now.mhz, ahead.mhz, instead.mhz] == [900, 1200, 1410]
    assert now.applied_s < due_s <= ahead.applied_s < due_s + 0.05
    assert (ahead.superseded, instead.superseded) == (0, 1)
    assert gpu.sm_clock_mhz() == 1410


def test_a_clock_asked_for_ahead_of_its_time_can_be_asked_for_at_once(start, gpu):
    keeper = start()
    keeper.set_mhz(900, not_before_s=time.monotonic() + 60.0)
    keeper.set_mhz(900, not_before_s=time.monotonic() + 90.0)
    keeper.set_mhz(900)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)


def test_a_rate_limit_overtakes_what_is_outdated(start, gpu):
    keeper = start(device=DeviceConfig(min_switch_interval_s=0.2))
    before, _ = gpu.requests()
    for mhz in (900, 1200, 900, 1200):
        keeper.set_mhz(mhz)
        time.sleep(0.02)
    wait_for(lambda: gpu.sm_clock_mhz() == 1200)
    time.sleep(0.05)
    first, last = keeper.drain().switches
    assert (first.mhz, first.superseded, last.mhz, last.superseded) == (900, 0, 1200, 2)
    assert last.applied_s - first.applied_s > 0.19
    assert gpu.requests()[0] - before == 2


def test_a_clock_that_comes_after_a_newer_request_is_seen_too(make_gpus):
    (gpu,) = make_gpus(switch_latency_s=0.4)
    keeper = ClockKeeper.start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    time.sleep(0.2)
    keeper.set_mhz(1200)
    time.sleep(0.8)
    first, second = keeper.close().switches
    assert second.applied_s < first.reached_s < second.reached_s
    assert (first.mhz, second.mhz, second.actual_mhz) == (900, 1200, 1200)


def test_reset_gives_the_default_clock(start, gpu):
    keeper = start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    keeper.reset_clocks()
    wait_for(lambda: not gpu.is_locked())
    assert keeper.alive


def test_samples_are_the_counters_changed_points(start, gpu):
    keeper = start(device=DeviceConfig(counter_poll_s=0.002))
    time.sleep(1.0)
    samples = keeper.drain().samples
    assert len(samples) > 5
    period_j = 83.64 * 0.05
    for earlier, later in itertools.pairwise(samples):
        periods = (later.energy_j - earlier.energy_j) / period_j  # more than one where a poll came late
        assert periods == pytest.approx(round(periods), abs=0.01)
        doubt_s = earlier.uncertainty_s + later.uncertainty_s
        assert abs(later.time_s - earlier.time_s - 0.05 * periods) <= doubt_s + 0.002
    assert {sample.sm_clock_mhz for sample in samples} == {1410}


def test_a_trainer_that_does_not_listen_for_long_gets_everything_later(make_gpus):
    (gpu,) = make_gpus(counter_period_s=0.002, switch_latency_s=0.0)
    keeper = ClockKeeper.start(device=DeviceConfig(counter_poll_s=0.001))
    for number in range(800):
        keeper.set_mhz(900 if number % 2 else 1200)
        time.sleep(0.001)
    keeper.set_mhz(1410)
    wait_for(lambda: gpu.sm_clock_mhz() == 1410)
    time.sleep(0.2)
    update = keeper.drain()
    requested_s = [switch.requested_s for switch in update.switches]
    assert requested_s == sorted(requested_s)
    assert len(update.switches) + len(update.samples) > 300  # more than a socket holds messages
    assert 600 < sum(1 + switch.superseded for switch in update.switches) <= 801
    keeper.close()


def test_close_resets_the_clocks_and_can_be_repeated(start, gpu):
    keeper = start()
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
    keeper.close()
    assert not gpu.is_locked()
    assert not keeper.alive
    keeper.set_mhz(900)
    assert keeper.drain() == keeper.close()
    assert not gpu.is_locked()


def test_observing_never_touches_the_clocks(start, gpu):
    gpu.lock_clock(1200)  # somebody else's
    before = gpu.requests()
    keeper = start(device=DeviceConfig(backend="observe"))
    keeper.set_mhz(900)
    time.sleep(0.3)
    assert keeper.drain().samples
    keeper.close()
    assert not keeper.info.sets_clocks
    assert gpu.requests() == before
    assert gpu.is_locked()


def test_calibration_measures_the_gpu_and_is_kept(make_gpus, start, tmp_path):
    cache = tmp_path / "cache"
    keeper = start(calibrate=True, cache_dir=cache)
    assert keeper.info.calibration.switch_latency_s == pytest.approx(0.010, rel=0.5)
    assert keeper.info.calibration.counter_period_s == pytest.approx(0.050, rel=0.1)
    keeper.close()
    assert [file.name for file in cache.iterdir()] == ["calibration-test-gpu-1.2.3.json"]
    again = start(calibrate=True, cache_dir=cache)
    assert again.info.calibration == keeper.info.calibration  # measured anew it is another to the last digit


def test_without_virtual_gpus_or_driver_the_start_says_so(start, monkeypatch, tmp_path):
    monkeypatch.setenv("PERSEUS_DS_SIMULATOR", str(tmp_path / "nowhere"))
    with pytest.raises(PerseusError, match=r"no virtual GPUs there.*\[keeper-start\]"):
        start()


@pytest.mark.parametrize(
    ("program", "cause"), [("import time; time.sleep(60)", "no answer in 0.5 s"), ("pass", "it ended at once")]
)
def test_a_keeper_that_does_not_greet_is_given_up_and_another_process_resets(gpu, monkeypatch, program, cause):
    spawned, spawn = [], clock_keeper._spawn

    def spy(*arguments):
        spawned.append((spawn(*arguments), arguments))
        return spawned[-1][0]

    monkeypatch.setattr(clock_keeper, "_spawn", spy)
    monkeypatch.setattr(clock_keeper, "_START_TIMEOUT_S", 0.5)
    monkeypatch.setattr(isolated, "command", lambda module: [sys.executable, "-c", program])
    with pytest.raises(PerseusError, match=rf"{cause}.*\[keeper-start\]"):
        ClockKeeper.start()
    (first, _), (second, arguments) = spawned
    assert first.poll() is not None
    assert len(arguments) == 1, "without a pipe it only resets"
    second.kill()
    second.wait()


def test_a_process_that_cannot_be_started_is_an_error(gpu, monkeypatch):
    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(clock_keeper, "_spawn", no_memory)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PerseusError, match=r"Cannot allocate memory.*\[keeper-start\]"):
        ClockKeeper.start()
    assert len(os.listdir("/proc/self/fd")) == before


def test_clocks_that_nobody_can_reset_are_told_with_the_gpus_name(start, gpu, monkeypatch):
    keeper = start()

    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(clock_keeper, "_spawn", no_memory)
    os.kill(keeper.info.pid, signal.SIGKILL)
    keeper._process.wait()
    notices = []

    def noticed() -> bool:
        notices.extend(keeper.drain().notices)
        return not keeper.alive

    wait_for(noticed)
    gone, reset = [*notices, *keeper.drain().notices]
    assert f"process {keeper.info.pid}" in gone
    assert reset.startswith("Test GPU")
    assert "Cannot allocate memory" in reset


def test_the_last_clock_counts_once_though_it_was_asked_for_again(start, gpu):
    keeper = start()
    for mhz in (900, 900, 1200, 1200, 900):
        keeper.set_mhz(mhz)
        time.sleep(0.03)
    wait_for(lambda: gpu.sm_clock_mhz() == 900)
    time.sleep(0.05)
    assert [switch.mhz for switch in keeper.drain().switches] == [900, 1200, 900]


def test_a_keeper_that_is_closed_leaves_nothing_behind(start, monkeypatch):
    forgotten = []
    monkeypatch.setattr(atexit, "unregister", forgotten.append)
    before = len(os.listdir("/proc/self/fd"))
    keeper = start()
    keeper.close()
    assert forgotten == [keeper.close]
    assert len(os.listdir("/proc/self/fd")) == before
    assert keeper._process.poll() == 0


def test_readings_become_rare_on_request(start, gpu):
    keeper = start()
    keeper.set_pace(0.5)
    time.sleep(0.1)
    keeper.drain()
    time.sleep(1.6)
    assert 1 <= len(keeper.drain().samples) <= 4
    keeper.set_mhz(900)
    wait_for(gpu.is_locked)
