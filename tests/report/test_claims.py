"""What a run claims, against what its virtual GPUs know."""

import math
from types import SimpleNamespace

import pytest

from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.table import CurveKey, Profile, ProfilePoint
from perseus_ds.report.claims import claims_of
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu
from perseus_ds.simulator.launch import VirtualStream
from perseus_ds.simulator.state import state_path
from perseus_ds.simulator.truth import Cost, Truth, read_truth

KEY = CurveKey(0, Kind.FORWARD)


def run_of(tmp_path, **nature):
    """Three iterations of 1 s at 1,400 MHz, then three of 2 s at 700 MHz, all of work at 300 W and then 100 W."""
    (tmp_path / "gpus").mkdir()
    path = state_path(tmp_path / "gpus", 0)
    create_gpu(path, GpuSpec((1400, 700), switch_latency_s=0.0, **nature))
    now = [0.0]
    gpu = VirtualGpu(path, lambda: now[0])
    now[0] = gpu.card.file.state.dynamic.time_s
    gpu.load_curves({KEY: [ProfilePoint(1400, 1.0, 300.0), ProfilePoint(700, 2.0, 200.0)]})
    stream = VirtualStream(gpu, launch_queue=9)
    for iteration in range(7):
        if iteration == 3:
            gpu.lock_clock(700)
        stream.begin_pass(iteration)
        stream.work(KEY)
        now[0] += 1.0 if iteration < 3 else 2.0
        gpu.power_w()
    rows = [{"iteration": number, "phase": "baseline" if number < 3 else "enforcing"} for number in range(6)]
    summary = {"simulated": True, "saving": 0.30, "slowdown": 0.9, "pipelines": 1}
    profile = Profile(
        {
            KEY: (
                ProfilePoint(1400, 1.0, 303.0, 0.01, 9.09),
                ProfilePoint(700, 2.1, 200.0, 0.042, 6.0),
                ProfilePoint(800, 1.0, 1.0, 0.0, 0.0),
            )
        }
    )
    return SimpleNamespace(path=tmp_path, iterations=rows, summary=summary, profile=profile, limited=frozenset())


@pytest.fixture
def run(tmp_path):
    return run_of(tmp_path)


def test_claims_are_set_against_the_truth(run):
    claims = claims_of(run)
    assert claims is not None
    assert (claims.claimed_saving, claims.true_saving) == (0.30, pytest.approx(1 / 3))
    assert (claims.claimed_slowdown, claims.true_slowdown) == (0.9, pytest.approx(1.0))
    assert (claims.true_time_s, claims.true_energy_j) == pytest.approx((2.0, 200.0))
    curves = claims.curves
    assert curves is not None
    assert curves.points == 2  # nothing ran at 800 MHz
    assert (curves.time_worst, curves.energy_worst) == pytest.approx((0.05, 0.01))
    assert curves.time_rms == pytest.approx(0.05 / math.sqrt(2))
    assert (curves.time_told, curves.energy_told) == pytest.approx((0.01, 0.02)), "of all three points"
    assert ("energy saved", "+30.00 %", "+33.33 %") in claims.rows()
    assert ("error of 2 points in time", "±1.00 %", "rms 3.54 %, worst 5.00 %") in claims.rows()
    assert ("the same in energy", "±2.00 %", "rms 0.71 %, worst 1.00 %") in claims.rows()


def test_the_truth_is_a_mean_as_the_claim_is(tmp_path):
    """The GPU gets warm: the median would leave out what it draws at the begin and at the end."""
    run = run_of(tmp_path, leakage_per_k=0.002, thermal_window_s=10.0)
    (truth,) = read_truth(tmp_path / "gpus", range(7))
    drawn_j = [truth.begins[number + 1].energy_j - truth.begins[number].energy_j for number in range(6)]
    assert drawn_j[2] > 1.01 * drawn_j[0]
    claims = claims_of(run)
    assert claims is not None
    assert claims.true_saving == pytest.approx(1.0 - sum(drawn_j[3:]) / sum(drawn_j[:3]))


def test_iterations_that_are_all_different_have_no_typical_energy(run):
    run.iterations[2]["phase"], run.iterations = "enforcing", run.iterations[:4]
    claims = claims_of(run)
    assert claims is not None
    assert math.isnan(claims.true_saving), "300 and 200 J: none is near their middle"


def test_a_profile_is_compared_with_gpus_as_warm_as_while_it_was_measured(tmp_path):
    run = run_of(tmp_path, leakage_per_k=0.002, thermal_window_s=1.0)
    for row in run.iterations[1:3]:
        row["phase"] = "profiling"
    (truth,) = read_truth(tmp_path / "gpus", [2])
    warmth = truth.begins[2].warmth
    assert warmth > 1.04
    points = (ProfilePoint(1400, 1.0, warmth * 300.0), ProfilePoint(700, 2.0, warmth * 200.0))
    run.profile = Profile({KEY: points})
    claims = claims_of(run)
    assert claims is not None
    assert claims.curves is not None
    assert claims.curves.energy_worst < 0.02


def test_at_the_power_limit_iterations_at_the_highest_clock_after_the_profiling_count(run, monkeypatch):
    for row, phase in zip(run.iterations, ("baseline", "profiling", "profiling", "baseline"), strict=False):
        row["phase"] = phase
    truth = Truth(
        index=0,
        begins={},
        instructions={(KEY, 1400): Cost(2, 0.9, 400.0), (KEY, 700): Cost(1, 2.0, 200.0)},
        highest={0: {KEY: Cost(9, 7.0, 7.0)}, 3: {KEY: Cost(3, 1.25, 303.0)}, 5: {KEY: Cost(9, 7.0, 7.0)}},
        host_ahead=0,
    )
    monkeypatch.setattr("perseus_ds.report.claims.read_truth", lambda *_: [truth])
    assert claims_of(run).curves.energy_worst == pytest.approx(1.0 - 303.0 / 400.0), "the GPU holds its clock"
    run.limited = frozenset({KEY})
    curves = claims_of(run).curves
    assert curves.points == 2
    assert curves.time_worst == pytest.approx(0.2), "at 1,400 MHz; 5 % at 700 MHz"
    assert curves.energy_worst == pytest.approx(0.0)


def test_a_run_without_a_plan_claims_nothing(run):
    run.iterations = run.iterations[:3]
    run.summary |= {"saving": None, "slowdown": None}
    claims = claims_of(run)
    assert claims is not None
    assert math.isnan(claims.true_saving)
    assert ("energy saved", "–", "–") in claims.rows()


def test_real_gpus_keep_no_truth(run, tmp_path):
    run.summary["simulated"] = False
    assert claims_of(run) is None
    run.summary["simulated"], run.path = True, tmp_path / "elsewhere"
    assert claims_of(run) is None
