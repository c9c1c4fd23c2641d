"""What a virtual GPU draws, when it switches, and what holds its clock down."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import FAST, SLOW, SPEC

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, ProfilePoint


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


# What holds the clock down, and what a request costs: against the formulas.

STEPS = tuple(range(1400, 600, -10))
HEAVY = {  # 1,000 W at 1400 MHz, falling with the clock's square
    CurveKey(0, Kind.FORWARD): [ProfilePoint(mhz, 100.0, 100_000.0 * (mhz / 1400) ** 2) for mhz in STEPS]
}
LIMITED = replace(SPEC, clocks_mhz=STEPS, power_limit_w=700.0, power_limit_window_s=0.2)


def test_the_governor_leaves_the_clock_until_the_average_meets_the_limit(make_gpu):
    """The average of a step from 80 to 1,000 W meets 700 W after window x ln(920 / 300)."""
    gpu, clock = make_gpu(LIMITED, HEAVY)
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    meets_s = 0.2 * math.log((1000.0 - 80.0) / (1000.0 - 700.0))
    clock.pass_s(meets_s - 0.001)
    assert (gpu.sm_clock_mhz(), gpu.throttle_reasons()) == (1400, 0)
    clock.pass_s(2 * 0.2 / 4)  # the governor looks four times in its window
    assert gpu.sm_clock_mhz() < 1400
    assert gpu.throttle_reasons() == 0x4


def test_after_the_load_the_governor_raises_the_clock_more_slowly_where_it_is_told_to(make_gpu):
    risen_mhz = []
    four_s = {key: [ProfilePoint(p.frequency_mhz, 4.0, p.energy_j / 25.0) for p in HEAVY[key]] for key in HEAVY}
    for rise in (1.0, 3.0):
        gpu, clock = make_gpu(replace(LIMITED, power_limit_rise=rise), four_s)
        gpu.begin_work(CurveKey(0, Kind.FORWARD))
        clock.pass_s(3.999)
        held_mhz = gpu.sm_clock_mhz()
        clock.pass_s(0.3)  # shorter, and when the governor looks would matter: it begins at any time
        risen_mhz.append(gpu.sm_clock_mhz() - held_mhz)
    assert risen_mhz[0] > 2.0 * risen_mhz[1] > 0.0


def test_what_nvml_shows_is_renewed_once_a_period(make_gpu):
    """Two clocks come, and NVML shows the latter at its next renewal. The energy counter has a period of its own."""
    gpu, clock = make_gpu(replace(SPEC, readings_period_s=0.1))
    shown: list[tuple[float, int]] = []
    gpu.lock_clock(SLOW)
    for _ in range(60):
        clock.pass_s(0.005)
        if not shown or shown[-1][1] != gpu.sm_clock_mhz():
            shown.append((clock(), gpu.sm_clock_mhz()))
            if len(shown) == 2:
                gpu.lock_clock(FAST)
    assert [mhz for _, mhz in shown] == [FAST, SLOW, FAST]
    assert shown[2][0] - shown[1][0] == pytest.approx(0.1, abs=0.006), "asked for just after a renewal"


def test_the_power_that_nvml_shows_is_the_mean_of_the_time_before_its_renewal(make_gpu):
    """An instruction of 300 W lasts 0.1 s; a GPU that waits draws 80 W."""
    gpu, clock = make_gpu(replace(SPEC, readings_period_s=0.1, power_window_s=0.025))
    shown_w = gpu.power_w()
    while gpu.power_w() == shown_w:  # up to a renewal
        clock.pass_s(0.001)
    clock.pass_s(0.085)  # the next window has begun 10 ms ago
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(0.02)
    assert gpu.power_w() == pytest.approx(0.4 * 80.0 + 0.6 * 300.0, abs=0.05 * 220.0)


def test_the_governor_settles_where_the_power_is_the_limit_and_recovers(make_gpu):
    gpu, clock = make_gpu(LIMITED, HEAVY)
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(4.0)
    settled_mhz = 1400 * math.sqrt(0.7)
    assert gpu.sm_clock_mhz() == pytest.approx(settled_mhz, abs=15)
    lowest_mhz = settled_mhz
    before_j = gpu.true_energy_j()
    for _ in range(100):
        clock.pass_s(0.02)
        lowest_mhz = min(lowest_mhz, gpu.sm_clock_mhz())
    assert (gpu.true_energy_j() - before_j) / 2.0 == pytest.approx(700.0, rel=0.01)
    assert lowest_mhz > 0.95 * settled_mhz
    clock.pass_s(200.0)  # the work has long ended
    assert (gpu.sm_clock_mhz(), gpu.throttle_reasons()) == (1400, 0)


def test_a_clock_below_the_ceilings_is_held(make_gpu):
    gpu, clock = make_gpu(LIMITED, HEAVY)
    gpu.lock_clock(1100)
    gpu.throttle_to(1200)
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(4.0)
    assert (gpu.sm_clock_mhz(), gpu.throttle_reasons()) == (1100, 0)
    gpu.throttle_to(1000)
    assert (gpu.sm_clock_mhz(), gpu.throttle_reasons()) == (1000, 0x40)
    gpu.throttle_to(None)
    assert gpu.sm_clock_mhz() == 1100


def test_a_thermal_ceiling_slows_only_what_is_above_it(make_gpu):
    gpu, clock = make_gpu()
    gpu.throttle_to(SLOW)
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    assert gpu.finish_time_s() - clock() == pytest.approx(0.2)


def latencies_s(gpu, clock, mhz, count):
    """Ask for a clock from the highest one, again and again; a tenth of a millisecond is the resolution."""
    found = []
    for _ in range(count):
        begin_s = clock()
        gpu.lock_clock(mhz)
        while gpu.sm_clock_mhz() != mhz:
            clock.pass_s(1e-4)
        found.append(clock() - begin_s)
        gpu.reset_clocks()
        clock.pass_s(3.0)
    return np.array(found)


def test_latencies_follow_the_target_clock_and_have_a_heavy_tail(make_gpu):
    spec = replace(
        SPEC,
        clocks_mhz=(1400, 1300, 1200, 1100, 1000),
        switch_latency_s=0.005,
        switch_latency_by_clock=4.0,
        switch_latency_spread=0.1,
        switch_tail_share=0.1,
        switch_tail_s=0.03,
    )
    gpu, clock = make_gpu(spec)
    medians_s = []
    for mhz in spec.clocks_mhz[1:]:
        found_s = latencies_s(gpu, clock, mhz, 100)
        typical_s = np.median(found_s)
        medians_s.append(typical_s)
        assert 0.0045 < typical_s < 0.0275
        tail = found_s > 1.15 * typical_s
        assert tail.mean() == pytest.approx(0.1, abs=0.08)
        assert (found_s[tail] - typical_s).mean() == pytest.approx(0.03, rel=0.6)
        assert np.ptp(found_s[~tail]) < 0.25 * typical_s
    assert max(medians_s) > 1.4 * min(medians_s)


def test_a_request_lets_the_stream_stand_still(make_gpu):
    gpu, clock = make_gpu(replace(SPEC, request_stall_s=0.004, switch_latency_s=0.0))
    begin_s, before_j = clock(), gpu.true_energy_j()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))
    clock.pass_s(0.05)
    gpu.lock_clock(FAST)
    gpu.lock_clock(FAST)
    assert gpu.finish_time_s() - begin_s == pytest.approx(0.108)
    clock.pass_s(0.058)
    assert gpu.true_energy_j() - before_j == pytest.approx(30.0 + 0.008 * 80.0)


def test_waiting_draws_less_at_lower_clocks(make_gpu):
    gpu, clock = make_gpu(replace(SPEC, waiting_slope_w=20.0))
    assert gpu.power_w() == 80.0
    gpu.lock_clock(SLOW)
    clock.pass_s(0.02)
    assert gpu.power_w() == 60.0


def test_leakage_grows_as_the_gpu_warms_up(make_gpu):
    """80 W and 0.5 K/W warm it by 40 K: 8 % at 0.002 per K, of which the share 1 - 1/e comes in the first window."""
    spec = replace(SPEC, leakage_per_k=0.002, thermal_resistance_k_per_w=0.5, thermal_window_s=30.0)
    gpu, clock = make_gpu(spec)
    assert gpu.power_w() == pytest.approx(80.0)
    clock.pass_s(30.0)
    assert gpu.power_w() / 80.0 - 1.0 == pytest.approx(0.08 * (1.0 - math.exp(-1.0)), rel=0.08)
    clock.pass_s(600.0)
    assert gpu.power_w() / 80.0 - 1.0 == pytest.approx(0.08 / (1.0 - 0.08), rel=0.01)  # which warms it again
