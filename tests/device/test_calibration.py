"""Calibration on virtual GPUs whose truth is known, and its cache."""

import json

import pytest

from perseus_ds.device.calibration import calibrate, calibrated
from perseus_ds.device.opening import open_gpu


@pytest.mark.parametrize(("latency_s", "period_s"), [(0.005, 0.02), (0.03, 0.1)])
def test_it_finds_latency_and_period(make_gpus, latency_s, period_s):
    make_gpus(switch_latency_s=latency_s, counter_period_s=period_s)
    found = calibrate(open_gpu(0).gpu)
    assert found.switch_latency_s == pytest.approx(latency_s, rel=0.3, abs=0.002)
    assert found.counter_period_s == pytest.approx(period_s, rel=0.1)
    assert len(found.switch_latencies_s) >= 8


def test_a_spread_of_latencies_is_a_distribution(make_gpus):
    make_gpus(switch_latency_s=0.03, switch_latency_spread=0.5)
    latencies_s = calibrate(open_gpu(0).gpu).switch_latencies_s
    assert latencies_s == tuple(sorted(latencies_s))
    assert latencies_s[-1] - latencies_s[0] > 0.008
    assert 0.014 < latencies_s[0] < latencies_s[len(latencies_s) // 2] < 0.08  # a stall of the host adds to the last


def test_clocks_are_reset_afterwards_and_untouched_when_observing(gpu):
    calibrate(open_gpu(0).gpu)
    assert not gpu.is_locked()
    before = gpu.requests()
    assert calibrate(open_gpu(0, "observe").gpu).switch_latencies_s == ()
    assert gpu.requests() == before


def test_a_throttled_gpu_that_never_reaches_its_clocks_gives_no_latency(gpu):
    gpu.throttle(1.2)
    found = calibrate(open_gpu(0).gpu)
    assert len(found.switch_latencies_s) < 8
    assert found.counter_period_s == pytest.approx(0.05, rel=0.1)


def test_what_an_observer_measured_is_not_enough_for_who_sets_clocks(gpu, tmp_path):
    cache, told = tmp_path / "cache", []
    calibrated(open_gpu(0, "observe").gpu, True, cache, lambda *message: told.append(message))
    full = calibrated(open_gpu(0).gpu, True, cache, lambda *message: told.append(message))
    assert full.switch_latencies_s
    assert calibrated(open_gpu(0, "observe").gpu, True, cache, print) == full
    assert told == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"counter_period_s": 0.1}', '{"switch_latencies_s": ["x"]}'])
def test_a_damaged_cache_is_told_set_aside_and_made_again(gpu, tmp_path, content):
    file, told = tmp_path / "calibration-test-gpu-1.2.3.json", []
    file.write_text(content)
    found = calibrated(open_gpu(0).gpu, True, tmp_path, lambda *message: told.append(message))
    (message,) = told
    assert message[0] == "calibration-damaged"
    assert "\n" not in message[1]
    assert file.with_suffix(".damaged").read_text() == content
    assert json.loads(file.read_text())["counter_period_s"] == found.counter_period_s


def test_a_driver_that_refuses_costs_a_message_only(gpu, tmp_path):
    opened = open_gpu(0).gpu
    gpu.set_fault("gpu_is_lost")
    told = []
    assert calibrated(opened, True, tmp_path, lambda *message: told.append(message)).counter_period_s == 0.0
    assert [code for code, _ in told] == ["nvml-gpu-is-lost"]
    assert not list(tmp_path.glob("calibration-*"))
