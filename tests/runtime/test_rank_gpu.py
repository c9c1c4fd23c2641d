"""A rank's GPU: what it tells of itself, and how it passes on what the keeper says."""

import threading
from types import SimpleNamespace

import pytest

from perseus_ds.config import Config, DeviceConfig
from perseus_ds.device.calibration import Calibration
from perseus_ds.device.clock_keeper import GpuInfo, KeeperUpdate
from perseus_ds.device.driver import Throttle
from perseus_ds.device.protocol import PowerReading, Sample, Switch
from perseus_ds.pipeline.clocks import UNLOCKED, IterationClocks
from perseus_ds.pipeline.events import Operation, Topology
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.timers import CudaTimer, HostTimer
from perseus_ds.runtime import rank_gpu
from perseus_ds.runtime.rank_gpu import RankGpu
from perseus_ds.simulator.driver import SIMULATOR_VARIABLE

INFO = GpuInfo(
    pid=1,
    backend="nvml",
    reason="it may",
    uuid="GPU-1",
    name="Test GPU",
    driver_version="5",
    supported_clocks_mhz=(1410, 1200, 900),
    power_limit_w=400.0,
    modes="ECC on",
    sets_clocks=True,
    calibration=Calibration((0.01, 0.02, 0.05), 0.1),
)
NOTHING = KeeperUpdate((), (), ())


@pytest.fixture
def keeper(monkeypatch):
    """A keeper that says what a test wants, in place of a process."""
    keeper = SimpleNamespace(info=INFO, alive=True, asked=[], updates=[], last=NOTHING, started=[])
    keeper.set_mhz = lambda *request: keeper.asked.append(request)
    keeper.reset_clocks = lambda: keeper.asked.append("reset")
    keeper.paces = []
    keeper.set_pace = keeper.paces.append
    keeper.drain = lambda: keeper.updates.pop(0)
    keeper.close = lambda: keeper.last

    def start(*arguments, **options):
        keeper.started.append((*arguments, options))
        return keeper

    monkeypatch.setattr(rank_gpu, "ClockKeeper", SimpleNamespace(start=start))
    return keeper


def rank(tmp_path, **config) -> RankGpu:
    return RankGpu(Config(run_dir=tmp_path, **config), Topology(3, 4, 1, 2, 1, 2))


def sample(time_s: float, throttled: int = 0) -> Sample:
    return Sample(time_s, 100.0 * time_s, 0.001, 1410, int(throttled))


def test_it_describes_its_gpu(keeper, tmp_path):
    gpu = rank(tmp_path)
    assert (gpu.gpu_name, gpu.driver_version, gpu.clocks_mhz, gpu.max_mhz) == ("Test GPU", "5", (1410, 1200, 900), 1410)
    assert (gpu.sets_clocks, gpu.backend_reason, gpu.switch_latency_s) == (True, "nvml: it may", 0.05)
    assert gpu.describe() == {
        "name": "Test GPU",
        "driver_version": "5",
        "clocks_mhz": [1410, 900, 3],
        "clocks_through": "nvml: it may",
        "switch_latency_s": 0.05,
        "counter_period_s": 0.1,
    }
    assert (gpu.throttled_s, gpu.readings) == (0.0, [])


def test_clocks_go_to_the_keeper(keeper, tmp_path):
    gpu = rank(tmp_path)
    for mhz in (900, UNLOCKED, 1200):
        gpu.set_mhz(mhz, 7.5)
    assert keeper.asked == [(900, 7.5), "reset", (1200, 7.5)]


@pytest.mark.parametrize(("device", "default"), [({}, "reset"), ({"max_mhz": 1410}, (1410, 0.0))])
def test_released_the_clocks_are_the_default_ones_whatever_is_asked_for(keeper, tmp_path, device, default):
    gpu = rank(tmp_path, device=device)
    gpu.release_clocks()
    gpu.set_mhz(900, 7.5)
    gpu.take_clocks()
    gpu.set_mhz(900, 8.5)
    assert keeper.asked == [default, default, (900, 8.5)]


def test_let_go_a_gpu_s_keeper_ends_off_the_trainer_thread_and_no_other_comes(keeper, tmp_path):
    ends, held = threading.Event(), threading.Event()

    def close() -> KeeperUpdate:
        held.wait(10.0)
        keeper.alive = False
        ends.set()
        return NOTHING

    keeper.close, gpu = close, rank(tmp_path)
    gpu.let_go()
    assert not ends.is_set()
    held.set()
    assert ends.wait(10.0)
    keeper.updates = [NOTHING]
    gpu.drain_samples()
    assert len(keeper.started) == 1


def test_latencies_are_as_calibrated_until_they_are_seen_here_or_told_by_all_ranks(keeper, tmp_path):
    gpu = rank(tmp_path)
    assert gpu.latency_s(900) == 0.02
    switches = tuple(Switch(0.0, 1.0, 1.0 + latency_s, 900, 900, 0) for latency_s in (0.03, 0.04, 0.08))
    keeper.updates = [KeeperUpdate((), switches, ())]
    gpu.drain_samples()
    assert gpu.latency_s(900) == pytest.approx(0.04)
    assert gpu.latency_s(1200) == 0.02
    assert {mhz: len(bounds) for mhz, bounds in gpu.unheld_latencies_s.items()} == {900: 3}
    assert [mhz for _, mhz in gpu.requests] == [900] * 3
    gpu.expect_latencies({1200: 0.07})
    assert gpu.latency_s(1200) == 0.07


@pytest.mark.parametrize(
    ("device", "clocks"),
    [
        ({}, IterationClocks(1410, locked=False)),
        ({"restore_mhz": 1200}, IterationClocks(1200, locked=False)),
        ({"restore_mhz": 1300, "max_mhz": 1410}, IterationClocks(1200, locked=False)),  # no clock of its own
        ({"restore_mhz": 500}, IterationClocks(900, locked=False)),
        ({"max_mhz": 1410}, IterationClocks(1410)),  # without a lock it could go higher
    ],
)
def test_without_a_plan_a_gpu_runs_as_it_does_without_perseus(keeper, tmp_path, device, clocks):
    assert rank(tmp_path, device=device).default_clocks == clocks


def test_the_device_is_the_local_rank_s_where_there_is_no_cuda(keeper, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    rank(tmp_path, device={"backend": "zeusd", "min_switch_interval_s": 0.25})
    ((index, options),) = keeper.started
    assert (index, options["uuid"]) == (2, None)
    assert options["device"] == DeviceConfig(backend="zeusd", min_switch_interval_s=0.25)
    assert options["calibrate"]


def test_who_only_observes_sets_no_clock_whatever_the_backend(keeper, tmp_path):
    rank(tmp_path, mode="observe", device={"backend": "nvml"})
    assert keeper.started[0][1]["device"].backend == "observe"


def test_samples_and_throttled_time_are_those_since_the_last_call(keeper, tmp_path):
    gpu = rank(tmp_path)
    hot = Throttle.HARDWARE_THERMAL_SLOWDOWN
    keeper.updates = [
        KeeperUpdate((sample(1.0), sample(2.0, hot), sample(2.5, hot)), (), (), (PowerReading(1.5, 300.0),)),
        KeeperUpdate((sample(3.0, hot), sample(4.0)), (), ()),
        NOTHING,
    ]
    assert gpu.drain_samples() == [(1.0, 100.0), (2.0, 200.0), (2.5, 250.0)]
    assert [one.time_s for one in gpu.readings] == [1.0, 2.0, 2.5]
    assert gpu.shown_w == [(1.5, 300.0)]
    assert gpu.throttled_s == pytest.approx(1.5)
    assert gpu.drain_samples() == [(3.0, 300.0), (4.0, 400.0)]
    assert gpu.throttled_s == pytest.approx(0.5)
    assert gpu.drain_samples() == []
    assert (gpu.throttled_s, gpu.shown_w) == (0.0, [])


def test_what_the_keeper_says_is_logged_with_the_rank_and_counted_to_the_end(keeper, tmp_path, log_lines):
    gpu = rank(tmp_path)
    keeper.updates = [KeeperUpdate((sample(1.0),), (Switch(0.0, 0.1, 0.2, 900, 900, 0),), ("a line",))]
    keeper.last = KeeperUpdate((), (Switch(1.0, 1.1, 1.2, 1200, 1200, 4),), ("the last line",))
    gpu.drain_samples()
    statistics = gpu.close()
    assert log_lines.messages == ["rank 3: a line", "rank 3: the last line"]
    assert (statistics.switches, statistics.superseded, statistics.samples) == (2, 4, 1)


def test_without_cuda_the_host_s_clock_times_and_operations_are_let_pass(keeper, tmp_path):
    gpu = rank(tmp_path)
    assert isinstance(gpu.timer, HostTimer)
    gpu.iteration_begins(0)
    gpu.operation_begin(Operation(Kind.FORWARD))
    gpu.operation_end(Operation(Kind.FORWARD))


def test_a_simulated_gpu_runs_the_operations_and_is_waited_for(keeper, tmp_path, monkeypatch):
    monkeypatch.setenv(SIMULATOR_VARIABLE, "")
    gpu = rank(tmp_path, simulator={"time_scale": 0.1})
    simulated = gpu._simulation
    assert keeper.started[0][1]["uuid"] == simulated.gpu.uuid
    assert isinstance(gpu.timer, CudaTimer)
    told = []

    def noting(name):
        call = getattr(simulated, name)

        def note(*what):
            told.append((name, *what))
            call(*what)

        monkeypatch.setattr(simulated, name, note)

    for name in ("iteration_begins", "operation_begin", "operation_end", "iteration_ends", "close"):
        noting(name)
    forward = Operation(Kind.FORWARD, 0)
    gpu.iteration_begins(7)
    gpu.operation_begin(forward)
    gpu.operation_end(forward)
    gpu.iteration_ends()
    gpu.close()
    assert [name for name, *_ in told] == [
        "iteration_begins",
        "operation_begin",
        "operation_end",
        "iteration_ends",
        "close",
    ]
    assert [what for _, *what in told] == [[7], [forward], [forward], [], []]


@pytest.mark.parametrize(("iteration_s", "poll_s"), [(0.04, 0.005), (2.0, 0.1), (20.0, 1.0), (600.0, 1.0)])
def test_once_all_is_profiled_readings_are_rare_and_time_no_switch(keeper, tmp_path, iteration_s, poll_s):
    gpu = rank(tmp_path)
    gpu.watch_calmly(iteration_s)
    assert keeper.paces == [pytest.approx(poll_s)]
    keeper.last = KeeperUpdate((), (Switch(1.0, 1.1, 1.9, 1200, 1200, 0),), ())
    statistics = gpu.close()
    assert (statistics.reached, len(statistics.latencies_s)) == (1, 0)


def test_a_gpu_that_has_been_hot_is_held_at_its_ceiling_until_a_higher_clock_is_read(keeper, tmp_path):
    gpu = rank(tmp_path)
    hot = sample(1.0, Throttle.HARDWARE_THERMAL_SLOWDOWN)._replace(sm_clock_mhz=1110)
    updates = [KeeperUpdate((one,), (), ()) for one in (hot, sample(2.0))]
    keeper.updates = [updates[0], NOTHING, updates[1], NOTHING]
    held = []
    for _ in range(4):
        gpu.drain_samples()
        held.append(gpu.held_mhz)
    assert held == [1110, 1110, 0, 0]
