"""The profiler meets the package's simulated GPU: its latency, its counter, its noise; time runs faster than real."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import perseus_ds
from perseus_ds.config import ProfilingConfig
from perseus_ds.pipeline.kinds import Kind
from perseus_ds.profiling.achieved import Reading
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.spans import Span
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import CurveKey, read_profile
from perseus_ds.simulator.gpu import GpuSpec, VirtualGpu, create_gpu

CURVES = {
    key: points
    for key, points in read_profile(
        Path(perseus_ds.__file__).parent / "simulator" / "profiles" / "gpt3-175b-a100-sxm.csv"
    ).curves.items()
    if key.stage == 0
}
CLOCKS = [point.frequency_mhz for point in CURVES[CurveKey(0, Kind.FORWARD)]]
FORWARD, BACKWARD = CurveKey(0, Kind.FORWARD), CurveKey(0, Kind.BACKWARD)
ORDER = [FORWARD] * 3 + [FORWARD, BACKWARD] * 5 + [BACKWARD] * 3
LATENCY_S, POLL_S = 0.010, 0.005
COUNTER = {"counter_period_s": 0.1, "sampling_duty": 0.25, "noise": 0.01}
BASELINE = 8


class Training:
    """One stage's training on a virtual GPU, in virtual time.

    Args:
        state: The GPU's file.
        scale: Of all instructions' times and energies.
        **nature: Of the GPU.
    """

    def __init__(self, state: Path, scale: float = 1.0, **nature: float) -> None:
        self.now_s = time.monotonic()
        create_gpu(state, GpuSpec(clocks_mhz=CLOCKS, switch_latency_s=LATENCY_S, seed=7, **nature))
        self.now_s = time.monotonic()
        self.gpu = VirtualGpu(state, now=lambda: self.now_s)
        self.gpu.load_curves(
            {
                key: [point._replace(time_s=scale * point.time_s, energy_j=scale * point.energy_j) for point in points]
                for key, points in CURVES.items()
            }
        )
        self.rng = np.random.default_rng(0)
        self.spans: list[Span] = []
        self.drawn_j: list[float] = []  # by each of them, in truth
        self.samples: list[tuple[float, float]] = []
        self.readings: list[Reading] = []
        self.shown_w: list[tuple[float, float]] = []
        self.next_poll_s = self.now_s

    def until(self, end_s: float) -> None:
        """Let time pass, polling the counter and the power."""
        while self.next_poll_s <= end_s:
            self.now_s = self.next_poll_s
            counter_j = self.gpu.counter_mj() / 1e3
            if not self.samples or counter_j != self.samples[-1][1]:
                self.samples.append((self.now_s, counter_j))
                self.readings.append(Reading(self.now_s, self.gpu.sm_clock_mhz(), bool(self.gpu.throttle_reasons())))
            power_w = self.gpu.power_w()
            if not self.shown_w or power_w != self.shown_w[-1][1]:
                self.shown_w.append((self.now_s, power_w))
            self.next_poll_s += POLL_S
        self.now_s = end_s

    def iteration(self, order: list[CurveKey], clocks_mhz: tuple[int, ...]) -> None:
        begin_s = self.now_s
        self.gpu.lock_clock(clocks_mhz[0])
        for index, (key, mhz) in enumerate(zip(order, clocks_mhz, strict=True)):
            self.until(self.now_s + self.rng.uniform(0.0, 0.03))  # waits for its neighbours
            work_begin_s, before_j = self.now_s, self.gpu.true_energy_j()
            self.gpu.begin_work(key)
            self.until(self.gpu.finish_time_s())
            self.spans.append(Span(work_begin_s, self.now_s, key, mhz, -np.inf if index else begin_s))
            self.drawn_j.append(self.gpu.true_energy_j() - before_j)
            if index + 1 < len(order) and clocks_mhz[index + 1] != mhz:
                self.gpu.lock_clock(clocks_mhz[index + 1])
        self.until(self.now_s + 0.2)


def profile(state: Path, **nature: float) -> Attribution:
    training = sweep(state, **nature)
    return attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)


def sweep(state: Path, **nature: float) -> Training:
    """Run a baseline at the highest clock, then a sweep."""
    training = Training(state, **nature)
    swept = Sweep(ORDER, CLOCKS, ProfilingConfig(), LATENCY_S, 0.07)
    for _ in range(BASELINE):
        training.iteration(ORDER, (CLOCKS[0],) * len(ORDER))
    while not swept.done:
        training.iteration(ORDER, swept.next_frequencies())
    assert swept.iterations <= 40
    return training


@pytest.mark.parametrize(
    ("period_s", "duty", "noise", "within"), [(0.1, 0.25, 0.03, 0.04), (0.05, 1.0, 0.01, 0.02), (0.02, 1.0, 0.0, 0.01)]
)
def test_a_virtual_gpus_energies_are_found(
    tmp_path: Path, period_s: float, duty: float, noise: float, within: float
) -> None:
    found = profile(tmp_path / "gpu", counter_period_s=period_s, sampling_duty=duty, noise=noise)

    truth = {(key, p.frequency_mhz): p for key, points in CURVES.items() for p in points}
    rows = [(truth[key, p.frequency_mhz], p) for key, points in found.curves.items() for p in points]
    errors = np.array([p.energy_j / true.energy_j - 1.0 for true, p in rows])
    assert len(rows) == 76
    assert np.abs(errors).max() < within
    assert np.sqrt(np.mean(errors**2)) < 0.35 * within
    assert np.mean([abs(p.energy_j - true.energy_j) <= p.energy_ci_j for true, p in rows]) >= 0.85
    assert found.blocking_power_w == pytest.approx(83.64, rel=0.03)
    assert found.window.width == pytest.approx(duty, abs=0.03)
    assert all(abs(p.time_s / true.time_s - 1.0) < 0.003 for true, p in rows)


def test_clocks_that_the_power_limit_breaks_leave_the_table(tmp_path: Path) -> None:
    training = sweep(tmp_path / "gpu", power_limit_w=330.0, power_limit_window_s=0.3, **COUNTER)
    found = attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)
    as_asked = attribute(training.spans, training.samples, LATENCY_S)

    for key, (top, *others) in found.curves.items():
        assert 1200 < found.sustained_mhz[key] < 1395, "the baseline settled there"
        assert top.frequency_mhz == as_asked.curves[key][0].frequency_mhz == CLOCKS[0]
        assert others[0].frequency_mhz <= found.sustained_mhz[key]
        whole = zip(training.spans[: BASELINE * len(ORDER)], training.drawn_j, strict=False)
        assert top.energy_j == pytest.approx(np.mean([drawn_j for span, drawn_j in whole if span.key == key]), rel=0.03)
    times, energies = errors(replace(found, curves={key: points[1:] for key, points in found.curves.items()}))
    assert np.abs(times).max() < 0.01
    assert np.abs(energies).max() < 0.03
    assert np.sqrt(np.mean(energies**2)) < 0.01
    assert np.abs(errors(as_asked)[0]).max() > 0.02, "what is wrong where nobody looks at the clock"


def test_whole_iterations_that_the_power_limit_slows_down_are_no_late_host(tmp_path: Path) -> None:
    """The short blocks of the sweep hold the highest clock, and take much less time."""
    training = sweep(tmp_path / "gpu", power_limit_w=290.0, power_limit_window_s=1.0, **COUNTER)
    found = attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)

    for key, (top, *_) in found.curves.items():
        whole = zip(training.spans[: BASELINE * len(ORDER)], training.drawn_j, strict=False)
        assert top.energy_j == pytest.approx(np.mean([drawn_j for span, drawn_j in whole if span.key == key]), rel=0.01)


def test_a_late_clock_shows_where_the_power_limit_decides_how_long_instructions_take(tmp_path: Path) -> None:
    """Half of the clocks come 0.3 s late. Where the highest one's time told nothing, the counter stayed unexplained."""
    limit = {"power_limit_w": 290.0, "power_limit_window_s": 1.0}
    training = sweep(tmp_path / "gpu", switch_tail_share=0.5, switch_tail_s=0.3, **limit, **COUNTER)
    found = attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)

    assert found.sustained_mhz.keys() == CURVES.keys()
    assert found.verdict.explained


def test_instructions_take_as_long_as_profiled_where_the_power_limit_is_faster_than_they_are(tmp_path: Path) -> None:
    """They begin at the clock asked for, as the GPU has waited, and end at what the limit leaves them."""
    limit = {"power_limit_w": 280.0, "power_limit_window_s": 0.005}
    training = sweep(tmp_path / "gpu", scale=0.25, counter_period_s=0.02, **limit)
    found = attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)
    profile, _ = merge_profiles([(0, found)])

    assert {key: points[0].frequency_mhz for key, points in profile.curves.items()} == dict.fromkeys(CURVES, CLOCKS[0])
    for mhz in sorted({point.frequency_mhz for points in profile.curves.values() for point in points}):
        done = len(training.spans) + len(ORDER)
        for _ in range(30):  # the clock swings: times of single iterations differ by per cents
            training.iteration(ORDER, (mhz,) * len(ORDER))
        for key, points in profile.curves.items():
            ran_s = np.mean([span.end_s - span.begin_s for span in training.spans[done:] if span.key == key])
            for point in points:
                assert point.frequency_mhz != mhz or point.time_s == pytest.approx(ran_s, rel=0.015), (key, mhz)


def errors(found: Attribution) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative errors of all points' times and energies."""
    truth = {(key, p.frequency_mhz): p for key, points in CURVES.items() for p in points}
    rows = [(truth[key, p.frequency_mhz], p) for key, points in found.curves.items() for p in points]
    times = np.array([p.time_s / true.time_s - 1.0 for true, p in rows])
    return times, np.array([p.energy_j / true.energy_j - 1.0 for true, p in rows])


def test_what_a_warm_gpu_draws_at_the_limit_counts_where_a_cold_one_has_not_come_to_it(tmp_path: Path) -> None:
    """As if powers at the limit had not grown, they came out 3 % too low, and the noise half as large again."""
    warming = {"leakage_per_k": 0.004, "thermal_window_s": 30.0}
    training = sweep(tmp_path / "gpu", power_limit_w=430.0, power_limit_window_s=0.3, **warming, **COUNTER)
    swept = len(training.spans)
    for _ in range(BASELINE):
        training.iteration(ORDER, (CLOCKS[0],) * len(ORDER))
    found = attribute(training.spans, training.samples, LATENCY_S, readings=training.readings)

    assert set(found.sustained_mhz) == {BACKWARD}
    warm = zip(training.spans[swept:], training.drawn_j[swept:], strict=True)
    assert found.curves[BACKWARD][0].energy_j == pytest.approx(
        np.mean([j for s, j in warm if s.key == BACKWARD]), rel=0.015
    )
