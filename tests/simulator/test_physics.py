"""A virtual GPU in virtual time: what it draws, when it switches, and what its counter shows."""

import itertools
import math
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu

FAST, SLOW = 1400, 700
CURVE = {CurveKey(0, Kind.FORWARD): [ProfilePoint(FAST, 0.1, 30.0), ProfilePoint(SLOW, 0.2, 20.0)]}
SPEC = GpuSpec(clocks_mhz=(FAST, SLOW), blocking_power_w=80.0, switch_latency_s=0.01, counter_period_s=0.05)
_numbers = itertools.count()


class VirtualTime:
    """A clock that only moves when told."""

    def __init__(self):
        self.now_s = time.monotonic()

    def __call__(self):
        return self.now_s

    def pass_s(self, seconds):
        self.now_s += seconds


@pytest.fixture(scope="module")
def make_gpu(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpus")

    def make(spec=SPEC):
        path = directory / f"{next(_numbers)}.state"
        assert create_gpu(path, spec)
        clock = VirtualTime()
        gpu = VirtualGpu(path, clock)
        gpu.load_curves(CURVE)
        return gpu, clock

    return make


def test_an_instruction_draws_its_curve_and_waiting_draws_blocking_power(make_gpu):
    gpu, clock = make_gpu()
    before_j = gpu.true_energy_j()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(0.15)  # 0.1 s of work, 0.05 s of waiting
    assert gpu.true_energy_j() - before_j == pytest.approx(30.0 + 80.0 * 0.05)


def test_a_clock_request_takes_effect_after_the_latency_and_work_goes_on_at_the_new_speed(make_gpu):
    gpu, clock = make_gpu()
    begin_s, before_j = clock(), gpu.true_energy_j()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(0.02)
    gpu.lock_clock(SLOW)
    clock.pass_s(0.005)
    assert gpu.sm_clock_mhz() == FAST
    # 0.03 s at the fast clock are 30 % of the work; the rest takes 0.7 of 0.2 s.
    assert gpu.finish_time_s() - begin_s == pytest.approx(0.03 + 0.14)
    clock.pass_s(0.006)
    assert gpu.sm_clock_mhz() == SLOW
    assert gpu.finish_time_s() - begin_s == pytest.approx(0.03 + 0.14)
    clock.pass_s(1.0)
    busy_j = 0.3 * 30.0 + 0.7 * 20.0
    assert gpu.true_energy_j() - before_j == pytest.approx(busy_j + 80.0 * (1.031 - 0.17))


def test_requests_take_effect_in_their_order(make_gpu):
    gpu, clock = make_gpu()
    gpu.lock_clock(SLOW)
    clock.pass_s(0.004)
    gpu.lock_clock(FAST)
    clock.pass_s(0.007)
    assert gpu.sm_clock_mhz() == SLOW
    clock.pass_s(0.004)
    assert gpu.sm_clock_mhz() == FAST


def test_more_requests_than_fit_in_the_queue_end_at_the_last(make_gpu):
    gpu, clock = make_gpu()
    for number in range(41):
        gpu.lock_clock(SLOW if number % 2 else FAST)
        gpu.lock_clock(FAST if number % 2 else SLOW)
    clock.pass_s(0.011)
    assert gpu.sm_clock_mhz() == SLOW


def test_a_throttled_gpu_takes_longer_at_blocking_power_and_says_so(make_gpu):
    gpu, clock = make_gpu()
    gpu.throttle(1.5)
    begin_s, before_j = clock(), gpu.true_energy_j()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    assert gpu.finish_time_s() - begin_s == pytest.approx(0.15)
    assert gpu.throttle_reasons() == 0x40
    assert gpu.sm_clock_mhz() < FAST
    clock.pass_s(0.15)
    assert gpu.true_energy_j() - before_j == pytest.approx(30.0 + 80.0 * 0.05)
    gpu.throttle(1.0)
    assert gpu.throttle_reasons() == 0
    assert gpu.sm_clock_mhz() == FAST


def test_the_counter_moves_once_per_period_and_without_noise_is_exact(make_gpu):
    gpu, clock = make_gpu()
    seen = []
    for _ in range(1000):
        clock.pass_s(0.001)
        seen.append((clock(), gpu.counter_mj()))
    changes_s = [now_s for (_, before), (now_s, after) in itertools.pairwise(seen) if after != before]
    assert len(changes_s) == pytest.approx(20, abs=1)
    assert all(0.0485 < gap < 0.0515 for gap in (b - a for a, b in itertools.pairwise(changes_s)))
    # Missing are the period that is under way and the one in which the GPU was created.
    assert 0.0 < gpu.true_energy_j() - gpu.counter_mj() / 1000.0 < 80.0 * 0.101


def test_noise_averages_out(make_gpu):
    gpu, clock = make_gpu(replace(SPEC, noise=0.03))
    clock.pass_s(500.0)
    error = gpu.counter_mj() / 1000.0 / gpu.true_energy_j() - 1.0
    assert 0.0 < abs(error) < 5 * 0.03 / math.sqrt(10_000)


def test_a_sampling_duty_extrapolates_what_it_saw(make_gpu):
    """Work that lasts exactly as long as the sampled part is counted four times as much, or not at all."""
    gpu, clock = make_gpu(replace(SPEC, sampling_duty=0.25, counter_period_s=0.4))
    start_mj = gpu.counter_mj()
    while gpu.counter_mj() == start_mj:  # to the begin of a period, which is the begin of its sampled part
        clock.pass_s(0.0001)
    first_mj = gpu.counter_mj()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))  # 0.1 s, 300 W
    clock.pass_s(0.4)
    second_mj = gpu.counter_mj()
    clock.pass_s(0.15)
    gpu.begin_work(CurveKey(0, Kind.FORWARD))  # now outside the sampled part
    clock.pass_s(0.25)
    assert (second_mj - first_mj) / 1000.0 == pytest.approx(300.0 * 0.4, rel=0.01)
    assert (gpu.counter_mj() - second_mj) / 1000.0 == pytest.approx(80.0 * 0.4, rel=0.01)


def test_equal_seeds_are_equal_gpus(make_gpu):
    (one, clock_one), (two, clock_two) = make_gpu(replace(SPEC, noise=0.1)), make_gpu(replace(SPEC, noise=0.1))
    (other, clock_other) = make_gpu(replace(SPEC, noise=0.1, seed=1))
    for clock in (clock_one, clock_two, clock_other):
        clock.pass_s(10.0)
    assert one.counter_mj() == pytest.approx(two.counter_mj(), rel=0.02)
    assert one.counter_mj() != other.counter_mj()


actions = st.lists(
    st.tuples(st.floats(0.0001, 0.3), st.sampled_from(["work", "slow", "fast", "throttle", "normal", "none"])),
    max_size=15,
)


@given(script=actions, looks=st.integers(1, 5))
def test_looking_at_a_gpu_changes_nothing(make_gpu, script, looks):
    """However often a GPU is looked at in between, it ends in the same state."""
    results = []
    for readings in (1, looks):
        gpu, clock = make_gpu(replace(SPEC, switch_latency_spread=0.5))
        begin_j = gpu.true_energy_j()
        for pause_s, action in script:
            for _ in range(readings):
                clock.pass_s(pause_s / readings)
                gpu.true_energy_j()
            act(gpu, action)
        results.append((gpu.true_energy_j() - begin_j, gpu.sm_clock_mhz(), gpu.finish_time_s() - clock()))
        gpu.close()
    assert results[0] == pytest.approx(results[1], abs=1e-6)


def act(gpu, action):
    match action:
        case "work":
            gpu.begin_work(CurveKey(0, Kind.FORWARD))
        case "slow" | "fast":
            gpu.lock_clock(SLOW if action == "slow" else FAST)
        case "throttle" | "normal":
            gpu.throttle(2.0 if action == "throttle" else 1.0)
