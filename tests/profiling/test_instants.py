"""Powers of a GPU whose energy counter averages a second, and whose driver shows a power every 100 ms."""

from pathlib import Path

import numpy as np
import pytest
from test_on_virtual_gpu import CURVES, LATENCY_S, Training, sweep

from perseus_ds.profiling.energy import Attribution, attribute
from perseus_ds.profiling.instants import as_counter

AVERAGING = {"counter_period_s": 0.1, "sampling_duty": 0.25, "counter_window_s": 1.0, "noise": 0.01}
SHOWN = {"readings_period_s": 0.1, "power_window_s": 0.025}
SCALE = 0.3  # forwards of 15 ms, backwards of 28 ms


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Training:
    return sweep(tmp_path_factory.mktemp("gpu") / "gpu0", scale=SCALE, **AVERAGING, **SHOWN)


@pytest.fixture(scope="module")
def counted(training: Training) -> Attribution:
    """What the counter alone tells."""
    return attributed(training, [])


def attributed(training: Training, shown_w: list[tuple[float, float]]) -> Attribution:
    return attribute(training.spans, training.samples, LATENCY_S, readings=training.readings, shown_w=shown_w)


def errors(found: Attribution) -> np.ndarray:
    """Return by what share each energy is off, and what share of it is told as the half width of its interval."""
    true_j = {(key, point.frequency_mhz): SCALE * point.energy_j for key, points in CURVES.items() for point in points}
    return np.array(
        [
            (point.energy_j / true_j[key, point.frequency_mhz] - 1.0, point.energy_ci_j / point.energy_j)
            for key, points in found.curves.items()
            for point in points
        ]
    ).T


def test_shown_powers_tell_what_an_averaging_counter_hardly_does(training: Training, counted: Attribution) -> None:
    found = attributed(training, training.shown_w)

    assert counted.doubt > 0.03
    assert found.doubt < 0.015
    off, told = errors(found)
    assert np.sqrt(np.mean(off**2)) < 0.01
    assert np.mean(np.abs(off) < told) > 0.8
    assert (found.window, found.period_s) == (counted.window, counted.period_s), "those of the counter"


def test_a_counter_that_shows_the_moment_needs_no_shown_powers(tmp_path: Path) -> None:
    training = sweep(tmp_path / "gpu0", scale=SCALE, **{**AVERAGING, "counter_window_s": 0.0}, **SHOWN)
    alone, both = attributed(training, []), attributed(training, training.shown_w)
    assert np.array_equal(both.power.values, alone.power.values)


def test_what_a_counter_of_a_fast_period_tells_counts_too(tmp_path: Path) -> None:
    """Each alone leaves more in doubt: the counter averages 0.3 s, but moves five times as often."""
    fast = {"counter_period_s": 0.02, "counter_window_s": 0.3}
    training = sweep(tmp_path / "gpu0", scale=SCALE, **{**AVERAGING, **fast}, **SHOWN)
    counted, both = attributed(training, []), attributed(training, training.shown_w)
    off, _ = errors(both)
    assert np.sqrt(np.mean(off**2)) < 0.006
    assert both.doubt < 0.9 * counted.doubt


def test_the_counter_tells_the_level(training: Training) -> None:
    true, too_high = (
        attributed(training, [(time_s, factor * power_w) for time_s, power_w in training.shown_w])
        for factor in (1.0, 1.1)
    )
    states = slice(len(true.states))
    assert too_high.power.values[states] == pytest.approx(true.power.values[states], rel=1e-4)
    assert too_high.evidence.scale[states] == pytest.approx(true.evidence.scale[states], rel=1e-4)


def test_readings_may_be_missed(training: Training) -> None:
    seen = [one for number, one in enumerate(training.shown_w) if number % 10]
    off, _ = errors(attributed(training, seen))
    assert np.sqrt(np.mean(off**2)) < 0.012


def test_a_counter_that_nothing_explains_still_tells_the_level(training: Training) -> None:
    """Each tenth update counts a third too little; the next one makes up for it."""
    samples = list(training.samples)
    for at in range(10, len(samples), 10):
        time_s, energy_j = samples[at]
        samples[at] = (time_s, energy_j - (energy_j - samples[at - 1][1]) / 3.0)

    known = (training.spans, samples, LATENCY_S, None, training.readings)
    assert not attribute(*known).verdict.explained
    found = attribute(*known, training.shown_w)

    assert found.verdict.explained
    off, _ = errors(found)
    assert abs(np.mean(off)) < 0.01
    assert np.std(off) < 0.01


def test_powers_that_nothing_explains_do_not_count(training: Training, counted: Attribution) -> None:
    anything_w = np.random.default_rng(0).uniform(80.0, 400.0, len(training.shown_w))
    noise = [(time_s, float(power_w)) for (time_s, _), power_w in zip(training.shown_w, anything_w, strict=True)]
    assert np.array_equal(attributed(training, noise).power.values, counted.power.values)


def test_a_counter_of_the_readings_stands_still_where_one_was_missed() -> None:
    shown_w = [(0.1 * number, 100.0 + number) for number in range(60) if number != 2]

    counter = as_counter(shown_w)

    assert [time_s for time_s, _ in counter] == [time_s for time_s, _ in shown_w]
    counted_j = np.diff([energy_j for _, energy_j in counter])
    assert counted_j[:3] == pytest.approx([10.1, 0.0, 10.4])
    assert as_counter(shown_w[:10]) == [], "too few"
