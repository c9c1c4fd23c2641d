"""Curves from GPUs as they are: counters that average and lag, and waiting that costs by the clock.

Each case fails without the remedy: with the window of a period alone the errors are 13 to 22 %, at a constant waiting
power 0.6 and 1.2 %, and the intervals do not say so.
"""

from typing import NamedTuple

import numpy as np
import pytest
from pipeline_truth import TruePipeline
from test_profiling_accuracy import PROFILES, UNEQUAL_STAGES

from perseus_ds.config import ProfilingConfig
from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.merge import merge_profiles
from perseus_ds.profiling.sweep import Sweep
from perseus_ds.profiling.table import Profile, read_profile


class Outcome(NamedTuple):
    found: list[Attribution]
    errors: np.ndarray
    half_widths: np.ndarray


def sweep(scale: float, slope_w: float, counter: dict, iterations: int = 40) -> Outcome:
    curves = {
        key: tuple(
            p._replace(
                time_s=p.time_s * scale * UNEQUAL_STAGES[key.stage],
                energy_j=p.energy_j * scale * UNEQUAL_STAGES[key.stage],
            )
            for p in points
        )
        for key, points in read_profile(PROFILES / "gpt3-175b-a100-sxm.csv").curves.items()
        if key.stage < 4
    }
    pipeline = TruePipeline(curves, blocking_slope_w=slope_w)
    clocks = [point.frequency_mhz for point in next(iter(curves.values()))]
    config = ProfilingConfig(max_iterations=iterations)
    sweeps = [Sweep(pipeline.keys(s), clocks, config, 0.010, 0.07 * scale) for s in range(4)]
    while not all(one.done for one in sweeps):
        pipeline.run([one.next_frequencies() for one in sweeps])
    found = [attribute(pipeline.spans[s], pipeline.samples(s, **counter), 0.010) for s in range(4)]
    measured = merge_profiles((0, one) for one in found)[0]
    return Outcome(found, *errors_of(measured, curves))


def errors_of(measured: Profile, curves: dict) -> tuple[np.ndarray, np.ndarray]:
    truth = {(key, point.frequency_mhz): point.energy_j for key, points in curves.items() for point in points}
    rows = [(p.energy_j, p.energy_ci_j, truth[k, p.frequency_mhz]) for k, ps in measured.curves.items() for p in ps]
    energy_j, half_width_j, true_j = np.array(rows).T
    return energy_j / true_j - 1.0, half_width_j / true_j


H100 = {"duty": 0.25, "offset": 0.75, "noise": 0.01, "fading_s": 0.3}
CASES = {
    "h100": (1.0, 40.0, H100),
    "gh200": (1.0, 40.0, {**H100, "fading_s": 1.0}),
    "b200": (1.0, 80.0, {**H100, "period_s": 0.02}),
    "mean-of-a-second": (1.0, 0.0, {"duty": 1.0, "noise": 0.01, "average_s": 1.0}),
    "two-averages": (1.0, 0.0, {"duty": 1.0, "noise": 0.01, "average_s": 1.0, "fading_s": 0.3}),
    "late": (1.0, 0.0, {"duty": 1.0, "noise": 0.01, "offset": 5.3}),
    "h100-short-instructions": (0.4, 40.0, H100),
}


@pytest.mark.parametrize(("scale", "slope_w", "counter"), CASES.values(), ids=list(CASES))
def test_curves_are_right_and_say_how_right(scale: float, slope_w: float, counter: dict) -> None:
    found, errors, half_widths = sweep(scale, slope_w, counter)

    assert all(one.verdict.explained for one in found)
    assert np.sqrt(np.mean(errors**2)) < 0.01
    assert np.abs(errors).max() < 0.03
    assert np.mean(np.abs(errors) <= half_widths) >= 0.85


@pytest.mark.parametrize(
    ("scale", "fading_s", "rms"),
    [(0.3, 0.3, 0.02), (0.3, 1.0, 0.06), (0.2, 0.3, 0.06)],
    ids=["short-instructions", "gh200", "shorter-instructions"],
)
def test_sixteen_iterations_tell_less_and_the_intervals_say_so(scale: float, fading_s: float, rms: float) -> None:
    # With the first window that fits, errors of the second case are 23 %, and 47 % of the intervals hold the truth.
    _, errors, half_widths = sweep(scale, 40.0, {**H100, "fading_s": fading_s}, iterations=16)

    assert np.sqrt(np.mean(errors**2)) < rms
    assert np.mean(np.abs(errors) <= half_widths) >= 0.85


@pytest.mark.parametrize("slope_w", [0.0, 40.0, 80.0])
def test_waiting_power_is_known_at_every_clock(slope_w: float) -> None:
    found = sweep(1.0, slope_w, {"offset": 0.75}).found

    for one in found:
        range_mhz = max(mhz for _, mhz in one.states) - min(mhz for _, mhz in one.states)
        lowest_mhz = min(mhz for _, mhz in one.states)
        assert one.waiting_slope_w_per_mhz * range_mhz == pytest.approx(slope_w, abs=4.0)
        at_lowest_w = one.blocking_power_w - one.waiting_slope_w_per_mhz * (one.waiting_mhz - lowest_mhz)
        assert at_lowest_w == pytest.approx(83.64, rel=0.03)


def test_a_counter_that_no_model_explains_gives_no_narrow_interval() -> None:
    rng = np.random.default_rng(5)

    found, errors, half_widths = sweep(1.0, 0.0, {"offset": lambda: rng.uniform(0.0, 0.75)})

    assert not any(one.verdict.explained for one in found)
    assert np.median(half_widths) > 0.2
    assert np.mean(np.abs(errors) <= half_widths) > 0.9
