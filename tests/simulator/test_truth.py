"""What is kept of what really happened, and who may look at it."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_stream import BACKWARD, FORWARD, Pipeline
from virtual_time import SLOW, SPEC

import perseus_ds
from perseus_ds.simulator.truth import read_truth

PACKAGE = Path(perseus_ds.__file__).parent


def test_true_times_and_energies_are_kept_by_curve_clock_and_iteration(tmp_path):
    job = Pipeline(tmp_path, 1)
    (gpu,), (stream,) = job.gpus, job.streams
    for iteration in range(3):
        stream.begin_pass(iteration)
        stream.work(FORWARD)
        stream.work(BACKWARD, factor=1.0 + iteration)
        job.clock.pass_s(0.5)
        gpu.power_w()
    gpu.lock_clock(SLOW)
    job.clock.pass_s(0.1)
    gpu.power_w()
    stream.begin_pass(3)
    stream.work(FORWARD)
    job.clock.pass_s(0.5)
    gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, range(5))
    assert truth.host_ahead == 1
    assert sorted(truth.begins) == [0, 1, 2, 3]
    lasted_s = truth.begins[1].time_s - truth.begins[0].time_s
    used_j = truth.begins[1].energy_j - truth.begins[0].energy_j
    assert (lasted_s, used_j) == (pytest.approx(0.5), pytest.approx(27.0 + 80.0 * 0.41))
    assert truth.instructions[FORWARD, 1400] == pytest.approx((3, 0.03, 9.0))
    assert truth.instructions[FORWARD, SLOW] == pytest.approx((1, 0.06, 6.0))
    assert truth.instructions[BACKWARD, 1400] == pytest.approx((1, 0.06, 18.0)), "others wait for the reduction"


def test_a_warm_gpu_draws_more_and_the_truth_says_how_much(tmp_path):
    job = Pipeline(tmp_path, 1, replace(SPEC, leakage_per_k=0.01, thermal_window_s=0.5))
    (gpu,), (stream,) = job.gpus, job.streams
    for iteration in range(8):
        stream.begin_pass(iteration)
        for _ in range(16):
            stream.work(FORWARD)
        job.clock.pass_s(16 * 0.03)
        gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, range(8))
    used_j = [truth.begins[i + 1].energy_j - truth.begins[i].energy_j for i in (0, 6)]
    warmths = [(truth.begins[i].warmth + truth.begins[i + 1].warmth) / 2 for i in (0, 6)]
    assert warmths[1] > 1.2
    assert used_j[1] / used_j[0] == pytest.approx(warmths[1] / warmths[0], rel=0.02)
    assert truth.instructions[FORWARD, 1400] == pytest.approx((128, 0.03, 9.0), rel=0.01)


def test_an_instruction_counts_at_the_clock_that_it_ran_at(tmp_path):
    job = Pipeline(tmp_path, 1)
    (gpu,), (stream,) = job.gpus, job.streams
    gpu.throttle_to(SLOW)
    stream.work(FORWARD)
    job.clock.pass_s(0.5)
    gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, [])
    assert truth.instructions == {(FORWARD, SLOW): pytest.approx((1, 0.06, 6.0))}


def test_an_instruction_of_a_slowed_gpu_does_not_count(tmp_path):
    job = Pipeline(tmp_path, 1)
    (gpu,), (stream,) = job.gpus, job.streams
    for slowdown in (1.0, 1.3, 1.0):
        gpu.throttle(slowdown)
        stream.work(FORWARD)
        job.clock.pass_s(0.03 if slowdown == 1.0 else 0.02)  # the second one ends as the GPU is itself again
        gpu.power_w()
    job.clock.pass_s(0.5)
    gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, [])
    assert truth.instructions == {(FORWARD, 1400): pytest.approx((2, 0.03, 9.0))}


def test_an_instruction_under_which_the_gpu_stood_still_does_not_count(tmp_path):
    job = Pipeline(tmp_path, 1, replace(SPEC, request_stall_s=0.001))
    (gpu,), (stream,) = job.gpus, job.streams
    for asks in (True, False):
        stream.work(FORWARD)
        if asks:
            gpu.lock_clock(1400)  # which it has: nothing else changes
        job.clock.pass_s(0.1)
        gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, [])
    assert truth.instructions == {(FORWARD, 1400): pytest.approx((1, 0.03, 9.0))}


def test_an_instruction_at_the_power_limit_counts_at_the_clock_asked_for(tmp_path):
    job = Pipeline(tmp_path, 1, replace(SPEC, power_limit_w=200.0, power_limit_window_s=0.004))
    (gpu,), (stream,) = job.gpus, job.streams
    for iteration in range(2):
        stream.begin_pass(iteration)
    for _ in range(4):
        stream.work(FORWARD)
    job.clock.pass_s(0.5)
    for ask in (lambda: gpu.lock_clock(SLOW), gpu.reset_clocks):
        ask()
        job.clock.pass_s(0.1)
    stream.work(FORWARD)  # after a rest, in an iteration of two clocks
    job.clock.pass_s(0.5)
    gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, range(2))
    assert not truth.instructions
    assert not truth.highest[0]
    ((key, cost),) = truth.highest[1].items()
    assert (key, cost.instances) == (FORWARD, 4)
    assert 0.03 < cost.time_s < 0.06, "between the two clocks"


def test_at_the_power_limit_a_warm_gpu_draws_no_more(tmp_path):
    """Its instructions take longer instead."""
    spec = replace(SPEC, leakage_per_k=0.01, thermal_window_s=10.0, power_limit_w=200.0, power_limit_window_s=0.004)
    job = Pipeline(tmp_path, 1, spec)
    (gpu,), (stream,) = job.gpus, job.streams
    for iteration in range(8):
        stream.begin_pass(iteration)
        for _ in range(16):
            stream.work(FORWARD)
        job.clock.pass_s(2.0)
        gpu.power_w()
    (home,) = tmp_path.iterdir()
    (truth,) = read_truth(home, range(8))
    assert not truth.instructions
    early, late = (truth.highest[number][FORWARD] for number in (1, 7))
    assert late.time_s > 1.005 * early.time_s
    for cost in (early, late):
        assert cost.energy_j / cost.time_s == pytest.approx(200.0, rel=0.05)


def test_nothing_that_decides_can_look_at_the_truth():
    """The report may, and what makes virtual GPUs; nobody who measures, plans or sets clocks."""
    may = ("simulator/", "report/", "commands/report.py", "runtime/simulation.py")
    secrets = ("read_truth", "true_energy_j", "simulator.truth", "TruthState", "GpuDynamic")
    found = [
        f"{path.relative_to(PACKAGE)}: {secret}"
        for path in PACKAGE.rglob("*.py")
        if not str(path.relative_to(PACKAGE)).startswith(may)
        for secret in secrets
        if secret in path.read_text(encoding="utf-8")
    ]
    assert found == []
