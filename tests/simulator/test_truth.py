"""What is kept of what really happened, and who may look at it."""

from pathlib import Path

import pytest
from test_stream import BACKWARD, FORWARD, Pipeline
from virtual_time import SLOW

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
    lasted_s = truth.begins[1][0] - truth.begins[0][0]
    used_j = truth.begins[1][1] - truth.begins[0][1]
    assert (lasted_s, used_j) == (pytest.approx(0.5), pytest.approx(27.0 + 80.0 * 0.41))
    assert truth.instructions[FORWARD, 1400] == pytest.approx((3, 0.03, 9.0))
    assert truth.instructions[FORWARD, SLOW] == pytest.approx((1, 0.06, 6.0))
    assert truth.instructions[BACKWARD, 1400] == pytest.approx((3, 0.12, 18.0 + 80.0 * 0.06))


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
