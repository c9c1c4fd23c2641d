"""What a virtual GPU's energy counter shows."""

import itertools
import math
from dataclasses import replace

import pytest
from virtual_time import SPEC

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey


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


def test_a_counter_that_integrates_an_average_answers_an_impulse_exponentially(make_gpu):
    """Of 22 J above waiting, the share 1 - exp(-t / window) is shown t after the impulse."""
    window_s = 0.3
    gpu, clock = make_gpu(replace(SPEC, counter_window_s=window_s, counter_period_s=0.001))
    clock.pass_s(3.0)
    begin_s, begin_mj = clock(), gpu.counter_mj()
    gpu.begin_work(CurveKey(0, Kind.FORWARD))  # 300 W instead of 80 W for 0.1 s
    clock.pass_s(0.1)
    for waited_s in (0.1, 0.2, 0.4, 2.0):
        clock.pass_s(waited_s)
        after_s = clock() - begin_s
        shown_j = (gpu.counter_mj() - begin_mj) / 1000.0 - 80.0 * after_s
        # An impulse spread over 0.1 s: the mean of the answers to its parts.
        spread = window_s / 0.1 * (math.exp(-(after_s - 0.1) / window_s) - math.exp(-after_s / window_s))
        assert shown_j == pytest.approx(22.0 * (1.0 - spread), abs=0.3)
